"""Where the CPU time of each role goes: lines of the ledger, measured, with the prediction beside.

python benchmarks/profiles.py [EXPERIMENT ...] [--repeats 3] [--cluster local] [--out FILE.md]

Every strategy of the experiments is run ``--repeats`` times, in turn, and predicted once. Figures
are microseconds of CPU for one example: medians of the repeats, lines by role, dearest first, and
the share of all CPU time. Below stands what is neither an operation nor the making of batches.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

from recsim_train.calls import Run, load, measure, predict
from recsim_train.results import environment
from recsim_train.trace.ledger import AROUND

LEAST = 0.01
"""Share of all CPU time that a line needs for a row."""
Profile = dict[tuple[str, str], float]
"""Microseconds of CPU for one example by (role, what); what no line has under ("", "")."""


def profile(run: Run) -> Profile:
    ledger, rate = run.record.summary.facts.ledger, run.examples_per_second
    assert ledger is not None
    assert rate
    whole = 1e6 * ledger.cores_busy / rate
    rows = {**ledger.rows(), ("", ""): ledger.remainder}
    return {key: whole * seconds / ledger.total for key, seconds in rows.items()}


def median(profiles: list[Profile]) -> Profile:
    keys = {key for found in profiles for key in found}
    return {key: statistics.median(p.get(key, 0.0) for p in profiles) for key in keys}


def around(found: Profile) -> float:
    """Share of what is around operations and the making of batches."""
    whole = sum(found.values())
    return sum(x for (role, what), x in found.items() if not role or what in AROUND) / whole


def page(name: str, measured: list[Profile], predicted: Profile) -> list[str]:
    middle = median(measured)
    whole, cores = sum(middle.values()), sum(predicted.values())
    lines = [
        f"## {name}",
        "",
        f"{whole:.1f} us an example measured, {cores:.1f} predicted; around operations and the "
        f"making of batches {around(middle):.1%} (of single runs "
        + ", ".join(f"{around(found):.1%}" for found in measured)
        + ").",
        "",
        "| role | what | measured us | share | predicted us |",
        "|---|---|---|---|---|",
    ]
    roles: dict[str, float] = defaultdict(float)
    for (role, _), spent in middle.items():
        roles[role] += spent
    for role in sorted(roles, key=lambda r: (not r, -roles[r])):
        rows = {what: x for (r, what), x in middle.items() if r == role and x >= LEAST * whole}
        for what, spent in sorted(rows.items(), key=lambda row: -row[1]):
            figures = f"{spent:.2f} | {spent / whole:.1%} | {predicted.get((role, what), 0.0):.2f}"
            lines.append(f"| {role or 'no line'} | {what.replace('_', ' ')} | {figures} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("experiments", nargs="*", default=["experiments/quickstart.yaml"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cluster", default="local")
    parser.add_argument("--out", type=Path, help="write the page there, too")
    arguments = parser.parse_args()
    found: dict[str, list[Profile]] = defaultdict(list)
    expected: dict[str, Profile] = {}
    for path in arguments.experiments:
        study = load(path, arguments.cluster)
        for _ in range(arguments.repeats):
            for run in measure(study):
                found[f"{study.path.stem}: {run.strategy}"].append(profile(run))
        for run in predict(study, what_if=False):
            expected[f"{study.path.stem}: {run.strategy}"] = profile(run)
    command = " ".join(["python benchmarks/profiles.py", *sys.argv[1:]])
    cores = environment.cores()
    lines = [
        "# Where the CPU time of each role goes",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {platform.platform()}, {cores} cores.",
        f"Lines of at least {LEAST:.0%} of all CPU time.",
        "",
    ]
    for name, profiles in found.items():
        lines += page(name, profiles, expected[name])
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
