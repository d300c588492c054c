#!/usr/bin/env python3
"""Sums up the comparisons in this folder: Holm's correction, repeated arms, differences over tokens.

    studies.py                 prints the tables of README.md
    studies.py check           computes all stored numbers and verdicts again from the stored runs
    studies.py run STUDY OUT   runs the command of a study again: launcher compare
"""
import collections
import contextlib
import csv
import gzip
import json
import math
import os
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
STUDIES = ["300K", "300K-nvfp4", "300K-100-seeds", "wide-fp8", "wide-mxfp4"]
SPAN = 50  # steps per row of losses.csv.gz
PART = "mxfp4-e2m1+"
# Comparisons of two arms that plans name, the first one as the baseline.
BETWEEN = {
    "wide-fp8": [("fp8-tensor+h100", "fp8-tensor+h100-nopromotion")],
    "wide-mxfp4": [(PART + "forward-only", PART + "wgrad-only"), (PART + "dgrad-only", PART + "wgrad-only")]
    + [(PART + "wgrad-only", PART + "wgrad-only+" + remedy) for remedy in ("hadamard", "rht", "stochastic")],
}
Arm = collections.namedtuple("Arm", "study name training validation p")


def tail(t, n):
    """The probability that Student's t with n degrees of freedom is above t > 0, by Simpson's rule over the angle."""
    top, steps = math.atan(t / math.sqrt(n)), 2000
    h = (math.pi / 2 - top) / steps
    f = [math.cos(top + i * h) ** (n - 1) for i in range(steps + 1)]
    area = h / 3 * (f[0] + f[-1] + 4 * sum(f[1:-1:2]) + 2 * sum(f[2:-1:2]))
    return area * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi)


class Sample:
    """The mean of differences, its interval of 95 % and p of the t-test against zero."""

    def __init__(self, xs):
        self.xs, n = xs, len(xs)
        self.mean = sum(xs) / n
        self.error = math.sqrt(sum((x - self.mean) ** 2 for x in xs) / (n - 1) / n)
        low, high = 0, 100
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, n - 1) > 0.025 else (low, middle)
        self.low, self.high = self.mean - low * self.error, self.mean + low * self.error
        self.p = 2 * tail(abs(self.mean) / self.error, n - 1)

    def equivalence(self, margin):
        """The larger p of two one-sided t-tests against the margin."""
        t = (margin - abs(self.mean)) / self.error
        return tail(t, len(self.xs) - 1) if t > 0 else 1 - tail(-t, len(self.xs) - 1)

    def __str__(self):
        return f"{100 * self.mean:+.2f} % ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


def pairs(base, other, loss):
    of = {run["seed"]: run[loss] for run in base["runs"]}
    return [run[loss] / of[run["seed"]] - 1 for run in other["runs"] if run["seed"] in of]


def compare(study, base, other, name):
    samples = [Sample(pairs(base, other, loss)) for loss in ("train_loss", "held_out_loss")]
    return Arm(study, name, *samples, min(1, 2 * min(s.p for s in samples)))  # two losses may show a difference


def holm(family):
    """p corrected for the family, by name (Holm, 1979)."""
    least, corrected = 0, {}
    for i, a in enumerate(sorted(family, key=lambda a: a.p)):
        least = corrected[a.name] = max(least, min(1, (len(family) - i) * a.p))
    return corrected


def losses(path):
    """The losses by arm and seed."""
    read = collections.defaultdict(lambda: collections.defaultdict(list))
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            read[row["arm"]][row["seed"]].append(float(row["loss"]))
    return read


def behind(base, other):
    """How many steps before its end the baseline had the other's final loss, by mean courses."""
    seeds = [s for s in other if len(base.get(s, [])) == len(other[s])]
    b, o = ([sum(of[s][i] for s in seeds) / len(seeds) for i in range(len(of[seeds[0]]))] for of in (base, other))
    for i in range(len(b) - 1, 0, -1):
        if o[-1] <= b[i]:
            return SPAN * (len(b) - 1 - i)
        if o[-1] <= b[i - 1]:
            return SPAN * (len(b) - 1 - i + (o[-1] - b[i]) / (b[i - 1] - b[i]))
    return SPAN * (len(b) - 1)


def result(study):
    with open(os.path.join(HERE, study, "result.json")) as file:
        return json.load(file)


