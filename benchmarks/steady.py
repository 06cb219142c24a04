"""Whether a long run with checkpoints stays as it is: memory, descriptors and disk, over time.

    python benchmarks/steady.py [--minutes 30] [--every "20 s"] [--out FILE]

A real run of two trainers and two servers at full load, which is asked to end when time is up. Each
five seconds: of all its processes the memory that nothing else has (USS) and open descriptors, and
bytes of its folder of checkpoints. The first five minutes are left out. The slope is that of a line
through means of a minute; its error takes these to be independent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from math import sqrt
from pathlib import Path
from statistics import fmean, linear_regression

import psutil
import yaml
from script import options, table

EACH, LEFT_OUT, LONGEST_END = 5.0, 300.0, 120.0
"""Seconds between two looks; that are left out; that the run gets to end."""
EXPERIMENT = {
    "name": "steady",
    "model": {
        "preset": "criteo-kaggle",
        "embedding_dim": 16,
        "tables": {"count": 26, "rows": 20_000, "ids": 1},
        "bottom_mlp": [64, 16],
        "top_mlp": [64, 1],
    },
    "data": {"synthetic": {"rows": 200_000}, "eval_rows": 1000},
    "roles": {"trainers": 2, "embedding_servers": 1, "dense_servers": 1},
    "training": {"batch_size": 512, "threads": 1, "steps": 10_000_000, "warmup_steps": 10},
    "strategy": "flat_ps",
    "cluster": "local",
}


def looked(process: psutil.Process, folder: Path) -> dict[str, float]:
    """Of a run's processes, and of its checkpoints."""
    memory = descriptors = 0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            memory += one.memory_full_info().uss
            descriptors += one.num_fds()
    files = [path for path in folder.rglob("*-checkpoints/**/*") if path.is_file()]
    sizes = 0
    for path in files:
        with suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return {"memory": memory, "descriptors": descriptors, "disk": sizes}


def slope(times: list[float], values: list[float]) -> tuple[float, float]:
    """(Of a line through means of a minute, its standard error), for an hour."""
    minutes: dict[int, list[tuple[float, float]]] = {}
    for at, value in zip(times, values, strict=True):
        minutes.setdefault(int(at // 60), []).append((at, value))
    xs = [fmean(at for at, _ in some) for some in minutes.values()]
    ys = [fmean(value for _, value in some) for some in minutes.values()]
    found, base = linear_regression(xs, ys)
    rest = sum((y - base - found * x) ** 2 for x, y in zip(xs, ys, strict=True))
    middle = fmean(xs)
    error = sqrt(rest / (len(xs) - 2) / sum((x - middle) ** 2 for x in xs))
    return 3600.0 * found, 3600.0 * error


def main() -> None:
    """One run."""
    asked = options(
        __doc__,
        {
            "--minutes": (30.0, "of training"),
            "--every": ("20 s", "between checkpoints"),
            "--out": ("", "where all looks go"),
        },
    )
    folder = Path(tempfile.mkdtemp(prefix="recsim-steady-"))
    file = folder / "steady.yaml"
    file.write_text(yaml.safe_dump({**EXPERIMENT, "checkpoint": {"every": asked.every, "keep": 2}}))
    command = [sys.executable, "-m", "recsim_train", "run", str(file), "--out", str(folder)]
    looks: list[dict[str, float]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        process, begin = psutil.Process(run.pid), time.monotonic()
        while run.poll() is None and time.monotonic() - begin < 60.0 * asked.minutes:
            looks.append({"at": time.monotonic() - begin, **looked(process, folder)})
            time.sleep(EACH)
        os.kill(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=LONGEST_END)
    print(said.decode().strip().splitlines()[-1])
    if asked.out:
        Path(asked.out).write_text(json.dumps(looks) + "\n")
    late = [one for one in looks if one["at"] >= LEFT_OUT]
    rows = []
    for name in ("memory", "descriptors", "disk"):
        values = [one[name] for one in late]
        found, error = slope([one["at"] for one in late], values)
        rows.append((name, f"{fmean(values):,.0f}", f"{found:+,.0f}", f"{error:,.0f}"))
    print("\n".join(table(("", "mean", "an hour", "standard error"), rows)))


if __name__ == "__main__":
    main()
