"""How fast the machine is while nothing else runs, by the reference work, and turns of plans on a
machine that is slow for minutes at times."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import exp, log, sqrt
from statistics import fmean, mean
from typing import Any

from recsim_train.calibration.child import answers, side_by_side
from recsim_train.config.errors import RunFailed
from recsim_train.config.measured import MachineSpeed
from recsim_train.results.environment import cores
from recsim_train.results.undisturbed import MOVED

ROUNDS = 77
"""Rounds of a reading, which takes four fifths of a second; their mean, because a run sees a
virtual machine's slow spells as often as they come."""
_SHORT = 20
"""Rounds of one between two measurements: 0.2 s."""
_LIMIT = 60.0
"""Seconds; nearly all of it for importing torch, where no process has yet."""
_MOST = 32
"""Processes at most: each fills 40 MiB."""
_DIGITS = 4
_PAUSE = 3.0
"""Seconds between two readings of who waits."""
_KEPT = 24
"""Turns of whose speed a profile keeps, at most."""


def measure_speed(rounds: int = ROUNDS) -> MachineSpeed:
    """One reading by a process for each core, side by side, in about a second. Raises RunFailed
    where a process fails or takes too long."""
    with side_by_side("speed", [{}] * min(cores(), _MOST), _LIMIT) as working:
        speeds = answers(working, {"rounds": rounds})
    return MachineSpeed(
        **{part: round(mean(s[part] for s in speeds), _DIGITS) for part in speeds[0]}
    )


def short_reading() -> MachineSpeed | None:
    """One between two measurements; None where it fails: no calibration is lost for it."""
    with suppress(RunFailed):
        return measure_speed(_SHORT)
    return None


def until_as_fast(as_then: float, limit: float, waiting: Callable[[], object]) -> float:
    """Wait until idle cores are within `MOVED` of this overall speed, at most ``limit`` seconds
    between looks at them; how many it took, 0 where they are at the first look. ``waiting``: is
    called where they are not. Raises RunFailed as `measure_speed` does."""
    waited = 0.0
    while abs(measure_speed().overall / as_then - 1.0) > MOVED and waited < limit:
        if not waited:
            waiting()
        pause = min(_PAUSE, limit - waited)
        time.sleep(pause)
        waited += pause
    return waited


Seen = Mapping[str, Sequence[Mapping[str, Any]]]
"""By kind of window, what each showed of each operation and shape: ``busy``, with a process on each
core; ``alone``; ``pooled``, on the threads of the plan's operations, where there are several."""


class Turns:
    """Who had its turn when, and how fast the machine was.

    Before and after each turn, while nothing else runs, idle cores do a little reference work. What
    a turn took is brought to the machine's mean speed over all turns: which plans had their turns
    in a slow spell, and which had not, is no matter of the plans. All turns together keep their
    level.
    """

    def __init__(self, read: Callable[[], MachineSpeed | None]) -> None:
        """``read``: how fast idle cores are now; None: that cannot be said."""
        self._read = read
        self._plans = 0
        self._seen: list[Seen] = []
        self._speeds: list[MachineSpeed | None] = []
        """By turn: each plan has one, then each has its second."""

    def make(
        self,
        plans: int,
        rounds: int,
        measure: Callable[[int], Seen],
        tick: Callable[[], None],
    ) -> None:
        """``measure``: a turn of the plan of this number. Each has ``rounds`` of them, with those
        of all others between. ``tick``: is called after each."""
        self._plans, last = plans, self._read()
        for done in range(plans * rounds):
            self._seen.append(measure(done % plans))
            now = self._read()
            self._speeds.append(_between(last, now))
            last = now
            tick()

    def factors(self, plan: int) -> list[float]:
        """By turn: what its seconds are multiplied by to be those of the mean speed."""
        known = self._known
        mean = fmean(log(speed.overall) for speed in known) if known else 0.0
        own = self._speeds[plan :: self._plans]
        return [1.0 if speed is None else exp(log(speed.overall) - mean) for speed in own]

    def seen(self, plan: int) -> Seen:
        """What all turns of a plan showed, at the mean speed; with the number of their ``turn``."""
        found = defaultdict[str, list[dict[str, Any]]](list)
        own = zip(self.factors(plan), self._seen[plan :: self._plans], strict=True)
        for turn, (factor, seen) in enumerate(own):
            for kind, several in seen.items():
                for figures in several:
                    brought = {clock: figures[clock] * factor for clock in ("cpu", "own", "wall")}
                    found[kind].append({**figures, **brought, "turn": turn})
        return found

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
