"""What does the machine's speed beside a run explain of it? The same run again and again.

    python benchmarks/drift.py [--runs 24] [--experiment FILE] [--set KEY=VALUE ...] [--out DIR]

Each run goes the way of users' runs, which read the reference work before, meanwhile and after. On
a machine that is always equally fast there is nothing to explain. On one that is not, log CPU time
of an example falls by as much as the log speed rises, if the speed is the run's: slope 1, and what
the correction leaves is less than what was there.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from math import log
from pathlib import Path

import recsim_train
from recsim_train.config.speed import MachineSpeed, MachineSpeeds
from recsim_train.results.environment import machine_name
from recsim_train.results.rundir import read_run

RESULTS = Path("benchmarks/results")
EXPERIMENT = Path("experiments/fidelity.yaml")


def readings(speeds: MachineSpeeds) -> dict[str, float]:
    """Log speeds by what was read when."""
    assert speeds.before is not None
    assert speeds.after is not None
    [between] = speeds.between
    ends = MachineSpeeds(before=speeds.before, after=speeds.after).beside
    assert ends is not None
    found = {"before and after": log(ends), "meanwhile": log(between.overall)}
    for part in MachineSpeed.model_fields:
        found[f"meanwhile, {part} alone"] = log(getattr(between, part))
    return found


def table(seen: Sequence[tuple[dict[str, float], float]]) -> list[str]:
    """One line for each reading, of (readings, log of what a run took)."""
    took = [y for _, y in seen]
    scatter = statistics.pstdev(took)
    lines = [
        f"An example's scatter by {scatter:.1%} (standard deviation of the logarithm).",
        "",
        "| reading | its own scatter | correlation | slope | left as corrected (slope 1) |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in seen[0][0]:
        speed = [-by[name] for by, _ in seen]
        left = statistics.pstdev([y - x for x, y in zip(speed, took, strict=True)])
        lines.append(
            f"| {name} | {statistics.pstdev(speed):.1%} | "
            f"{statistics.correlation(speed, took):.2f} | "
            f"{statistics.linear_regression(speed, took).slope:.2f} | {left:.1%} |"
        )
    return lines


def main() -> None:
    """Run, then compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--experiment", type=Path, default=EXPERIMENT)
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    one = ["sweep.points=[{roles.trainers: 2}]", *chosen.sets]
    study = recsim_train.load(chosen.experiment, overrides=one)
    cpu, time = [], []
    for number in range(chosen.runs):
        with tempfile.TemporaryDirectory(prefix="recsim-drift-") as folder:
            [run] = recsim_train.measure(study, out=Path(folder))
            record = read_run(run.folder)
        facts, eps = record.facts, record.summary.examples_per_second
        assert eps
        assert facts.ledger is not None
        assert facts.machine_speed is not None
        seen = readings(facts.machine_speed)
        spent = facts.ledger.total / facts.ledger.seconds / eps
        cpu.append((seen, log(spent)))
        time.append((seen, -log(eps)))
        print(
            f"run {number + 1}: {1e6 * spent:.1f} us of CPU, {1e6 / eps:.1f} us an example",
            flush=True,
        )
    text = [
        "# What the machine's speed beside a run explains",
        "",
        f"`{shlex.join(['python', 'benchmarks/drift.py', *sys.argv[1:]])}`, {machine_name()}",
        "",
        f"{chosen.runs} runs of {chosen.experiment.name} ({', '.join(chosen.sets) or 'as it is'}).",
        *["", "## CPU time", "", *table(cpu)],
        *["", "## Time", "", *table(time)],
    ]
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "drift.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
