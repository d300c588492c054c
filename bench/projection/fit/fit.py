#!/usr/bin/python3
"""Fits the constants of the projection to published runs, and says how far it is off without them.

    python3 bench/projection/fit/fit.py          (Python 3 and numpy, as in Debian's python3-numpy)
    python3 bench/projection/fit/fit.py --dry    prints the scores and writes nothing

It writes the fitted values into data/constants.json, and data/scores.json. The formula itself is in
Go: the program beside this script evaluates it. A constant has a normal prior of its logarithm (or
of itself, if linear). A row's residual is ln(published / formula); beyond twice SIGMA it counts
linearly, so that one odd row does not bend a constant. The fit is the maximum of the posterior, by
Gauss-Newton steps with numeric derivatives.

Scores leave out each framework in turn and fit all constants without it. An interval's half width is
a percentile of such errors over the rows of the same kind, drawn towards that of all rows if the
kind has few; to score intervals, widths too are taken from the other frameworks.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data"
SIGMA = 0.25  # of a row: that of frameworks left out, because rows of one framework are alike
LEVEL = 0.84  # of errors that an 80 % interval holds: those of one framework go together, and 0.8 would hold 76 %
STRENGTH = 15  # rows of a kind that weigh as much in its width as all rows together
MEGATRON_CORE = {"Megatron-Bridge", "Megatron-LM", "Megatron-MoE-ModelZoo", "MLPerf-NeMo", "Megatron-FSDP"}


class Formula:
    """The Go program, asked for ln(tokens/s per GPU) of all rows."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        program = pathlib.Path(self.folder.name) / "fit"
        subprocess.run(["go", "build", "-o", program, "."], cwd=HERE, check=True)
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = json.loads(self.process.stdout.readline())
        self.rows, self.kinds = first["rows"], np.array(first["kinds"])

    def __call__(self, values):
        self.process.stdin.write(json.dumps([float(v) for v in values]) + "\n")
        self.process.stdin.flush()
        return np.array(json.loads(self.process.stdout.readline()))


class Fit:
    def __init__(self):
        self.formula = Formula()
        self.rows, self.kinds = self.formula.rows, self.formula.kinds
        self.published = np.log([r["published"] for r in self.rows])
        self.framework = np.array([r["framework"] for r in self.rows])
        self.table = json.loads((DATA / "constants.json").read_text())
        self.free = [c for c in self.table if c["deviation"] > 0]
        self.prior = np.array([c["prior"] if c.get("linear") else np.log(c["prior"]) for c in self.free])
        self.deviation = np.array([c["deviation"] for c in self.free])

    def values(self, point):
        """All constants of the table, from the free ones."""
        free = {c["name"]: float(p if c.get("linear") else np.exp(p)) for c, p in zip(self.free, point)}
        return [free.get(c["name"], c["prior"]) for c in self.table]

    def predict(self, point):
        return self.formula(self.values(point))

    def solve(self, keep):
        """The most probable constants given the rows to keep."""
        point, step = self.prior.copy(), 1e-4
        for _ in range(20):
            at = self.predict(point)
            slopes = np.stack([(self.predict(point + step * unit) - at) / step for unit in np.eye(len(point))], axis=1)[keep]
            residual = (self.published - at)[keep]
            weight = np.minimum(1, 2 * SIGMA / np.maximum(np.abs(residual), 1e-9)) / SIGMA**2
            hessian = slopes.T @ (slopes * weight[:, None]) + np.diag(self.deviation**-2)
            gradient = slopes.T @ (residual * weight) - (point - self.prior) / self.deviation**2
            move = np.clip(np.linalg.solve(hessian, gradient), -0.5, 0.5)
            point = point + move
            if np.abs(move).max() < 1e-3:
                break
        return point, np.sqrt(np.diag(np.linalg.inv(hessian)))

    def error_without(self, out):
        """ln(predicted / published) of all rows, fitted to those that are not out."""
        return self.predict(self.solve(~out)[0]) - self.published


def widths(errors, kinds):
    """Half the logarithmic width of an 80 % interval, by kind of run, and that of an unknown kind."""
    common, half = np.quantile(np.abs(errors), LEVEL), {}
    for kind in np.unique(kinds):
        mine = np.abs(errors[kinds == kind])
        half[str(kind)] = float((len(mine) * np.quantile(mine, LEVEL) + STRENGTH * common) / (len(mine) + STRENGTH))
    return half, float(common)


