#!/usr/bin/python3
"""Predicts the second blind set, blind-runs-2.json: writes predictions-2.json, once.

    python3 bench/projection/predict.py FILE

Each row becomes one run of the formula, or several with weights where its source leaves something
open. Which stack a framework's release is follows from its description, never from a result.
predictions-2.json is a record: a later formula gives other numbers, and nothing makes it again.
"""
import hashlib
import json
import re
import sys

import numpy as np

import effects as fx

# What the file's rows leave open. Deviations are of ln(tokens), beside those of the effects.
HYBRID, SPARSE_ATTENTION, UNKNOWN_FRAMEWORK, OTHER_CHIP_SOFTWARE = 0.18, 0.20, 0.28, 0.15
LEARNED = {  # imbalance of the fullest rank over the mean, by the state of the router
    "warm start": [(1.05, 0.3), (1.15, 0.4), (1.3, 0.3)],
    "random weights": [(1.1, 0.3), (1.25, 0.4), (1.5, 0.3)],
    "trained checkpoint (load": [(1.1, 0.25), (1.3, 0.5), (1.6, 0.25)],
    "pretrained": [(1.15, 0.3), (1.4, 0.4), (1.9, 0.3)],
    "learned from scratch": [(1.05, 0.3), (1.2, 0.4), (1.4, 0.3)],
}
RECOMPUTE = {"norm+act+shared_expert": "layernorm+moe_act+shared_expert"}


def era(release):
    """Year and month of a release, as 2604."""
    if m := re.search(r"20(\d\d)-(\d\d)", release or ""):
        return int(m[1] + m[2])
    if m := re.match(r"(\d\d)\.(\d\d)", release or ""):
        return int(m[1] + m[2])
    return 2607


def graphs_of(more):
    text = more.get("graphs")
    if text is None:
        return None
    return "full" if "full" in text else "none" if "none" in text else "partial"


def megatron(row):
    """Stacks of Megatron-Core by chip, release, dispatcher and overlap, with weights."""
    r, more = row["run"], row.get("more", {})
    dedup, overlap, new = r["dispatcher"] in ("deepep", "hybridep"), more.get("ep_overlap", False), era(row["release"]) >= 2606 or "MLPerf" in row["framework"]
    hopper, dense = r["gpu"] == "H100", r["routing"].startswith("none")
    if more.get("fsdp") or "FSDP" in row["framework"]:
        return {"megatron_fsdp" if dedup or dense else "megatron_fsdp_alltoall": 1.0}
    if dense:
        return {"megatron_dense": 1.0}
    if hopper:
        if overlap:
            return {"megatron_hopper" if dedup else "megatron_hopper_a2a_overlap": 1.0}
        return {"megatron_hopper_exposed": 1.0} if dedup else {"megatron_hopper_alltoall": 1.0}
    if r["precision"] == "nvfp4":
        return {"megatron_nvfp4": 0.5, "megatron_nvfp4_2026_06": 0.5} if new else {"megatron_nvfp4": 1.0}
    if r["dispatcher"] is None and r["ep"] > 1:
        return {"megatron_alltoall_graphs": 0.4, "megatron_dedup": 0.6} if r["gpu"].startswith("GB") else {"megatron_alltoall_graphs": 0.7, "megatron_dedup": 0.3}
    if overlap:
        return {"megatron_2026_06": 0.5, "megatron_overlap": 0.5} if new else {"megatron_overlap": 1.0}
    if new and r["precision"] == "bf16":
        return {"megatron_2026_06_exposed": 0.4, "megatron_dedup": 0.6}
    if new:
        return {"megatron_2026_06_fp8dpa": 0.3, "megatron_2026_06_exposed": 0.3, "megatron_dedup": 0.4}
    return {"megatron_dedup": 1.0}


def primus(row):
    r = row["run"]
    if r["routing"].startswith("none"):
        return {"primus_fsdp" if row.get("more", {}).get("fsdp") else "primus_alltoall": 1.0}
    return {"primus_deepep": 0.5, "primus_tuned": 0.5}


