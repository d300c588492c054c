#!/usr/bin/python3
"""Writes data/effects.json: what published rows say about the formula, and how far it is off.

    python3 bench/projection/effects.py           (Python 3 and numpy, as in Debian's python3-numpy)
    python3 bench/projection/effects.py --check   fails if the file would change

A row's residual y = ln(published / formula) is a sum of effects that rows share: all rows, a
framework, a family of models, a model, a generation of GPUs, a GPU, a cluster (model, GPU and
framework), and the row itself. Each effect is normal with one standard deviation per kind; these are chosen by maximum
likelihood. The best linear unbiased prediction of the effects corrects a run (Henderson 1975).

Scores leave out one cluster at a time, with its rows in published.json, and choose deviations and
the hosts' times without it.
"""
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
from fnmatch import fnmatch

import numpy as np

HERE = pathlib.Path(__file__).parent
Z80 = 1.2815515655446004
KINDS = ["common", "framework", "family", "model", "generation", "gpu", "cluster", "row"]
START = {"common": 0.1, "framework": 0.08, "family": 0.1, "model": 0.14, "generation": 0.06, "gpu": 0.06, "cluster": 0.08, "row": 0.08}
# The formula was written with rows of these families at hand. For others all errors of the first
# test had one sign.
KNOWN_FAMILIES = {"DeepSeek-V3", "DeepSeek-V2", "Qwen3"}
NEW_FAMILY, NEW_FAMILY_SD = -0.15, 0.20
# Microseconds per call of hosts that no kernel time gives: chosen with the deviations.
HOSTS = {"MI355X": [25, 40, 55, 71, 90, 110], "Grace": [33, 39, 45, 51, 57]}
TIERS = {"A": "DeepSeek-V3", "B": "DeepSeek-V2 and Kimi-K2", "C": "Qwen3", "D": "other families and NVFP4", "T": "TorchTitan on one H100 host"}


def load(name):
    return json.loads((HERE / name).read_text())


