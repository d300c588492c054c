"""The 16B whole on one server: what bench/results/16B.md says of it. Each phase keeps its figures; `text` prints them all.

    launcher data tokenize --data TEXT --tokenizer tokenizer.json --out tokens.arrow
    python3 bench/16B.py --launcher launcher --tokens tokens.arrow --work /tmp/16B            # 64 cores, 512 GiB, 235 GiB of disk
    python3 bench/16B.py --launcher launcher --tokens tokens.arrow --work /tmp/16B --layers 3 --batch 16 --steps 4   # a cut

A phase is bf16, mxfp8 (or another recipe), RECIPE-resume, exchange, torch or text. RECIPE trains all steps, saves in the
middle, and is killed after the last one; RECIPE-resume goes on from the middle, and must find the same losses.
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
    parts = [subprocess.Popen([sys.executable, "-c", f"x = b'1' * ({gib} << 30 >> 3); import time; time.sleep(2)"]) for _ in range(8)]
    for p in parts:
        p.wait()


def flags(a, precision, layers=0, **others):
    shape = ["--flavor", "16B", "--seq", a.seq, "--batch", a.batch, "--micro-batch", "1", "--recompute", "selective", "--optimizer.moments", "bf16", "--precision", precision]
    layers = layers or a.layers
    return [*map(str, shape), *(["--model.layers", str(layers)] if layers else []), *a.set.split(), *(x for k, v in others.items() for x in ("--" + k.replace("_", "-"), str(v)))]


def records(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f if line.endswith("}\n")]


def train(a, precision, layers=0, resume=False, last=None, **others):
    """Runs a training run, and kills it after step `last`. Returns seconds to the first step, steps, lines, and the run's end."""
    folder = os.path.join(a.work, precision)
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    base = [a.launcher, "-np", str(a.np), "train", *flags(a, precision, layers, **others), "--data", a.tokens, "--out", folder, "--eval-sequences", "16"]
    base += ["--sample-tokens", "0", "--log-every", "1", "--optimizer.warmup", "1", "--optimizer.lr", "4e-4", "--save-async=false", "--keep", "0"]
    dry = subprocess.run([*base, "--steps", str(a.steps), "--dry-run"], capture_output=True, text=True).stdout
    log, began = os.path.join(a.work, precision + ".log"), time.time()
    command = [*base, *(["--resume"] if resume else []), *([] if "steps" in others else ["--steps", str(a.steps)])]
    with open(log, "w") as out:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while p.poll() is None:
            time.sleep(0.2)
            done = [r["step"]["step"] for r in (records(folder) if os.path.exists(os.path.join(folder, "metrics.jsonl")) else []) if "step" in r and r["step"]["time"] > began]
            if last and last in done:
                p.kill()
                p.wait()
    text = open(log).read()
    if p.returncode not in (0, -9):
        raise SystemExit(f"{' '.join(command)}: exit code {p.returncode}\n{text[-2000:]}")
    every = records(folder)
    new = [r["step"] for r in every if "step" in r and r["step"]["time"] > began]
    return {
        "command": command, "start": new[0]["time"] - new[0]["seconds"] - began, "steps": new, "evals": [r["eval"] for r in every if "eval" in r],
        "facts": next(r["start"] for r in every if "start" in r), "times": next((r["times"] for r in reversed(every) if "times" in r), None),
        "saved": re.findall(r"saved .*", text), "dry": re.findall(r"memory of all ranks: ([^;]*)", dry),
        "bytes": sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files),
    }  # fmt: skip


def phase(a, name):
    if name == "exchange":
        runs = {}
        for _ in range(a.turns):
            for kind in ("onesided", "standard"):
                r = train(a, "bf16", layers=2, steps=3, save_every=0, eval_every=0, ep_exchange=kind)
                runs.setdefault(kind, []).append((r["times"]["families"].get("exchange", 0), r["facts"]["tokens"] / min(s["seconds"] for s in r["steps"])))
        shutil.rmtree(os.path.join(a.work, "bf16"), ignore_errors=True)
        return runs
    if name == "torch":
        cut = str(min(a.layers or 2, 2))
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "turns.py"), "torch", "--launcher", a.launcher, "--no-search", "--threads", str(os.cpu_count()),
                               "--np", str(a.np), "--rounds", "1", "--steps", "1", "--set", "weights=master,attention=256,experts=grouped,optimizer=fused", "--", "--flavor", "16B",
                               "--model.layers", cut, "--seq", str(a.seq), "--batch", str(a.batch)], capture_output=True, text=True, timeout=a.limit)  # fmt: skip
        return {"layers": cut, "text": done.stdout + done.stderr[-500:]}
    recipe = name.removesuffix("-resume")
    half = a.steps // 2
    if name == recipe:
        return train(a, recipe, last=a.steps, save_every=half, eval_every=half)
    r = train(a, recipe, resume=True, save_every=half, eval_every=half)
    shutil.rmtree(os.path.join(a.work, recipe), ignore_errors=True)
    return r


