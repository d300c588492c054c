"""The 16B whole on one server: what bench/results/16B.md says of it. Each phase keeps its figures; `text` prints them all.

    python3 bench/16B.py --tokens tokens.arrow --work WORK            # 64 cores, 512 GiB, 235 GiB of disk
    python3 bench/16B.py --tokens tokens.arrow --work WORK --layers 3 --batch 8 --steps 4 --turns 1   # a cut: 16 cores, 64 GiB

docs/recipes/16B-32-cores.sh makes tokens. A phase is bf16, mxfp8 (or another recipe), RECIPE-resume, exchange, torch or text.
RECIPE trains all steps, saves in the middle, and is killed after the last one; RECIPE-resume goes on from the middle, and must
find the same losses.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time


def grow(gib):
    """Writes to memory once: virtual machines that start small get theirs so."""
    for p in [subprocess.Popen([sys.executable, "-c", f"x = b'1' * ({gib} << 27)"]) for _ in range(8)]:
        p.wait()


def records(folder):
    path = os.path.join(folder, "metrics.jsonl")
    return [json.loads(line) for line in open(path) if line.endswith("}\n")] if os.path.exists(path) else []


def train(a, recipe, *flags, layers=0, resume=False, last=None):
    """A training run, which is killed after step `last`: what it said and wrote."""
    folder, layers = os.path.join(a.work, recipe), layers or a.layers
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    command = f"{a.launcher} -np {a.np} train --flavor 16B --seq {a.seq} --batch {a.batch} --micro-batch 1 --recompute selective --optimizer.moments bf16"
    command += f" --precision {recipe} --data {a.tokens} --out {folder} --eval-sequences 16 --sample-tokens 0 --log-every 1 --optimizer.warmup 1"
    command += f" --optimizer.lr 4e-4 --save-async=false --keep 0 {a.set}" + (f" --model.layers {layers}" if layers else "")
    command = [*command.split(), *map(str, flags)]
    dry = subprocess.run([*command, "--dry-run"], capture_output=True, text=True).stdout
    log, began = os.path.join(a.work, recipe + ".log"), time.time()
    new = lambda: [r["step"] for r in records(folder) if "step" in r and r["step"]["time"] > began]
    with open(log, "w") as out:
        p = subprocess.Popen([*command, *["--resume"] * resume], stdout=out, stderr=subprocess.STDOUT)
        while p.poll() is None:
            time.sleep(0.2)
            if last in [s["step"] for s in new()]:
                p.kill()
                p.wait()
    said = open(log).read()
    if p.returncode not in (0, -9):
        raise SystemExit(f"{' '.join(command)}: exit code {p.returncode}\n{said[-2000:]}")
    every, steps = records(folder), new()
    facts = next(r["start"] for r in every if "start" in r)
    return {
        "command": command, "facts": facts, "steps": steps, "start": steps[0]["time"] - steps[0]["seconds"] - began,
        "rate": [facts["tokens"] / s["seconds"] for s in steps], "evals": [r["eval"] for r in every if "eval" in r],
        "times": next((r["times"] for r in reversed(every) if "times" in r), None), "saved": re.findall(r"saved .* in (.*)", said),
        "dry": re.findall(r"memory of all ranks: ([^;]*)", dry), "bytes": sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files),
    }  # fmt: skip


def phase(a, name):
    recipe, half = name.removesuffix("-resume"), a.steps // 2
    flags = ["--steps", a.steps, "--save-every", half, "--eval-every", half]
    if name == "exchange":
        runs = [(kind, train(a, "bf16", "--steps", 3, "--save-every", 0, "--eval-every", 0, "--ep-exchange", kind, layers=2)) for kind in ("onesided", "standard") * a.turns]
        shutil.rmtree(os.path.join(a.work, "bf16"))
        return [(kind, r["times"]["families"]["exchange"], max(r["rate"])) for kind, r in runs]
    if name == "torch":
        turns = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "turns.py")
        command = f"{sys.executable} {turns} torch --launcher {a.launcher} --no-search --threads {os.cpu_count()} --np {a.np} --rounds 1 --steps 1"
        command += f" --set weights=master,attention=256,experts=grouped,optimizer=fused -- --flavor 16B --model.layers 2 --seq {a.seq} --batch {a.batch}"
        return subprocess.run(command.split(), capture_output=True, text=True).stdout
    if name == recipe:
        return train(a, recipe, *flags, last=a.steps)
    r = train(a, recipe, *flags, resume=True)
    shutil.rmtree(os.path.join(a.work, recipe))
    return r


def table(whole, again):
    """The rows of a recipe, in Markdown."""
    facts, rate, old = whole["facts"], whole["rate"], {s["step"]: s["loss"] for s in whole["steps"]}
    equal = [s["loss"] == old[s["step"]] for s in again["steps"]]
    times = again["times"] or {"seconds": 0, "families": {}}  # of one step there are none
    total, families = times["seconds"], times["families"]
    rows = {
        "tokens/s of each step": [f"{r:,.0f}" for r in rate],
        "MFU, in %": [f"{100 * r * facts['flops'] / facts['peak']:.1f}" for r in rate],
        "training loss, in nats": [f"{x:.4f}" for x in old.values()],
        "validation loss, by steps before it": [f"{e['step']}: {e['loss']:.4f}" for e in whole["evals"]],
        "memory of all ranks, and by the dry run": [f"{max(s['memory'] for s in whole['steps']) / 2**30:.1f} GiB", *whole["dry"]],
        "from the start, and from a resume, to the first step": [f"{whole['start']:.0f} s", f"{again['start']:.0f} s"],
        "saves": whole["saved"] + again["saved"],
        "checkpoint and the run's other files": [f"{whole['bytes'] / 1e9:.1f} GB"],
        "resumed losses that equal the unbroken ones to the last digit": [f"{sum(equal)} of {len(equal)}"],
        f"parts of a step of {total:.1f} s, in %": [f"{n} {100 * t / total:.1f}" for n, t in sorted(families.items(), key=lambda part: -part[1]) if t > 0.002 * total],
    }
    return "".join(f"| {name} | {', '.join(cells)} |\n" for name, cells in rows.items())


def text(found):
    for recipe in [n for n in found if n + "-resume" in found]:
        whole = found[recipe]
        print(f"    command: {' '.join(whole['command'])}\n")
        print("{cpu}, {cores} cores, {ranks} ranks, {tokens} tokens per step, tier {tier}, {peak:.3g} FLOP/s in registers,".format(**whole["facts"]), platform.platform())
        print(f"\n| {recipe} | measured |\n|---|---|\n{table(whole, found[recipe + '-resume'])}")
    for kind, seconds, rate in found.get("exchange", []):
        print(f"exchange, 2 layers, {kind}: {1000 * seconds:.1f} ms of a step, {rate:,.0f} tokens/s")
    print(found.get("torch", ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--launcher", default="launcher")
    p.add_argument("--tokens", required=True)
    p.add_argument("--work", required=True, help="folder of checkpoints and figures")
    p.add_argument("--set", default="", help="more flags of the launcher")
    p.add_argument("--phases", default="bf16,bf16-resume,mxfp8,mxfp8-resume,exchange,torch,text")
    for name, default, help in ("layers", 0, "0: all 27"), ("np", 8, "ranks"), ("steps", 10, ""), ("seq", 512, ""), ("batch", 32, ""), ("grow", 0, "GiB to write to first"), ("turns", 2, "of exchanges"):
        p.add_argument("--" + name, type=int, default=default, help=help)
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    grow(a.grow)
    kept = os.path.join(a.work, "16B.json")
    found = json.load(open(kept)) if os.path.exists(kept) else {}
    for name in a.phases.split(","):
        began = time.time()
        try:
            if name == "text":
                text(found)
                continue
            found[name] = phase(a, name)
        except (Exception, SystemExit) as e:  # the other phases go on
            print(f"{name} failed: {type(e).__name__}: {e}", flush=True)
            continue
        print(f"{name}: {time.time() - began:.0f} s", flush=True)
        with open(kept, "w") as f:
            json.dump(found, f)


main()
