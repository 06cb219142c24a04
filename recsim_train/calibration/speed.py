"""How fast the machine is while nothing else runs, by the reference work."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from statistics import mean

from recsim_train.calibration.child import MeasuringProcess
from recsim_train.config.errors import RunFailed
from recsim_train.config.speed import MachineSpeed
from recsim_train.results.drift import MOVED
from recsim_train.results.environment import cores

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


def measure_speed(rounds: int = ROUNDS) -> MachineSpeed:
    """One reading by a process for each core, side by side, in about a second. Raises RunFailed
    where a process fails or takes too long."""
    with ExitStack() as stack:
        working = [
            stack.enter_context(MeasuringProcess("speed", {}, _LIMIT))
            for _ in range(min(cores(), _MOST))
        ]
        for child in working:
            child.hear()
        for child in working:
            child.tell({"rounds": rounds})
        speeds = [child.hear()["speeds"] for child in working]
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
