"""Start-up time of the command line, beside Python's own: medians of alternating runs.

python benchmarks/startup.py [--runs 15] [--json]

The last case is the time until the loops of a run with four processes have begun, from the command
on; the run is ended then.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from script import options

CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import typer": [sys.executable, "-c", "import typer"],
    "recsim-train --help": [sys.executable, "-m", "recsim_train", "--help"],
    "recsim-train simulate --help": [sys.executable, "-m", "recsim_train", "simulate", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}


FOUR = "recsim-train run, four processes, until its loops begin"
EXPERIMENT = """
name: startup
model: {preset: criteo-kaggle, max_rows: 20_000}
data: {synthetic: {rows: 100_000}}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 128, threads: 2, steps: 100_000}
strategy: flat_ps
"""


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return time.perf_counter() - begin


def until_it_runs(folder: Path) -> float:
    experiment = folder / "startup.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    words = ["run", str(experiment), "--out", str(folder / "runs")]
    begin = time.perf_counter()
    command = [sys.executable, "-m", "recsim_train", *words]
    no, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=no, stderr=pipe) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("running"):
                break
        else:
            raise RuntimeError(f"it ended with exit code {process.wait(60)}")
        taken = time.perf_counter() - begin
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    return taken


def main() -> None:
    arguments = options(__doc__, {"--runs": (15, ""), "--json": (False, "")})
    with tempfile.TemporaryDirectory() as folder:
        cases = {name: partial(seconds, command) for name, command in CASES.items()}
        cases[FOUR] = partial(until_it_runs, Path(folder))
        found: dict[str, list[float]] = {name: [] for name in cases}
        for case in cases.values():
            case()
        for _ in range(arguments.runs):
            for name, case in cases.items():
                found[name].append(case())
    table = {
        name: {"median_s": statistics.median(t), "min_s": min(t), "max_s": max(t)}
        for name, t in found.items()
    }
    if arguments.json:
        print(json.dumps(table, indent=2))
        return
    for name, row in table.items():
        spread = f"{row['min_s']:.3f} .. {row['max_s']:.3f}"
        print(f"{name:60s} median {row['median_s']:.3f} s   ({spread})")


if __name__ == "__main__":
    main()
