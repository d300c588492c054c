#!/usr/bin/env python3
"""Other libraries and this engine in turns, so that a busy neighbor or a changing clock affects all. Medians count.

    turns.py torch      training steps against PyTorch, after a search of its fastest variant
    turns.py mpi        the token exchange, all-reduce and barrier against Open MPI and MPICH

`turns.py torch -h` and so on list the flags. What is not installed is left out. Run it in a clone of this repository,
with the launcher in PATH or given by --launcher.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = ["--batch", "2", "--seq"]
ROWS = {  # flags of `bench train` by name of the row
    "small": ["--flavor", "small", "--batch", "8", "--seq", "512"],
    "vocab-100277": ["--flavor", "small", "--batch", "8", "--seq", "512", "--set", "model.vocab=100277"],
    "seq-8192": ["--flavor", "small", *LONG, "8192", "--set", "model.max_positions=8192"],
    "seq-32768": ["--flavor", "small", *LONG, "32768", "--set", "model.max_positions=32768"],
    "16B-slice": ["--flavor", "16B-slice", "--batch", "8", "--seq", "512"],
    "671B-slice": ["--flavor", "671B-slice", "--batch", "8", "--seq", "512"],
}
GAIN = 1.01  # by which a variant must be faster to replace another: less is noise


class Failed(Exception):
    """A side ended with an error; the message is the last line that it printed."""


def lines(command, text=None):
    """The JSON lines that a command prints."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=env)
    if done.returncode:
        raise Failed(f"{command[0]}: {(done.stderr.strip() or f'exit code {done.returncode}').splitlines()[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ratio(xs, ys):
    """The median of the ratios, turn by turn."""
    return statistics.median(x / y for x, y in zip(xs, ys))


def search(options, setting, fixed, trial):
    """The fastest setting by one option after the other. A variant that fails is slower than all others."""
    best, first = 0, None
    try:
        best = trial(setting)
    except Failed as e:
        first = e
    for name, values in options.items():
        for value in values if name not in fixed else []:
            other = {**setting, name: value}
            try:
                rate = trial(other) if value != setting[name] else 0
            except Failed:
                continue
            if rate > GAIN * best:
                best, setting = rate, other
    if not best:
        raise first
    return setting


def torch(a):
    script = os.path.join(HERE, "torch", "train.py")
    options = {o["name"]: o["values"] for o in json.loads(subprocess.check_output([a.python, script, "--options"]))}
    given = dict(pair.split("=") for pair in a.set.split(",") if pair)
    rows = {" ".join(a.flags): a.flags} if a.flags else {name: ROWS[name] for name in (ROWS if a.rows == "all" else a.rows.split(","))}
    ranks = a.np or a.threads
    print(f"{a.threads} threads, {ranks} ranks; this engine in {a.precision}, PyTorch in bf16; medians of {a.rounds} turns each")
    print(f"{'tokens/s, GiB':16} {'engine':>9} {'PyTorch':>9} {'ratio':>6} {'memory':>9} {'PyTorch':>9}")
    for name, flags in rows.items():
        named = dict(zip(flags, flags[1:]))
        rest = [f for i, f in enumerate(flags) if f != "--flavor" and flags[i - 1] != "--flavor"]
        shape = subprocess.check_output([a.launcher, "inspect", named.get("--flavor", "small"), "--json", *rest], text=True)
        tried = []

        def theirs(setting, warm, steps):
            command = [a.python, script, "--threads", str(a.threads), "--warm", str(warm), "--steps", str(steps),
                       "--set", ",".join(f"{k}={v}" for k, v in setting.items())]
            got = {x["name"]: x["value"] for x in lines(command, shape)}
            return got["torch_bf16_tokens_per_s"], got["torch_bf16_memory_bytes"]

        def trial(setting):
            tried.append(setting)
            return theirs(setting, 1, 1)[0]

        def ours():
            got = {x["name"]: x["value"] for x in lines([a.launcher, "-np", str(ranks), "--threads", str(a.threads // ranks), "bench", "train",
                                                       "--quick", "--precision", a.precision, "--json", "-", *flags])}
            return got[a.precision + "_tokens_per_s"], got[a.precision + "_memory_bytes"]

        sides, failed = {"engine": [], "PyTorch": []}, {}
        try:
            setting = search(options, {**{k: v[0] for k, v in options.items()}, **given}, options if a.no_search else given, trial)
        except Failed as e:
            setting, failed["PyTorch"] = given, e
        for _ in range(a.rounds):
            for side, run in ("engine", ours), ("PyTorch", lambda: theirs(setting, a.warm, a.steps)):
                try:
                    if side not in failed:
                        sides[side].append(run())
                except Failed as e:
                    failed[side] = e
        if failed:
            for side, e in failed.items():
                print(f"{name:16} {side} does not train it: {e}")
            continue
        (e, em), (p, pm) = (list(zip(*x)) for x in sides.values())
        print(f"{name:16} {statistics.median(e):9.0f} {statistics.median(p):9.0f} {ratio(e, p):6.2f} {statistics.median(em) / 2**30:9.2f} "
              f"{statistics.median(pm) / 2**30:9.2f}\n  PyTorch's best of {len(tried)} variants: {setting}")


def mpi(a):
    groups = ["barrier", "all_reduce_64MiB", "exchange_4096x2048_top8", "exchange_4096x2048_top2", "exchange_128x7168_top8"]
    if a.quick:
        groups = ["barrier", "all_reduce_16MiB", "exchange_4096x2048_top8"]
    bench = ["bench", "exchange", "--match", f"^({'|'.join(groups)})$", "--json", "-"] + ["--quick"] * a.quick
    with tempfile.TemporaryDirectory() as folder:
        programs = {}
        for name in "openmpi", "mpich":
            program, source = os.path.join(folder, name), os.path.join(HERE, "mpi", "src")
            files = [os.path.join(source, f) for f in os.listdir(source) if f.endswith(".c")]
            try:
                subprocess.run(["mpicc." + name, "-O3", "-march=native", "-o", program, *files], check=True)
                programs[name] = program
            except FileNotFoundError:
                print(f"without {name}: there is no mpicc.{name}: install Debian's lib{name}-dev")
        for np in a.np.split(","):
            crowded = int(np) > os.cpu_count()
            flags = {"openmpi": ["--mca", "btl_vader_single_copy_mechanism", "cma"], "mpich": []}
            if crowded:
                flags["openmpi"] += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
            else:
                flags = {name: f + ["-bind-to", "core"] for name, f in flags.items()}
            sides = {"goroutines": [a.launcher, "-np", np, *bench],
                     "processes": [a.launcher, "-np", np, *bench, "--ranks", "process"] + ["--bind-to", "core"] * (not crowded)}
            for name, program in programs.items():
                sides[name] = ["mpirun." + name, "-np", np, *flags[name], program, name, "7" if a.quick else "15", *groups]
            times = {}
            for turn in range(a.rounds):
                for i in range(len(sides)):  # no side always follows the same neighbor
                    side = list(sides)[(i + turn) % len(sides)]
                    for r in lines(sides[side]):
                        name = re.sub(f"^({side}_|onesided_)", "", r["name"])
                        if r.get("wrong"):
                            sys.exit(f"{side}, {np} ranks: {r['wrong']} elements of {name} are wrong")
                        if r.get("unit") == "us":  # of the slowest rank, from its own start
                            times.setdefault(name, {}).setdefault(side, []).append(r.get("slowest_us") or r["value"])
                        elif "single_copy" in name and r["value"] < 0.9:
                            print(f"{side}: not all rows went by a single copy (CMA), but {100 * r['value']:.0f} %")
            for name in list(times):  # with "dedup", a token travels once to each rank, and sums are rounded before they return
                if name.startswith("dedup_"):
                    times[name]["goroutines"] = times[name[len("dedup_"):]]["goroutines"]
            table(f"{np} ranks, us of the slowest rank", list(sides), {n: t for n, t in times.items() if set(t) & set(programs)})


def table(title, sides, values):
    """Medians of times, and the engine's advantage over each other side."""
    own = "goroutines"
    print(f"\n{title:34}" + "".join(f"{s:>12}" for s in sides) + "".join(f"{'/' + s:>12}" for s in sides if s != own))
    for name, of in values.items():
        if own not in of:
            continue
        cells = [f"{statistics.median(of[s]):12.1f}" if s in of else " " * 12 for s in sides]
        cells += [f"{ratio(of[s], of[own]):12.2f}" if s in of else " " * 12 for s in sides if s != own]
        print(f"{name:34}" + "".join(cells))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = p.add_subparsers(required=True)
    for mode, rounds in (torch, 3), (mpi, 5):
        m = modes.add_parser(mode.__name__)
        m.set_defaults(mode=mode)
        m.add_argument("--launcher", default="launcher", help="the engine's program")
        m.add_argument("--rounds", type=int, default=rounds, help="turns of each side")
        if mode is torch:
            m.add_argument("--rows", default="small", help="models: all, or some of " + ",".join(ROWS))
            m.add_argument("--precision", default="bf16", help="of this engine")
            m.add_argument("--threads", type=int, default=2, help="of PyTorch, and of this engine's ranks together")
            m.add_argument("--np", type=int, default=0, help="ranks of this engine; 0: one per thread")
            m.add_argument("--warm", type=int, default=1, help="steps of PyTorch before those that count")
            m.add_argument("--steps", type=int, default=2, help="steps of PyTorch in each turn")
            m.add_argument("--python", default="python3", help="a program that has torch")
            m.add_argument("--set", default="", help="NAME=VALUE,...: options of PyTorch's side that are not searched")
            m.add_argument("--no-search", action="store_true", help="take the defaults of options that --set does not give")
            m.add_argument("flags", nargs="*", help="after --: flags of bench train that describe another model")
        else:
            m.add_argument("--np", default="2,4,8", help="numbers of ranks")
            m.add_argument("--quick", action="store_true", help="fewer shapes and repetitions")
    a = p.parse_args()
    a.mode(a)


main()