def ask(questions):
    """The formula's answers, in the order of the questions."""
    text = "\n".join(json.dumps(q) for q in questions)
    out = subprocess.run(["go", "run", "./rows"], input=text, cwd=HERE, capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return [json.loads(line) for line in out.stdout.splitlines()]


def host_of(gpu):
    return "MI355X" if gpu.upper() == "MI355X" else "Grace" if gpu.upper().startswith("GB") else None


# ---- rows as runs of the formula ----

POLICIES = {None: None, "norm, act": "layernorm+moe_act", "selective (core attention)": "core_attn"}
IMBALANCES = [(1.2, 0.25), (1.6, 0.5), (2.2, 0.25)]  # of a router's first hundred steps
BIASED = [(1.1, 0.25), (1.3, 0.5), (1.6, 0.25)]  # the same, balanced by a bias as DeepSeek-V3's


def base_run(r, option):
    """A row's run, with an option's settings where the row has none."""
    run = {k: r[k] for k in ("model", "gpu", "gpus", "precision", "seq", "tp")}
    run |= {"mtp": bool(r.get("mtp")), "duplicate": 1, "stack": option["stack"]}
    for k, default in (("batch", None), ("micro_batch", None), ("pp", None), ("vp", 1), ("ep", None)):
        run[k] = r[k] if r[k] is not None else option.get(k, default)
    policy = POLICIES.get(r["recompute"], r["recompute"]) or option.get("recompute", "none")
    run |= {"recompute": policy}
    for k in ("graphs", "layers"):
        if option.get(k):
            run[k] = option[k]
    if r.get("deterministic"):
        run["deterministic"] = True
    if r.get("cp", 1) > 1:
        run["cp"] = r["cp"]
    return run


def early(r):
    return BIASED if r["model"].startswith(("671B", "Kimi", "Moonlight", "DeepSeek")) else IMBALANCES


def with_routing(run, routing, imbalances):
    """The run with each imbalance that its routing may have, and weights."""
    if routing.startswith(("natural", "learned")):
        return [(run | {"routing": "natural", "imbalance": i}, w) for i, w in imbalances]
    forced = "fake gate" in routing or "round-robin" in routing
    return [(run | {"routing": "round_robin" if forced else "uniform"}, 1.0)]


def opened():
    """The first test's rows, which are records now."""
    entries = load("software.json")["entries"]
    for row in load("opened-runs.json")["rows"]:
        published = row["published"] or (row.get("tokens_from_step") if row["id"].startswith("card-dsv4") else None)
        if not published:
            continue  # GPT-OSS with natural routing: layout and batch are not published
        entry = next(e for e in entries if any(fnmatch(row["id"], p) for p in e["rows"]))
        runs = [(run, w * o.get("weight", 1)) for o in entry["options"] for run, w in with_routing(base_run(row["run"], o), row["run"]["routing"], early(row["run"]))]
        yield {"id": row["id"], "tier": row["tier"], "published": published, "runs": runs, "deviation": entry.get("deviation", 0.0)}


def published():
    """Rows that were known before: those whose layouts are published."""
    for row in load("data/published.json")["rows"]:
        if (row["group"] in ("H2", "H3", "H4") or row["id"] == "titan-h100-deepep") and not row.get("assumed"):
            yield {"id": row["id"], "tier": "", "published": row["published"], "runs": [(row["run"], 1.0)], "deviation": 0.0}


def titan_stack(settings):
    compiled = "model" in settings["compile"]
    return "titan_fsdp" + ("_compiled" if compiled else "") + ("_sdpa" if "sdpa" in settings["attention"] else "")


def titan():
    """Four runs measured on H100, for which no effect is fitted: their terms are."""
    for row in load("measured-torchtitan-h100.json")["rows"]:
        s = row["settings"]
        policy = "titan_op" if "selective" in s["activation_checkpoint"] else "full"
        run = {"model": s["flavor"], "gpu": "H100", "gpus": s["gpus"], "precision": "bf16", "seq": s["seq"], "batch": s["global_batch"],
               "micro_batch": s["local_batch"], "mtp": False, "tp": 1, "pp": 1, "vp": 1, "ep": s["ep"], "layers": s["layers"], "recompute": policy,
               "stack": titan_stack(s), "routing": "round_robin", "duplicate": 1}
        yield {"id": row["row"], "tier": "T", "published": row["measured"]["tokens_per_s_per_gpu"], "runs": [(run, 1.0)], "deviation": 0.0}


def evaluate(rows, hosts=HOSTS):
    """Adds to each row the formula's ln(tokens) by host time, its spread over alternatives, and traits."""
    questions, places = [], []
    for row in rows:
        times = hosts.get(host_of(row["runs"][0][0]["gpu"]), [None])
        for us in times:
            for run, weight in row["runs"]:
                places.append((row, us, weight))
                questions.append({"id": row["id"], "run": run | ({"host_us": us} if us else {}), "set": row.get("set", {})})
    answers = ask(questions)
    for row in rows:
        row["formula"] = {}
    for (row, us, weight), a in zip(places, answers):
        row["formula"].setdefault(us, []).append((np.log(a["tokens"]), weight))
        row.setdefault("terms", a["terms"])
        row |= {k: a[k] for k in KINDS[1:-2]}
        row |= {"memory": a["memory"], "mfu": np.log(a["mfu"] / a["tokens"])}  # ln of MFU per token/s
    for row in rows:
        row["cluster"] = f"{row['model']} on {row['gpu']}, {row['framework']}"
        for us, list_ in row["formula"].items():
            x, w = np.array(list_).T
            w = w / w.sum()
            mean = float(w @ x)
            row["formula"][us] = mean, float(w @ (x - mean) ** 2)
    return answers


# ---- effects ----

def formula(row, hosts):
    return row["formula"][hosts.get(host_of(row["gpu"]))]


def levels(rows):
    return {k: np.array(["" if k == "common" else r.get(k, "") for r in rows]) for k in KINDS[:-1]}


def prior_mean(rows):
    return np.array([0.0 if r["family"] in KNOWN_FAMILIES else NEW_FAMILY for r in rows])


def covariance(a, b, sd):
    """Of the residuals of rows a and b, without what a row has alone."""
    la, lb = levels(a), levels(b)
    k = sum(sd[kind] ** 2 * (la[kind][:, None] == lb[kind][None, :]) for kind in KINDS[:-1])
    new = np.array([r["family"] not in KNOWN_FAMILIES for r in a])[:, None]
    extra = max(NEW_FAMILY_SD ** 2 - sd["family"] ** 2 - sd["model"] ** 2, 0)
    return k + extra * new * (la["family"][:, None] == lb["family"][None, :])


def noise(rows, sd, hosts):
    return np.array([sd["row"] ** 2 + r["deviation"] ** 2 + formula(r, hosts)[1] for r in rows])


def residuals(rows, hosts):
    return np.array([np.log(r["published"]) - formula(r, hosts)[0] for r in rows]) - prior_mean(rows)


def likelihood(rows, sd, hosts):
    k = covariance(rows, rows, sd) + np.diag(noise(rows, sd, hosts))
    y = residuals(rows, hosts)
    low = np.linalg.cholesky(k)
    z = np.linalg.solve(low, y)
    return -0.5 * z @ z - np.log(np.diag(low)).sum()


def choose(rows):
    """Hosts' times and deviations of maximum likelihood, by search along one axis at a time."""
    sd = dict(START)
    hosts = dict(max((dict(zip(HOSTS, c)) for c in itertools.product(*HOSTS.values())), key=lambda h: likelihood(rows, sd, h)))
    for factor in (1.5, 1.2):
        for _ in range(2):
            for kind in KINDS[1:]:
                tries = [sd | {kind: min(max(sd[kind] * f, 0.02), 0.3)} for f in (1 / factor, 1, factor)]
                sd = max(tries, key=lambda s: likelihood(rows, s, hosts))
    return sd, hosts


def predict(rows, given, sd, hosts):
    """Mean and deviation of ln(tokens) of rows, from given rows."""
    k = covariance(given, given, sd) + np.diag(noise(given, sd, hosts))
    c = covariance(rows, given, sd)
    w = np.linalg.solve(k, c.T).T
    mean = np.array([formula(r, hosts)[0] for r in rows]) + prior_mean(rows) + w @ residuals(given, hosts)
    variance = np.diag(covariance(rows, rows, sd)) - np.einsum("ij,ij->i", w, c) + noise(rows, sd, hosts)
    return mean, np.sqrt(variance)


def leave_out(records):
    """Predicts each cluster of the opened rows from the other clusters."""
    for name in dict.fromkeys(r["cluster"] for r in records if r["tier"] in "ABCD" and r["tier"]):
        rest = [r for r in records if r["cluster"] != name]
        rows = [r for r in records if r["cluster"] == name and r["tier"]]
        sd, hosts = choose(rest)
        for row, mean, deviation in zip(rows, *predict(rows, rest, sd, hosts)):
            row |= {"mean": mean, "sd": deviation}


def baselines(rows, known):
    """Mean absolute errors of three rules that know published.json: one MFU per precision, one per GPU
    and precision, and the MFU of the row that has most in common."""
    def quantized(r):
        return r["runs"][0][0]["precision"] != "bf16"

    for r in known:
        r["ln_mfu"] = np.log(r["published"]) + r["mfu"]
    errors = []
    for r in rows:
        alike = [k for k in known if quantized(k) == quantized(r)] or known
        own = [k for k in alike if k["gpu"] == r["gpu"]] or alike
        shared = [sum(k[t] == r[t] for t in ("model", "family", "gpu", "framework")) + (quantized(k) == quantized(r)) for k in known]
        nearest = [k for k, n in zip(known, shared) if n == max(shared)]
        errors.append([abs(np.mean([k["ln_mfu"] for k in group]) - r["mfu"] - np.log(r["published"])) for group in (alike, own, nearest)])
    return [number(e) for e in np.mean(errors, axis=0)]


def number(x):
    return float(f"{x:.3g}")


def tier(name, rows, blind):
    error = np.array([r["mean"] - np.log(r["published"]) for r in rows])
    inside = np.array([abs(e) <= Z80 * r["sd"] for e, r in zip(error, rows)])
    first = np.array([np.log(blind[r["id"]]["tokens_per_s_per_gpu"] / r["published"]) for r in rows if r["id"] in blind] or [0.0])
    held = np.mean([blind[r["id"]]["low"] <= r["published"] <= blind[r["id"]]["high"] for r in rows if r["id"] in blind] or [0.0])
    return {"tier": name, "about": TIERS.get(name, "all rows of the first test"), "rows": len(rows), "clusters": len({r["cluster"] for r in rows}),
            "blind": number(np.abs(first).mean()), "blind_bias": number(first.mean()), "blind_inside": number(held), "error": number(np.abs(error).mean()), "bias": number(error.mean()), "inside": number(inside.mean())}


def steps():
    """Deviation of a step of a ladder from the published figure before it, for layouts that are known."""
    rows = {r["id"]: r for r in load("data/published.json")["rows"]}
    known = [r for r in rows.values() if r["group"] == "H1" and not r.get("assumed")]
    answers = ask([{"id": r["id"], "run": r["run"], "from": rows[r["from"]]["run"], "tokens": rows[r["from"]]["published"]} for r in known])
    return np.sqrt(np.mean([np.log(a["tokens"] / r["published"]) ** 2 for a, r in zip(answers, known)]))


def effects(records, sd, hosts):
    """The best linear unbiased predictions of all effects."""
    k = covariance(records, records, sd) + np.diag(noise(records, sd, hosts))
    solved = np.linalg.solve(k, residuals(records, hosts))
    out = {"common": number(sd["common"] ** 2 * solved.sum())}
    for kind in KINDS[1:-1]:
        out[kind] = {}
        for level in sorted({r[kind] for r in records}):
            mine = np.array([r[kind] == level for r in records])
            variance, mean = sd[kind] ** 2, 0.0
            if kind == "family" and level not in KNOWN_FAMILIES:
                variance, mean = variance + max(NEW_FAMILY_SD ** 2 - variance - sd["model"] ** 2, 0), NEW_FAMILY
            out[kind][level] = number(mean + variance * solved[mine].sum())
    return out


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def build():
    records = [*published(), *opened(), *titan()]
    answers = evaluate(records)
    titans, records = [r for r in records if r["tier"] == "T"], [r for r in records if r["tier"] != "T"]
    leave_out(records)
    for r in titans:  # by the terms alone
        r |= {"mean": formula(r, {})[0], "sd": 0.1}
    sd, hosts = choose(records)
    blind = {r["id"]: r for r in load("predictions.json")["rows"]}
    scored = [r for r in records if r["tier"]]
    by_tier = [tier(t, [r for r in scored if r["tier"] == t], blind) for t in "ABCD"] + [tier("all", scored, blind), tier("T", titans, blind)]
    _, own = predict(scored, records, sd, hosts)
    left = np.array([r["sd"] for r in scored])
    inputs = ("data/published.json", "opened-runs.json", "measured-torchtitan-h100.json", "predictions.json", "software.json")
    out = {
        "about": "Written by effects.py from published rows and the formula's answers for them. Effects are logarithms of throughput over the formula's.",
        "inputs": {name: digest((HERE / name).read_text()) for name in inputs},
        "formula": digest("\n".join(f"{a['id']} {a['tokens']:.5g}" for a in answers)),
    } | effects(records, sd, hosts) | {
        "new_family": NEW_FAMILY, "sd_model": number(np.median(own)), "sd_family": number(np.median(left)),
        "sd_none": number(np.sqrt(NEW_FAMILY_SD ** 2 + sd["common"] ** 2 + sd["gpu"] ** 2 + sd["cluster"] ** 2 + sd["row"] ** 2)), "sd_step": number(steps()),
        "deviations": {k: number(v) for k, v in sd.items()}, "host_us": hosts,
        "baselines": baselines(scored, [r for r in records if not r["tier"]]), "tiers": by_tier,
        "rows": [{"id": r["id"], "tier": r["tier"], "published": r["published"], "predicted": number(np.exp(r["mean"])),
                  "low": number(np.exp(r["mean"] - Z80 * r["sd"])), "high": number(np.exp(r["mean"] + Z80 * r["sd"]))} for r in scored + titans],
    }
    return out, records, sd, hosts, titans


def text_of(out):
    rows = ",\n".join("  " + json.dumps(r) for r in out["rows"])
    tiers = ",\n".join("  " + json.dumps(t) for t in out["tiers"])
    head = json.dumps({k: v for k, v in out.items() if k not in ("rows", "tiers")}, indent=1)
    return f'{head[:-2]},\n "tiers": [\n{tiers}\n ],\n "rows": [\n{rows}\n ]\n}}\n'


def main():
    out, *_ = build()
    text, path = text_of(out), HERE / "data/effects.json"
    if "--check" in sys.argv and path.read_text() != text:
        sys.exit(f"{path} would change: run {__file__} and commit it")
    path.write_text(text)
    for t in out["tiers"]:
        print(" ".join(f"{k} {v}" for k, v in t.items() if k != "about"))


if __name__ == "__main__":
    main()
