"""The first command after an installation: CPU and wall seconds until its prediction is printed.

python benchmarks/first_minute.py [--at FOLDER] [--runs 5] [--json]

Of the checkout in FOLDER: once with nothing compiled, neither Python's files nor numba's, then with
all of it kept. The prediction is printed where a line first holds a throughput (with its interval,
as it used to be printed), on either stream. CPU seconds are those of the process, user and system.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from script import options

WORDS = ["simulate", "experiments/quickstart.yaml", "--cluster", "reference-2core"]
PREDICTED = re.compile(r"flat_ps.*\d+(\.\d+)?k (± |examples/s,)")


def first(at: Path, kept: Path) -> dict[str, float]:
    """One command: seconds until its prediction, and until its end."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(at),
        "PYTHONPYCACHEPREFIX": str(kept / "python"),
        "NUMBA_CACHE_DIR": str(kept / "numba"),
        "COLUMNS": "200",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "recsim_train", *WORDS, "--out", str(kept / "runs")],
        cwd=at, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        seen: dict[str, float] = {}
        for line in process.stdout:
            if not seen and PREDICTED.search(line):
                times = psutil.Process(process.pid).cpu_times()
                seen = {
                    "cpu until predicted": times.user + times.system,
                    "wall until predicted": time.perf_counter() - begin,
                }
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not seen:
        raise RuntimeError(f"exit code {process.returncode}, prediction seen: {bool(seen)}")
    whole = {"cpu": used.ru_utime + used.ru_stime, "wall": time.perf_counter() - begin}
    return seen | whole


def main() -> None:
    arguments = options(
        __doc__,
        {"--at": (".", "the checkout"), "--runs": (5, "with all kept"), "--json": (False, "")},
    )
    at = Path(arguments.at).resolve()
    with tempfile.TemporaryDirectory() as folder:
        cold = first(at, Path(folder))
        warm = [first(at, Path(folder)) for _ in range(arguments.runs)]
    table = {
        "nothing compiled": cold,
        "all kept, median": {name: statistics.median(run[name] for run in warm) for name in cold},
        "all kept, largest": {name: max(run[name] for run in warm) for name in cold},
    }
    if arguments.json:
        print(json.dumps(table, indent=2))
        return
    for name, row in table.items():
        print(f"{name:20s} " + ", ".join(f"{what} {took:.2f} s" for what, took in row.items()))


if __name__ == "__main__":
    main()
