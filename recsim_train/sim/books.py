"""Books of the CPU seconds that a simulation's activities take, as the executor keeps of real ones.

An activity is booked as a whole where it begins. Seconds are those of its work: what a cluster's
``contention`` takes from cores that are all busy shows as fewer cores busy, not as more seconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import zip_longest

from recsim_train.trace.ledger import Booked


class Books:
    """Of all processes."""

    __slots__ = ("_noted", "seconds")

    def __init__(self) -> None:
        self.seconds: Booked = {}
        self._noted: dict[float, array[float]] = {}
        """By time: what was booked until then, in the order of ``seconds``, which only grows."""

    def add(
        self,
        role: str,
        thread: str,
        parts: Iterable[tuple[str, float, float, float, float]],
        times: float = 1.0,
        *,
        threaded: bool = False,
    ) -> None:
        """A thread spends seconds on what they are for, ``times`` as many as given.

        ``threaded``: further threads, its pool, take the share of operations that they can take
        (`recsim_train.sim.pricing.Part`).
        """
        booked = self.seconds
        for what, seconds, _, added, further in parts:
            key, own = (role, what, thread), seconds
            if threaded:
                own += added - further
                if further:
                    pool = role, what, "pool"
                    booked[pool] = booked.get(pool, 0.0) + further * times
            booked[key] = booked.get(key, 0.0) + own * times

    def note(self, now: float) -> None:
        """Remember what has been booked until the first event at this time."""
        self._noted.setdefault(now, array("d", self.seconds.values()))

    def between(self, start: float, end: float) -> Booked:
        """What was booked between two times that were noted; the run's start needs no note."""
        empty = array("d")
        both = zip_longest(self._noted.get(start, empty), self._noted[end], fillvalue=0.0)
        return {key: y - x for key, (x, y) in zip(self.seconds, both, strict=False)}
