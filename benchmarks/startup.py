"""Start-up time of the command line, beside Python's own: medians of alternating runs.

python benchmarks/startup.py [--runs 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import typer": [sys.executable, "-c", "import typer"],
    "recsim-train --help": [sys.executable, "-m", "recsim_train", "--help"],
    "recsim-train simulate --help": [sys.executable, "-m", "recsim_train", "simulate", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for command in CASES.values():
        seconds(command)
    for _ in range(arguments.runs):
        for name, command in CASES.items():
            found[name].append(seconds(command))
    table = {
        name: {"median_s": statistics.median(t), "min_s": min(t), "max_s": max(t)}
        for name, t in found.items()
    }
    if arguments.json:
        print(json.dumps(table, indent=2))
        return
    for name, row in table.items():
        spread = f"{row['min_s']:.3f} .. {row['max_s']:.3f}"
        print(f"{name:32s} median {row['median_s']:.3f} s   ({spread})")


if __name__ == "__main__":
    main()
