"""Prints what `launcher check` said of the steps of plant.py and parallel.py: python3 bench/referee/score.py results.jsonl ..."""

import collections
import json
import re
import sys


def words(finding):
    causes = [f"{c['name']} {c['says']}" for c in finding.get("causes") or []]
    factor = f"factor {finding['factor']:.3f}" if finding.get("factor") else ""
    return " ".join([*causes, *(finding.get("says") or []), factor])


def main():
    counts = collections.Counter()
    for path in sys.argv[1:]:
        for line in open(path):
            row = json.loads(line)
            if "failed" in row or "report" not in row:
                print(f"{row['case']:60} not judged: {row.get('failed') or row.get('error')}"[:200])
                counts["not judged"] += 1
                continue
            report = row["report"]
            findings = report.get("findings") or []
            strain = max((report.get("strains") or {"": 0}).values(), default=0)
            if row["bug"] is None:
                counts["clean"] += 1
                counts["clean, alarm"] += row["exit"] != 0
                counts["clean, above half"] += row["exit"] == 0 and strain >= 0.5
                first = findings[0]["module"] if findings else ""
                print(f"{row['case']:60} exit {row['exit']}  largest {strain:.2f}  {row['seconds']:6.1f} s  {first}")
                continue
            kind = "float32" if "float32" in row["case"] else "bfloat16"
            first = findings[0] if findings else {}
            found = bool(first) and row["exit"] == 1
            placed = found and bool(re.search(row["where"], first["module"]))
            named = placed and bool(re.search(row["cause"], words(first), re.I))
            for name, yes in (("bugs", True), ("seen", found), ("at the right module", placed), ("named", named)):
                counts[f"{kind}, {name}"] += yes
                for group in ("outliers", "trained", "parallel"):
                    counts[f"{group}, {name}"] += yes and group in row["case"]
            causes = ", ".join(c["name"] for c in first.get("causes") or [])
            print(f"{row['case']:60} exit {row['exit']}  {'found' if placed else 'ELSEWHERE' if found else 'NOT SEEN':9} {'named' if named else '-':5} {row['seconds']:6.1f} s  {first.get('module', '')}: {causes}")
    for name, n in counts.items():
        print(f"{name:40} {n}")


if __name__ == "__main__":
    main()
