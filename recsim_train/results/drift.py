"""Drift: how the machine's speed moved between a calibration and the runs that it predicts.

By the reference work on idle cores before and after both (`recsim_train.config.measured`), so that
no run enters what is said of the machine beside it. It corrects nothing: errors are raw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import fmean, stdev

from recsim_train.config.measured import MachineSpeeds
from recsim_train.results.environment import same_machine
from recsim_train.results.rundir import RunRecord

MOVED = 0.05
"""Relative change of a machine's speed since its calibration from which errors are not the
prediction's alone."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The machine's speed, idle before and after some runs, relative to that at calibration."""

    change: float
    """- 1; geometric mean over the runs."""
    error: float | None
    """Standard error of `change`, calibration's readings included; None: not known."""
    runs: int
    """How many have a speed."""
    off: int = 0
    """Of these, beside how many it was more than `MOVED` from that at calibration."""

    @property
    def far(self) -> bool:
        """Whether errors contain so much of it that they are not the prediction's alone."""
        return abs(self.change) > MOVED


def moved(calibration: MachineSpeeds | None, runs: Sequence[MachineSpeeds | None]) -> Moved | None:
    """Of runs on the machine that was calibrated; None where no speed is known."""
    at = calibration and calibration.idle
    known = [run for run in runs if run is not None and run.idle]
    if calibration is None or not at or not known:
        return None
    each = [log(run.idle / at) for run in known if run.idle]
    own = stdev(each) / sqrt(len(each)) if len(each) > 1 else known[0].error
    change, there = exp(fmean(each)), calibration.error
    error = None if own is None or there is None else change * hypot(own, there)
    off = sum(abs(exp(one) - 1) > MOVED for one in each)
    return Moved(change - 1, error, len(each), off)


@dataclass(frozen=True, slots=True)
class Drift:
    """The machine that a profile describes and a run was made on, both times."""

    calibration: MachineSpeeds | None
    """None: not known, or of another machine."""
    run: MachineSpeeds | None
    named: bool
    """Whether both say which machine it was."""

    @property
    def since(self) -> Moved | None:
        """Since the calibration; None: not known."""
        return moved(self.calibration, [self.run])

    @property
    def steady(self) -> bool:
        """Whether the machine is known to be about as fast as at its calibration."""
        return self.named and self.since is not None and not self.since.far


def drift_of(simulated: RunRecord, real: RunRecord) -> Drift:
    """Between the calibration of the profile that a prediction was made with, and a measurement."""
    calibration = (simulated.manifest.get("cluster") or {}).get("calibration") or {}
    there, here = str(calibration.get("machine") or ""), real.environment
    named = bool(there and here.get("machine"))
    told = calibration.get("machine_speed")
    same = told and (not named or same_machine(there, here))
    speeds = MachineSpeeds.model_validate(told) if same else None
    return Drift(speeds, real.facts.machine_speed, named)
