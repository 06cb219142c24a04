"""How fast a machine was, by its reference work (`recsim_train.calibration.probe`)."""

from __future__ import annotations

from math import exp, log, prod, sqrt
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field

from recsim_train.config.units import Section

Relative = Annotated[float, Field(gt=0.0)]


class MachineSpeed(Section):
    """Mean speed of all cores, each part of the work by itself.

    Speed 1 is about that of a core of 2026; only ratios mean anything.
    """

    products: Relative
    """Of matrix products."""
    gather: Relative
    """Of rows read at random from 32 MiB."""
    interpreter: Relative
    """Of plain Python."""
    loopback: Relative
    """Of bytes through a TCP connection over loopback."""

    @property
    def overall(self) -> float:
        """Geometric mean of the parts."""
        parts = [getattr(self, part) for part in type(self).model_fields]
        return float(prod(parts) ** (1.0 / len(parts)))


class MachineSpeeds(Section):
    """Speeds on idle cores before and after something that was measured."""

    before: MachineSpeed | None = None
    """Right before; none: it could not be measured."""
    after: MachineSpeed | None = None
    """Right after; none: what was measured did not come to its end."""
    between: tuple[MachineSpeed, ...] = ()
    """Of a calibration: between its parts, and about turns of measured operations (the mean of what
    was read before and after one), while nothing else ran."""

    @property
    def _logs(self) -> list[float]:
        return [
            log(speed.overall)
            for speed in (self.before, *self.between, self.after)
            if speed is not None
        ]

    @property
    def idle(self) -> float | None:
        """Overall speed: the geometric mean of all readings; None: there is none."""
        known = self._logs
        return exp(fmean(known)) if known else None

    @property
    def readings(self) -> int:
        """How many `idle` is the mean of."""
        return len(self._logs)

    @property
    def spread(self) -> float | None:
        """Relative standard deviation of one of them; None: fewer than two are known."""
        known = self._logs
        return stdev(known) if len(known) > 1 else None

    @property
    def error(self) -> float | None:
        """Relative standard error of `idle`; None as with `spread`."""
        return None if self.spread is None else self.spread / sqrt(self.readings)

    @property
    def change(self) -> float | None:
        """Overall speed after / before - 1; None where one is not known."""
        if self.before is None or self.after is None:
            return None
        return self.after.overall / self.before.overall - 1.0
