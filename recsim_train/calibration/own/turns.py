"""Turns of plans whose operations are measured, on a machine that is slow for minutes at times.

Between two turns, while nothing else runs, idle cores do a little reference work. Where that says
that the machine was not as fast as it mostly was, the plan has one more turn; of a plan's turns
those count in which it was nearest to that. Nothing is corrected by it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, sqrt
from statistics import median

from recsim_train.config.speed import MachineSpeed
from recsim_train.results.drift import MOVED

Progress = Callable[[int, int], None]
_MOST_AGAIN = 0.5
"""Turns that are made again, at most, by all that are asked for: a machine that never comes to rest
is measured as it is."""
_KEPT = 24
"""Readings of the machine's speed that a profile keeps of these, at most."""


class Turns:
    """Who had its turn when, and how fast the machine was."""

    def __init__(self, read: Callable[[], MachineSpeed]) -> None:
        """``read``: how fast idle cores are now."""
        self._read = read
        self._readings = [read()]
        self._speeds: list[list[MachineSpeed]] = []
        """By plan and turn."""

    def make(self, plans: int, rounds: int, measure: Callable[[int], None], say: Progress) -> None:
        """``measure``: a turn of the plan of this number. Each has ``rounds`` of them, with those
        of all others between, and more where the machine was not as it mostly was. ``say``: is
        told how many are done of how many, which grow."""
        self._speeds = [[] for _ in range(plans)]
        every = plans * rounds
        for done in range(every):
            self._take(done % plans, measure)
            say(done + 1, every)
        off = [(self._off(s), plan) for plan, seen in enumerate(self._speeds) for s in seen]
        worst = sorted((each for each in off if each[0] > log(1.0 + MOVED)), reverse=True)
        again = worst[: int(_MOST_AGAIN * every)]
        for done, (_, plan) in enumerate(again, every + 1):
            self._take(plan, measure)
            say(done, every + len(again))

    def _take(self, plan: int, measure: Callable[[int], None]) -> None:
        measure(plan)
        self._readings.append(self._read())
        self._speeds[plan].append(_between(*self._readings[-2:]))

    @property
    def typical(self) -> float:
        """The machine's overall speed: the median of all readings."""
        return median(reading.overall for reading in self._readings)

    def _off(self, speed: MachineSpeed) -> float:
        """How far from that, as a logarithm; beyond all bounds where either stood still."""
        overall, typical = speed.overall, self.typical
        return abs(log(overall / typical)) if overall > 0.0 < typical else inf

    def counting(self, plan: int, rounds: int) -> list[int]:
        """Which of a plan's turns count, in the order in which they were made."""
        speeds = self._speeds[plan]
        nearest = sorted(range(len(speeds)), key=lambda turn: self._off(speeds[turn]))
        return sorted(nearest[:rounds])

    def readings(self) -> tuple[MachineSpeed, ...]:
        """Some of them, evenly over the time: how the machine was, not how the turns that count
        found it."""
        return tuple(self._readings[:: -(-len(self._readings) // _KEPT)])


def _between(before: MachineSpeed, after: MachineSpeed) -> MachineSpeed:
    """The mean of two readings, by part."""
    parts = MachineSpeed.model_fields
    return MachineSpeed(
        **{part: round(sqrt(getattr(before, part) * getattr(after, part)), 4) for part in parts}
    )
