"""How fast the machine is now: the reference work on all its cores at once."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean

from recsim_train.calibration.child import MeasuringProcess
from recsim_train.config.speed import MachineSpeed
from recsim_train.results.environment import cores

_LIMIT = 60.0
"""Seconds; nearly all of it for importing torch, where no process has yet."""
_MOST = 32
"""Processes at most: each fills 40 MiB."""
_DIGITS = 4


def measure_speed() -> MachineSpeed:
    """Do the reference work in a process for each core, side by side, in about a second.

    Raises RunFailed where a process fails or takes too long.
    """
    with ExitStack() as stack:
        working = [
            stack.enter_context(MeasuringProcess("speed", {}, _LIMIT))
            for _ in range(min(cores(), _MOST))
        ]
        for child in working:
            child.hear()
        for child in working:
            child.tell({})
        reports = [child.result() for child in working]
    return MachineSpeed(
        **{part: round(mean(r[part] for r in reports), _DIGITS) for part in reports[0]}
    )
