"""Drift: what of an error is the machine's, whose speed moved between calibration and run.

The same reference work is done before and after both (`recsim_train.config.speed`). Its speeds
alone enter the correction, never a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_train.config.speed import MachineSpeeds
from recsim_train.results.environment import same_machine
from recsim_train.results.rundir import RunRecord
from recsim_train.results.statistics import median

MOVED = 0.10
"""Relative change of a machine's speed that is worth a sentence."""


def net_error(
    predicted: float,
    measured: float,
    speed_at_run: float | None,
    speed_at_calibration: float | None,
) -> float | None:
    """Predicted / measured x (speed beside the run / speed at calibration) - 1.

    That is the error, had the machine been as fast beside the run as at its calibration.
    ``predicted``, ``measured``: examples per second; the speeds of the reference work in any one
    unit. None where a speed is not known: nothing is known of the drift then.
    """
    return net_error_of([(measured, speed_at_run)], predicted, speed_at_calibration)


def net_error_of(
    repeats: Sequence[tuple[float, float | None]],
    predicted: float,
    speed_at_calibration: float | None,
) -> float | None:
    """The same of several repeats, (measured, speed beside it): each is corrected by its own speed,
    and their median is compared. None where any speed is not known."""
    corrected = [
        measured * speed_at_calibration / speed
        for measured, speed in repeats
        if speed and speed_at_calibration
    ]
    return predicted / median(corrected) - 1 if len(corrected) == len(repeats) else None


@dataclass(frozen=True, slots=True)
class Drift:
    """Overall speeds of the machine that a profile describes and a run was made on."""

    at_calibration: float | None
    """None: the profile is older, or describes another machine."""
    at_run: float | None
    during: float | None
    """After the run / before it - 1."""
    named: bool
    """Whether both say which machine it was."""

    @property
    def since(self) -> float | None:
        """Beside the run / at calibration - 1."""
        if self.at_run is None or self.at_calibration is None:
            return None
        return self.at_run / self.at_calibration - 1

    @property
    def steady(self) -> bool:
        """Whether the machine is known to be about as fast as at its calibration."""
        return self.named and self.since is not None and abs(self.since) <= MOVED


def calibration_of(record: RunRecord) -> Mapping[str, Any]:
    """What the profile that a run was made with says of its calibration."""
    return (record.manifest.get("cluster") or {}).get("calibration") or {}


def drift_of(simulated: RunRecord, real: RunRecord) -> Drift:
    """Between the calibration of the profile that a prediction was made with, and a measurement."""
    calibration = calibration_of(simulated)
    there, here = str(calibration.get("machine") or ""), real.environment
    named = bool(there and here.get("machine"))
    beside = real.facts.machine_speed or MachineSpeeds()
    if (told := calibration.get("machine_speed")) and (not named or same_machine(there, here)):
        speeds = MachineSpeeds.model_validate(told)
        return Drift(speeds.idle, beside.idle, beside.change, named)
    return Drift(None, beside.idle, beside.change, named)