def tables():
    results = {study: result(study) for study in STUDIES}
    print("| study | arm | seeds | training, 95 % | validation, 95 % | p | p by Holm | verdict |\n|---|---|---|---|---|---|---|---|")
    for study, r in results.items():
        base, named = r["arms"][0], {a["name"]: a for a in r["arms"]}
        families = [[compare(study, base, a, a["name"]) for a in r["arms"][1:]],
                    [compare(study, named[a], named[b], f"{b} against {a}") for a, b in BETWEEN.get(study, [])]]
        for family in families:
            corrected = holm(family)
            for a in family:
                verdict = named.get(a.name, {"verdict": ""})["verdict"]
                print(f"| {study} | {a.name} | {len(a.training.xs)} | {a.training} | {a.validation} | {a.p:.2g} | {corrected[a.name]:.2g} | {verdict} |")
    print("\n| both studies of 300K at 8e-3 | seeds | training, 95 % | validation, 95 % |\n|---|---|---|---|")
    first, second = (results[s]["arms"] for s in STUDIES[:2])
    for one in first[1:]:
        for two in second[1:]:
            if one["name"] == two["name"]:
                both = [Sample(pairs(first[0], one, loss) + pairs(second[0], two, loss)) for loss in ("train_loss", "held_out_loss")]
                print(f"| {one['name']} | {len(both[0].xs)} | {both[0]} | {both[1]} |")
    print("\n| study | arm | gap in % by eighths of the run | steps, M tokens behind |\n|---|---|---|---|")
    for study, r in results.items():
        path, tokens = os.path.join(HERE, study, "losses.csv.gz"), r["setup"]["batch"] * r["setup"]["seq"] / 1e6
        course = losses(path) if os.path.exists(path) else {}
        for a in r["arms"][1:]:
            late = ""
            if course:
                n = behind(course[r["arms"][0]["name"]], course[a["name"]])
                late = f"{n:.0f}, {n * tokens:.2f} of {r['setup']['steps'] * tokens:.2f} "
            print(f"| {study} | {a['name']} | {' '.join(format(100 * w['mean'], '+.2f') for w in a['course'])} | {late}|")


def verdict(r, samples):
    """The verdict of a plan on an arm, at the levels of the look after its seeds."""
    seeds, last, margin = len(samples[0].xs), r["looks"][-1]["seeds"], r["margin"]
    look = next(look for look in r["looks"] if look["seeds"] == seeds)
    if all(s.equivalence(margin) < look["equivalence_level"] for s in samples):
        return "equivalent"
    different = any(s.p < look["difference_level"] and (seeds == last or abs(s.mean) >= margin) for s in samples)
    return "different" if different else "undecided"


def check():
    def same(what, stored, computed):
        if stored != computed and not (isinstance(stored, float) and abs(stored - computed) <= 1e-6):
            sys.exit(f"{what} is stored as {stored} and computed as {computed}")

    for study in STUDIES:
        r, seen, records = result(study), 0, os.path.join(HERE, study, "records.tar.xz")
        for a in r["arms"][1:]:
            samples = [Sample(pairs(r["arms"][0], a, loss)) for loss in ("train_loss", "held_out_loss")]
            for s, stored in zip(samples, (a["train"], a["held_out"])):
                same(f"{study}, mean of {a['name']}", stored["mean"], s.mean)
                same(f"{study}, p of {a['name']}", stored["p"], s.equivalence(r["margin"]))
            same(f"{study}, verdict on {a['name']}", a["verdict"], verdict(r, samples))
        runs = {f"study/{a['name']}/seed-{run['seed']}/metrics.jsonl": run for a in r["arms"] for run in a["runs"]}
        with tarfile.open(records) if os.path.exists(records) else contextlib.nullcontext([]) as archive:
            for member in archive:
                if run := runs.get(member.name):  # not of a seed after the look that decided the arm
                    lines = [json.loads(line) for line in archive.extractfile(member)]
                    last = [line["step"]["loss"] for line in lines if "step" in line][-r["setup"]["tail"]:]
                    same(member.name + ", training loss", run["train_loss"], sum(last) / len(last))
                    same(member.name + ", validation loss", run["held_out_loss"], lines[-1]["done"]["held_out_loss"])
                    seen += 1
        print(f"{study}: as stored are {len(r['arms']) - 1} arms and {len(runs)} runs, {seen} computed from the losses of all steps")


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        check()
    elif sys.argv[1:2] == ["run"] and len(sys.argv) == 4:
        command = result(sys.argv[2])["command"].replace("--until-decided --max-seeds", "--seeds").split()  # today there is one look
        command[command.index("--out") + 1] = os.path.abspath(sys.argv[3])
        sys.exit(subprocess.call(command, cwd=os.path.join(HERE, sys.argv[2])))  # plans name files of their folder
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