def score(name, mask, errors, half):
    e = errors[mask]
    return {"name": name, "rows": int(mask.sum()), "error": round(float(np.abs(e).mean()), 4), "bias": round(float(e.mean()), 4),
            "inside": round(float((np.abs(e) <= half[mask]).mean()), 3), "width": round(float(2 * half[mask].mean()), 3)}


def half_widths(errors, kinds, groups):
    """The half width of each row's interval, from the rows of other groups."""
    half = np.zeros(len(errors))
    for group in np.unique(groups):
        out = groups == group
        own, other = widths(errors[~out], kinds[~out])
        half[out] = [own.get(str(k), other) for k in kinds[out]]
    return half


def family(model):
    """Models that share an architecture."""
    for name in ("Qwen3-Next", "Qwen3", "GPT-OSS", "Nemotron", "Llama", "Mixtral", "DeepSeek-V4"):
        if model.startswith(name):
            return name
    return "DeepSeek-V3"  # with V2, Kimi-K2, Moonlight


def left_out(fit, groups):
    errors = np.zeros(len(fit.rows))
    for group in np.unique(groups):
        out = groups == group
        errors[out] = fit.error_without(out)[out]
    return errors


def main():
    fit = Fit()
    point, deviations = fit.solve(np.ones(len(fit.rows), bool))
    fitted = fit.predict(point) - fit.published
    errors = left_out(fit, fit.framework)
    half = half_widths(errors, fit.kinds, fit.framework)

    run = [r["run"] for r in fit.rows]
    blind = np.array([r["set"] > 0 for r in fit.rows])
    core = np.isin(fit.framework, list(MEGATRON_CORE))
    plain = ~np.isin(fit.kinds, ["AMD", "sparse attention"])
    everything = np.ones(len(fit.rows), bool)
    scores = [score("fitted, none left out", everything, fitted, half), score("each framework left out", everything, errors, half),
              score("the same, blind sets", blind, errors, half), score("the same, blind sets without AMD and DeepSeek-V4", blind & plain, errors, half)]
    together = fit.error_without(core)
    others = half_widths(errors, fit.kinds, np.where(core, "Megatron-Core", fit.framework))
    scores += [score("all of Megatron-Core left out", core, together, others), score("the same, blind sets, Megatron-Core", blind & core, together, others)]
    families = np.array([family(r["model"]) for r in run])
    by_family = left_out(fit, families)
    scores.append(score("each family of models left out", everything, by_family, half_widths(by_family, fit.kinds, families)))
    sets = np.array([r["set"] for r in fit.rows])
    by_set = left_out(fit, sets)
    for number in (1, 2):
        scores.append(score(f"blind set {number} left out", sets == number, by_set, half_widths(by_set, fit.kinds, sets)))
    for name in np.unique(fit.framework):
        scores.append(score("framework " + name, fit.framework == name, errors, half))
    for kind in np.unique(fit.kinds):
        scores.append(score("kind " + kind, fit.kinds == kind, errors, half))
    for name in np.unique(families):
        scores.append(score("family " + name + ", itself left out", families == name, by_family, half))
    for s in scores:
        print(f"{s['name']:52s} {s['rows']:4d} rows, error {100 * s['error']:5.1f} %, bias {100 * s['bias']:+6.1f} %, inside {100 * s['inside']:5.1f} %, width {s['width']:.2f}")
    for c, v, d in zip(fit.free, point, deviations):
        print(f"{c['name']:16s} prior {c['prior']:<6g} ± {c['deviation']:<4g} -> {v if c.get('linear') else np.exp(v):.4g} ± {d:.2f}")
    if "--dry" in sys.argv:
        return
    for c, v in zip(fit.table, fit.values(point)):
        c["value"] = float(f"{v:.4g}")
    text = lines(fit.table)
    (DATA / "constants.json").write_text(text)
    own, _ = widths(errors, fit.kinds)
    fitted = fit.formula([c["value"] for c in fit.table]) - fit.published
    rows = {r["id"]: [round(float(f), 4), round(float(e), 4)] for r, f, e in zip(fit.rows, fitted, errors)}
    parts = {"constants": hashlib.sha256(text.encode()).hexdigest(), "widths": {k: round(v, 3) for k, v in own.items()}, "groups": scores, "rows": rows}
    (DATA / "scores.json").write_text("{\n" + ",\n".join(f' "{k}": {spread(v)}' for k, v in parts.items()) + "\n}\n")


def lines(table):
    """JSON with a line for each element."""
    return "[\n" + ",\n".join(" " + json.dumps(c, ensure_ascii=False) for c in table) + "\n]\n"


def spread(value):
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
    return lines(value).strip() if isinstance(value, list) else json.dumps(value)


if __name__ == "__main__":
    main()
