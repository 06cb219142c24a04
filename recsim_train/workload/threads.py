"""The law of operations on several threads: what they take, and what the cores spend on it.

An operation's seconds on one thread are those of its priced work. Of the operators that are divided
(`recsim_train.workload.divided`), what took P seconds of one of the classes in `CLASSES` takes
P (s + (1 - s) / k) on k threads, s being the class's serial share (Amdahl 1967). All else stays on
the calling thread: small operators, calls, the interpreter, other compiled loops. Threads that wait
sleep, so that the CPU seconds are P still, besides an overhead of P o (k - 1): threads that stall
because memory is shared, or work that is done twice. They cannot be busy for longer than k times
the wall time, P (1 + s (k - 1)): so o is at most s.

Each such operator wakes the pool and waits for it, once or, as some products do, twice. That takes
the same wall time each time, whatever its work and however many threads there are, and CPU time of
the caller and of every further thread.
Where operators are small it decides: more threads can be slower than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recsim_train.config.cluster import USUAL, ThreadClass, Threads
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.scope import Divided

CLASSES: Mapping[str, ThreadClass] = {
    name: usual.shared for name, usual in USUAL.items() if usual.shared is not None
}
"""The class of every price whose work operators share among threads: a field of `Threads`."""


class Gains(NamedTuple):
    """What several threads change, in seconds."""

    saved: float
    """Taken off the wall time of one thread; negative where waking takes longer."""
    added: float
    """CPU seconds besides those of one thread."""
    pool: float
    """Of all CPU seconds, those of the further threads."""


NONE = Gains(0.0, 0.0, 0.0)


def by_class(work: Work, prices: Mapping[str, float]) -> dict[str, float]:
    """Seconds on one thread by class; what only one thread can do is left out."""
    found: dict[str, float] = {}
    for name, units in work.items():
        if name in CLASSES:
            group = CLASSES[name]
            found[group] = found.get(group, 0.0) + units * prices[name]
    return found


def shared(
    work: Work, prices: Mapping[str, float], law: Threads, threads: int
) -> tuple[float, float]:
    """(seconds that ``threads`` threads take off the time of one, CPU seconds that they add)."""
    saved = added = 0.0
    for group, seconds in by_class(work, prices).items():
        scaling = law.of(group)
        saved += seconds * (1.0 - scaling.serial) * (1.0 - 1.0 / threads)
        added += seconds * min(scaling.overhead, scaling.serial) * (threads - 1)
    return saved, added


def gains(
    divided: Divided, prices: Mapping[str, float], law: Threads, threads: int, ratio: float = 1.0
) -> Gains:
    """What ``threads`` threads change; ``ratio``: of the work's seconds to those of its prices."""
    if threads == 1:
        return NONE
    saved, added = (ratio * part for part in shared(divided.work, prices, law, threads))
    wake, wakes = law.wake, divided.wakes
    further = wakes * wake.pool * (threads - 1)
    return Gains(
        saved - wakes * wake.wall, added + wakes * wake.caller + further, saved + added + further
    )
