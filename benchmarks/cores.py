"""Do threads share a machine's cores equally, or does each stay on one? By the clock.

    python benchmarks/cores.py [--rounds 6] [--out DIR]

Two processes work for 20 ms, meet, and begin again; a third works beside them from the same moment
on. All work is CPU time, so that nothing but the sharing of cores decides how long a step takes.
With equal shares of all cores a step takes (2 x 20 + beside) / 2 ms; where each thread stays on a
core, as `recsim_train.sim.host.cores` has it, whoever shares its core with the third ends so much
later (until the other core is free, and a turn later takes one of them). Needs two cores; of more,
two are used.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from recsim_train.results.environment import machine_name

RESULTS = Path("benchmarks/results")
WORK = 20.0
BESIDE = (0.0, 4.0, 8.0, 16.0)
TURN = 4.0
"""Milliseconds: what `recsim-train calibrate` found for how long threads take turns on a core of
this machine, whose kernel looks 250 times a second."""
STEPS, WARM_UP = 60, 20
PATIENCE = 60.0


def spend(milliseconds: float) -> None:
    """CPU time of this thread."""
    end = time.thread_time() + milliseconds / 1e3
    while time.thread_time() < end:
        pass


def member(barrier: Barrier, milliseconds: float, found: Any) -> None:
    """Work and meet; tells how long a step took."""
    for _ in range(WARM_UP):
        barrier.wait(PATIENCE)
    begin = time.perf_counter()
    for _ in range(STEPS):
        barrier.wait(PATIENCE)
        spend(milliseconds)
    barrier.wait(PATIENCE)
    found.put((time.perf_counter() - begin) / STEPS * 1e3)


def step(beside: float) -> float:
    """Milliseconds of a step."""
    barrier = multiprocessing.Barrier(3)
    found: Any = multiprocessing.Queue()
    loads = WORK, WORK, beside
    working = [multiprocessing.Process(target=member, args=(barrier, w, found)) for w in loads]
    for process in working:
        process.start()
    try:
        return statistics.mean(found.get(timeout=PATIENCE) for _ in working)
    finally:
        for process in working:
            process.join(PATIENCE)


def equal(beside: float) -> float:
    """With equal shares of both cores."""
    return (2 * WORK + beside) / 2


def staying(beside: float) -> float:
    """With threads that stay: until `WORK`, and until the free core takes one of them a turn later,
    the third and one member have half a core each."""
    if 2 * beside <= WORK:
        return WORK + beside
    return 1.5 * WORK + TURN / 2


def main() -> None:
    """Measure, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    seen: dict[float, list[float]] = {beside: [] for beside in BESIDE}
    for _ in range(asked.rounds):
        for beside in BESIDE:
            seen[beside].append(step(beside))
    command = shlex.join(["python", "benchmarks/cores.py", *sys.argv[1:]])
    lines = [
        "# How long members who meet wait for one whose core is shared",
        "",
        f"`{command}`",
        "",
        f"{machine_name()}, two of them, {asked.rounds} rounds; milliseconds of a step, median "
        "(least to most). Two processes work 20 ms and meet, a third works beside them.",
        "",
        "| the third works | measured | threads that stay | equal shares |",
        "|---:|---:|---:|---:|",
    ]
    for beside, steps in seen.items():
        lines.append(
            f"| {beside:g} ms | {statistics.median(steps):.1f} ({min(steps):.1f} to "
            f"{max(steps):.1f}) | {staying(beside):.1f} | {equal(beside):.1f} |"
        )
    text = "\n".join(lines) + "\n"
    (asked.out / "cores.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