def text(a, found):
    facts = next((v["facts"] for v in found.values() if "facts" in v), None)
    if facts is None:
        return
    print("{cpu}, {cores} cores, {ranks} ranks, {tokens} tokens per step, tier {tier}, peak {peak:.3g} FLOP/s,".format(**facts), platform.platform(), "\n")
    for recipe in [n for n in found if n + "-resume" in found]:
        whole, again = found[recipe], found[recipe + "-resume"]
        print(f"    command: " + ' '.join(whole['command']) + f"\n\n| {recipe} | measured |\n|---|---|")
        rate = [facts["tokens"] / s["seconds"] for s in whole["steps"]]
        old = {s["step"]: s["loss"] for s in whole["steps"]}
        equal = [s["loss"] == old[s["step"]] for s in again["steps"] if s["step"] in old]
        share = 100 * whole["facts"]["flops"] / facts["peak"]
        saves = [s.partition(" in ")[2] for s in whole["saved"] + again["saved"]]
        row = lambda name, values, form="{}", unit="": print(f"| {name} | {', '.join(form.format(*v) if isinstance(v, tuple) else form.format(v) for v in values)}{unit} |")
        row("tokens/s of each step", rate, "{:,.0f}")
        row("MFU", [share * r for r in rate], "{:.1f}", " %")
        row("training loss", old.values(), "{:.4f}", " nats")
        row("validation loss after a step", [(e["step"], e["loss"]) for e in whole["evals"]], "{}: {:.4f}", " nats")
        row("memory of all ranks; the dry run says", [max(s["memory"] for s in whole["steps"]) / 2**30], "{:.1f} GiB; ", "".join(whole["dry"]))
        row("start, and resume, to the first step", [whole["start"], again["start"]], "{:.0f} s")
        row("saves", saves)
        row("bytes of a checkpoint and the run's other files", [whole["bytes"] / 1e9], "{:.1f} GB")
        row("resumed losses that equal the unbroken ones to the last digit", [(sum(equal), len(equal))], "{} of {}")
        if again["times"]:
            total = again["times"]["seconds"]
            parts = sorted(again["times"]["families"].items(), key=lambda part: -part[1])
            row(f"parts of a step of {total:.1f} s", [(n, 100 * t / total) for n, t in parts if t > 0.002 * total], "{} {:.1f}", " %")
        print()
    for kind, rows in found.get("exchange", {}).items():
        print(f"exchange, 2 layers, {kind}: " + "; ".join(f"{1000 * s:.1f} ms of a step, {rate:,.0f} tokens/s" for s, rate in rows))
    if "torch" in found:
        print("\nPyTorch,", found["torch"]["layers"], "layers:\n" + found["torch"]["text"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--launcher", default="launcher")
    p.add_argument("--tokens", required=True)
    p.add_argument("--work", required=True, help="folder of checkpoints and figures")
    p.add_argument("--layers", type=int, default=0, help="0: all 27")
    p.add_argument("--np", type=int, default=8)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--set", default="", help="more flags of the launcher")
    p.add_argument("--grow", type=int, default=0, metavar="GIB", help="write to that much memory first")
    p.add_argument("--limit", type=int, default=300, help="seconds for PyTorch")
    p.add_argument("--turns", type=int, default=2, help="of the two exchanges")
    p.add_argument("--seconds", type=int, default=10**6, help="begin no phase after that time")
    p.add_argument("--phases", default="bf16,bf16-resume,mxfp8,mxfp8-resume,exchange,torch,text")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    first = time.time()
    grow(a.grow)
    kept = os.path.join(a.work, "16B.json")
    found = json.load(open(kept)) if os.path.exists(kept) else {}
    for name in a.phases.split(","):
        if name == "text":
            text(a, found)
            continue
        began = time.time()
        if began - first > a.seconds:
            print(f"{name}: no time left")
            continue
        try:
            found[name] = phase(a, name)
        except (Exception, SystemExit) as e:
            print(f"{name} failed: {type(e).__name__}: {e}", flush=True)
            continue
        print(f"{name}: {time.time() - began:.0f} s", flush=True)
        with open(kept, "w") as f:
            json.dump(found, f)


main()
