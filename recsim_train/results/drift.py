"""Drift: what of an error is the machine's, which moved between its calibration and the run.

The fixed work (`recsim_train.executor.yardstick`) is done before and after both. Only its speeds
enter the correction, never a prediction.
"""

from __future__ import annotations


def net_error(
    predicted: float,
    measured: float,
    speed_at_run: float | None,
    speed_at_calibration: float | None,
) -> float | None:
    """Predicted / measured - 1, had the machine been as fast beside the run as at its calibration.

    ``predicted``, ``measured``: examples per second; the speeds, in any one unit, of the fixed
    work. None where a speed is not known: without it nothing is known of the drift.
    """
    at_calibration = corrected(measured, speed_at_run, speed_at_calibration)
    return None if at_calibration is None else predicted / at_calibration - 1


def corrected(
    measured: float, speed_at_run: float | None, speed_at_calibration: float | None
) -> float | None:
    """What would have been measured at the speed of the calibration; None: a speed is unknown."""
    if not speed_at_run or not speed_at_calibration:
        return None
    return measured * speed_at_calibration / speed_at_run
