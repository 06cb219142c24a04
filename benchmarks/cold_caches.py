"""What a net's pass takes on a core that has done something else, or that it has not been on.

    python benchmarks/cold_caches.py EXPERIMENT [--points 1,20,24] [--rounds 20]

Of each point of a sweep whose net is not cut, passes on real batches in one thread, CPU time: where
the thread stays on its core; where it changes its core before each; and where another process has
worked on its core before each, for 1 and for 5 ms, through 16 MiB. In turn; relative to staying,
where that process is asked, too, and does nothing. In runs all of this happens, and none of it in
the windows in which `recsim-train calibrate --for` measures a pass.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

from contention import passes_of
from paired import median_of

from recsim_train import load
from recsim_train.placement.plan import Plan

KINDS = ("stays", "changes its core", "after 1 ms of another", "after 5 ms of another")
IN_A_ROW = 8
LIMIT = 30.0


def another(core: int, orders: Connection) -> None:
    """A process on this core: works for so many CPU seconds, again and again."""
    import numpy as np

    os.sched_setaffinity(0, {core})
    pieces = itertools.cycle(np.ones((1 << 7, 1 << 14)))  # of 128 KiB
    while (seconds := orders.recv()) is not None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            piece = next(pieces)
            piece *= 1.0
        orders.send("done")


def measured(plan: Plan, rounds: int, cores: tuple[int, int]) -> list[dict[str, float]]:
    """Mean CPU seconds of a pass, by round and kind."""
    calls = itertools.cycle(passes_of(plan))
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=another, args=(cores[0], there), daemon=True)
    process.start()

    def before(kind: str, number: int) -> None:
        if kind == KINDS[1]:
            os.sched_setaffinity(0, {cores[(number + 1) % 2]})
        here.send(float(kind.split()[1]) / 1e3 if kind.startswith("after") else 0.0)
        if not here.poll(LIMIT):
            raise SystemExit(f"the other process did not answer within {LIMIT:.0f} s")
        here.recv()

    found = []
    for turn in range(rounds):
        took = {}
        for kind in KINDS if turn % 2 else reversed(KINDS):
            os.sched_setaffinity(0, {cores[0]})
            next(calls)()
            seconds = []
            for number in range(IN_A_ROW):
                before(kind, number)
                begin = time.thread_time()
                next(calls)()
                seconds.append(time.thread_time() - begin)
            took[kind] = statistics.fmean(seconds)
        found.append(took)
    here.send(None)
    process.join(LIMIT)
    return found


def main() -> None:
    """Measure and say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--points", default="1,20,24", help="which of a sweep, from 0 on")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SystemExit("two cores are needed")
    plans = load(asked.experiment).plans
    print(f"| a pass of | ms where it stays | {' | '.join(KINDS[1:])} |")
    print("|---|---:|" + "---:|" * len(KINDS[1:]))
    for point in map(int, asked.points.split(",")):
        plan = plans[point]
        found = measured(plan, asked.rounds, (allowed[0], allowed[1]))
        label = f"{plan.experiment.model.name}, batch {plan.experiment.training.batch_size}"
        cells = []
        for kind in KINDS[1:]:
            dearer = median_of([took[kind] / took[KINDS[0]] - 1.0 for took in found])
            assert dearer is not None
            cells.append(f"{dearer.value:+.1%} ({dearer.low:+.1%} .. {dearer.high:+.1%})")
        stays = 1e3 * statistics.median(took[KINDS[0]] for took in found)
        print(f"| {label} | {stays:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
