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
        self._speeds: list[list[MachineSpeed | None]] = []
        """By plan and turn."""
        self._all: list[MachineSpeed] = []

    def make(self, plans: int, rounds: int, measure: Callable[[int], None], say: Progress) -> None:
        """``measure``: a turn of the plan of this number. Each has ``rounds`` of them, with those
        of all others between. ``say``: is told how many are done of how many."""
        self._speeds = [[] for _ in range(plans)]
        last = self._read()
        for done in range(plans * rounds):
            measure(done % plans)
            speed, last = _between(last, now := self._read()), now
            self._speeds[done % plans].append(speed)
            self._all += [] if speed is None else [speed]
            say(done + 1, plans * rounds)

    def factors(self, plan: int) -> list[float]:
        """By turn: what its seconds are multiplied by to be those of the mean speed."""
        mean = fmean(log(speed.overall) for speed in self._all) if self._all else 0.0
        return [
            1.0 if speed is None else exp(log(speed.overall) - mean) for speed in self._speeds[plan]
        ]

    @property
    def speeds(self) -> tuple[MachineSpeed, ...]:
        """The machine's, evenly over the turns."""
        return tuple(self._all[:: max(1, -(-len(self._all) // _KEPT))])


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
