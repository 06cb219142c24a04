"""Predicted against measured throughput over settings that calibration never saw.

    python benchmarks/prediction_error.py [--repeats 3] [--out FILE.json] [--only TEXT]

Every setting is simulated once and run ``--repeats`` times, in turn, so that the machine's drift
falls on all of them; medians and the range of the repeats are printed, and where there are
background loops, how many rounds one of them does per second. Nothing here feeds back into the
profile: calibrate first (`recsim-train calibrate -o cluster_profiles/local.yaml`).
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from recsim_train.session import Run, load, measure, predict

EXPERIMENT = "experiments/quickstart.yaml"
ALONE = ["roles.trainers=1", "roles.embedding_servers=0", "roles.dense_servers=0"]
SETTINGS = {
    "flat_ps, 1 process, 1 thread": [*ALONE, "training.threads=1"],
    "flat_ps, 1 process, 2 threads": ALONE,
    "flat_ps, 1 trainer + 3 servers": ["roles.trainers=1"],
    "flat_ps, quickstart (2 x 2 threads + 3 servers)": [],
    "flat_ps, quickstart with batch 512": ["training.batch_size=512", "training.steps=40"],
    "flat_ps, rows travel": ["strategy.pooling=worker"],
    "flat_ps, easgd every 5": ["strategy.mode=easgd", "strategy.every=5"],
    "flat_ps, 1 reader process": ["roles.readers=1"],
    "allreduce, 2 trainers + 2 servers": ["strategy=allreduce"],
    "allreduce, 2 trainers, no servers": ["strategy=allreduce", "roles.embedding_servers=0"],
    "shadowsync, S-EASGD": ["strategy=shadowsync"],
    "shadowsync, S-MA": ["strategy=shadowsync", "strategy.algorithm=ma"],
    "shadowsync, S-BMUF": ["strategy=shadowsync", "strategy.algorithm=bmuf"],
}


def rounds(run: Run) -> float | None:
    """Per second of one background loop; None where there is none."""
    return run.record.summary.synchronisation.rounds_per_second


def errors_of_rounds(rows: dict[str, dict[str, Any]]) -> list[str]:
    """A table, and what to remember of it."""
    known = {name: row for name, row in rows.items() if row["rounds_error"] is not None}
    if not known:
        return []
    errors = [abs(row["rounds_error"]) for row in known.values()]
    return [
        "",
        "| setting | sync rounds/s predicted | measured | signed error |",
        "|---|---|---|---|",
        *(
            f"| {name} | {row['predicted_rounds']:,.1f} | {row['measured_rounds']:,.1f} "
            f"| {row['rounds_error']:+.1%} |"
            for name, row in known.items()
        ),
        f"\nrounds: median absolute error {statistics.median(errors):.1%}, "
        f"largest {max(errors):.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cluster", default="local")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="settings whose name contains this")
    arguments = parser.parse_args()
    chosen = {name: sets for name, sets in SETTINGS.items() if arguments.only in name}
    measured: dict[str, list[float]] = {name: [] for name in chosen}
    synced: dict[str, list[float | None]] = {name: [] for name in chosen}
    rows: dict[str, dict[str, Any]] = {}
    studies = {n: load(EXPERIMENT, arguments.cluster, sets) for n, sets in chosen.items()}
    for _ in range(arguments.repeats):
        for name, study in studies.items():
            (run,) = measure(study)
            measured[name].append(run.examples_per_second or 0.0)
            synced[name].append(rounds(run))
    for name, study in studies.items():
        (predicted,) = predict(study, what_if=False)
        eps = predicted.examples_per_second or 0.0
        middle = statistics.median(measured[name])
        done = [value for value in synced[name] if value is not None]
        expected, seen = rounds(predicted), statistics.median(done) if done else None
        rows[name] = {
            "predicted_eps": eps,
            "measured_eps": middle,
            "measured_range": [min(measured[name]), max(measured[name])],
            "signed_error": eps / middle - 1,
            "predicted_rounds": expected,
            "measured_rounds": seen,
            "rounds_error": expected / seen - 1 if expected and seen else None,
            "bottleneck": predicted.bottleneck,
        }
    print("| setting | predicted/s | measured/s (range) | signed error |")
    print("|---|---|---|---|")
    for name, row in rows.items():
        low, high = row["measured_range"]
        print(
            f"| {name} | {row['predicted_eps']:,.0f} | {row['measured_eps']:,.0f} "
            f"({low:,.0f} .. {high:,.0f}) | {row['signed_error']:+.1%} |"
        )
    errors = [abs(row["signed_error"]) for row in rows.values()]
    print(f"\nmedian absolute error {statistics.median(errors):.1%}, largest {max(errors):.1%}")
    print("\n".join(errors_of_rounds(rows)))
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
