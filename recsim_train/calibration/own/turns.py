"""Turns of plans whose operations are measured, on a machine that is slow for minutes at times.

Before and after each turn, while nothing else runs, idle cores do a little reference work. What a
turn took is brought to the machine's mean speed over all turns: which plans had their turns in a
slow spell, and which had not, is no matter of the plans. All turns together keep their level.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt
from statistics import fmean

from recsim_train.config.speed import MachineSpeed

Progress = Callable[[int, int], None]
_KEPT = 24
"""Turns of whose speed a profile keeps, at most."""
_DIGITS = 4


class Turns:
    """Who had its turn when, and how fast the machine was."""

    def __init__(self, read: Callable[[], MachineSpeed | None]) -> None:
        """``read``: how fast idle cores are now; None: that cannot be said."""
        self._read = read
        self._plans = 0
        self._speeds: list[MachineSpeed | None] = []
        """By turn: each plan has one, then each has its second."""

    def make(self, plans: int, rounds: int, measure: Callable[[int], None], say: Progress) -> None:
        """``measure``: a turn of the plan of this number. Each has ``rounds`` of them, with those
        of all others between. ``say``: is told how many are done of how many."""
        self._plans, last = plans, self._read()
        for done in range(plans * rounds):
            measure(done % plans)
            now = self._read()
            self._speeds.append(_between(last, now))
            last = now
            say(done + 1, plans * rounds)

    def factors(self, plan: int) -> list[float]:
        """By turn: what its seconds are multiplied by to be those of the mean speed."""
        known = self._known
        mean = fmean(log(speed.overall) for speed in known) if known else 0.0
        own = self._speeds[plan :: self._plans]
        return [1.0 if speed is None else exp(log(speed.overall) - mean) for speed in own]

    @property
    def _known(self) -> list[MachineSpeed]:
        return [speed for speed in self._speeds if speed is not None]

    @property
    def speeds(self) -> tuple[MachineSpeed, ...]:
        """The machine's, evenly over the turns."""
        known = self._known
        return tuple(known[:: max(1, -(-len(known) // _KEPT))])


def _between(before: MachineSpeed | None, after: MachineSpeed | None) -> MachineSpeed | None:
    """The mean of two readings, by part; None: neither is known."""
    if before is None or after is None:
        return before or after
    return MachineSpeed(
        **{
            part: round(sqrt(getattr(before, part) * getattr(after, part)), _DIGITS)
            for part in MachineSpeed.model_fields
        }
    )