def options(row):
    """Alternatives with their weights."""
    r, more, name = row["run"], row.get("more", {}), row.get("framework") or "TorchTitan one host"
    if name == "TorchTitan one host":
        note = r["note"]
        stack = fx.titan_stack({"compile": note.split("]")[0], "attention": note})
        if "documents" in note:
            stack = "titan_fsdp_documents"
        return [{"stack": stack, "weight": 1.0, "layers": r["layers"]}]
    stacks = {"NeMo AutoModel": {"automodel": 1.0}, "PithTrain": {"pithtrain": 1.0}, "TorchTitan": {"titan_fsdp_compiled": 1.0}}.get(name)
    if stacks is None:
        stacks = primus(row) if "Primus" in name else megatron(row)
    graphs = graphs_of(more)
    several = []
    for stack, weight in stacks.items():
        o = {"stack": stack, "weight": weight, "vp": 1, "pp": 1, "ep": 1}
        if graphs:
            o["graphs"] = graphs
        several.append(o)
    if r["batch"] is None:  # accumulations are not published
        several = [o | {"batch": r["gpus"] // (r["pp"] or 1) * r["micro_batch"] * n, "weight": o["weight"] / 2} for o in several for n in (4, 8)]
    if r["recompute"] is None and "Primus" in name:
        several = [o | {"recompute": p, "weight": o["weight"] / 2} for o in several for p in ("none", "full")]
    if r["recompute"] is None and "671B" in r["model"]:
        several = [o | {"recompute": "mla_up_proj"} for o in several]
    return several


def deviation(row):
    r, name, more = row["run"], row.get("framework") or "", row.get("more", {})
    parts = [0.05]
    if "Nemotron" in r["model"] or "Next" in r["model"]:
        parts.append(HYBRID)
    if "V4" in r["model"]:
        parts.append(SPARSE_ATTENTION)
    if name in ("PithTrain", "TorchTitan"):
        parts.append(UNKNOWN_FRAMEWORK)
    if "Primus" in name:
        parts.append(OTHER_CHIP_SOFTWARE)
    if "AutoModel" in name or "FSDP" in name or more.get("fsdp"):
        parts.append(0.12)
    if "MLPerf" in name or "offload" in more or r["precision"] in ("nvfp4", "mxfp4"):
        parts.append(0.12)
    if r.get("cp", 1) > 1:
        parts.append(0.1)
    return float(np.sqrt(np.square(parts).sum()))


def imbalances(row):
    r = row["run"]
    if r["ep"] == 1:
        return [(1.0, 1.0)]
    if row.get("more", {}).get("capacity"):
        return [(1.1, 1.0)]
    return next((v for k, v in LEARNED.items() if k in r["routing"]), fx.early(r))


def runs_of(row):
    r = dict(row["run"])
    r["recompute"] = RECOMPUTE.get(r["recompute"], r["recompute"])
    r["model"] = {"Llama-3.1-8B": "Llama-3-8B"}.get(r["model"], r["model"])
    r["precision"] = {"mxfp4": "nvfp4"}.get(r["precision"], r["precision"])
    routing = "uniform" if r["routing"].startswith("none") else r["routing"]
    return [(run, o["weight"] * w) for o in options(row) for run, w in fx.with_routing(fx.base_run(r, o), routing, imbalances(row))]


def main():
    rows = fx.load("blind-runs-2.json")["rows"]
    asked = []
    for row in rows:
        half = "training_dtype: bfloat16" in row["run"].get("note", "")  # parameters and moments of 2 bytes
        asked.append({"id": row["id"], "tier": row["tier"], "runs": runs_of(row), "deviation": deviation(row), "set": {"optimizer_bytes": 17, "fsdp_copies": 24} if half else {}})
    _, records, sd, hosts, titans = fx.build()
    answers = fx.evaluate(asked, {k: [v] for k, v in hosts.items()})
    means, deviations = fx.predict(asked, records, sd, hosts)
    out = []
    for row, mean, deviation_ in zip(asked, means, deviations):
        if row["tier"] == "T":  # by the terms alone, as the four rows that were opened
            mean, deviation_ = fx.formula(row, hosts)[0], 0.12 if row["model"] == "16B" else 0.2
        low, high = (float(np.exp(mean + z * deviation_)) for z in (-fx.Z80, fx.Z80))
        out.append({"id": row["id"], "tokens_per_s_per_gpu": round(float(np.exp(mean)), 1), "low": round(low, 1), "high": round(high, 1)})
    text = ",\n".join("  " + json.dumps(r) for r in out)
    whole = f'{{\n "hash": "{hashlib.sha256(text.encode()).hexdigest()}",\n "rows": [\n{text}\n ]\n}}\n'
    if len(sys.argv) > 1:
        open(sys.argv[1], "w").write(whole)
    for tier in "EFGHT":
        mine = [d for r, d in zip(asked, deviations) if r["tier"] == tier]
        print(tier, len(mine), "rows; mean absolute error implied by the intervals", round(float(np.sqrt(2 / np.pi) * np.mean(mine)), 3))
    for row, a, o in zip(rows, asked, out):
        largest = sorted(a["terms"].items(), key=lambda t: -t[1])[:4]
        total = sum(a["terms"].values())
        print(row["id"], row["run"]["model"], row["run"]["gpu"], row["run"]["precision"], o, round(float(np.exp(fx.formula(a, hosts)[0]))), [f"{k} {v/total:.2f}" for k, v in largest], round(a["memory"]))


if __name__ == "__main__":
    main()
