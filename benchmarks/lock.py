"""How much of making batches holds the interpreter lock? By a thread that wakes beside it.

    python benchmarks/lock.py EXPERIMENT [--set KEY=VALUE] [--seconds 2]

A reader thread makes the experiment's batches. Another thread sleeps again and again for less than
a millisecond, and takes the lock when it wakes: where that is later than without the reader by more
than 30 us, it had to wait. (The reader gives the lock up by itself only: it is never asked within
the time.) Two cores, or the second thread waits for the first's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time

from recsim_train import load
from recsim_train.data.stream import open_stream
from recsim_train.executor.feed import to_batch
from recsim_train.placement.plan import Plan

SLEEP, LATE = 7e-4, 3e-5
WARM_UP, PATIENCE = 50, 60.0
"""Batches; seconds."""


def delays(seconds: float) -> list[float]:
    """By how much waking is late, each time."""
    found = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        time.sleep(SLEEP)
        found.append(time.perf_counter() - begin - SLEEP)
    return found


def read(plan: Plan, going: threading.Event, stop: threading.Event) -> None:
    """Make batches as a reader thread does; ``going``: the first ones are made."""
    spec = plan.experiment
    source = {"batch_size": plan.examples, "positions": [0], "total": 1, "iterations": 1 << 30}
    with open_stream(spec.model, spec.data, **source) as stream:  # type: ignore[arg-type]
        for number, (_, _, batch) in enumerate(stream):
            to_batch(spec.model, batch)
            if number == WARM_UP:
                going.set()
            if stop.is_set():
                return


def main() -> None:
    """Measure and say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    sys.setswitchinterval(0.05)
    plan = load(asked.experiment, overrides=asked.sets).plans[0]
    usual = statistics.median(delays(asked.seconds))
    going, stop = threading.Event(), threading.Event()
    reading = threading.Thread(target=read, args=(plan, going, stop))
    reading.start()
    going.wait(PATIENCE)
    beside = delays(asked.seconds)
    stop.set()
    reading.join()
    late = sum(delay > usual + LATE for delay in beside) / len(beside)
    print(
        f"{plan.experiment.model.name}: of {len(beside)} times {late:.1%} had to wait for the lock"
    )


if __name__ == "__main__":
    main()
