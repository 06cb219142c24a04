"""What was measured of a machine, as a cluster profile has it: operations at their own shapes, and
how fast the machine was, by its reference work (`recsim_train.calibration.probe`)."""

from __future__ import annotations

from math import exp, log, prod, sqrt
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field

from recsim_train.config.units import PositiveDuration, Section, Share

SHAPE = r"[^;]+; (\w+ [\d.e+]+(, \w+ [\d.e+]+)*)?"
"""The text of a `recsim_train.workload.signature.Signature`."""


class Pooled(Section):
    """An operation on several threads."""

    threads: Annotated[int, Field(ge=2)]
    """So many."""
    seconds: PositiveDuration
    """From its beginning to its end."""
    cpu: PositiveDuration
    """CPU seconds of all these threads."""


class MeasuredOperation(Section):
    """One operation at one shape, as `recsim-train calibrate --for` measures it."""

    operation: str
    """Its name."""
    shape: str
    """What its work depends on, such as "16 x 26 1a2b3c4d, sgd; batch 128, ids 3328": settings that
    are equal or not (of a net or tables a short digest), and sizes."""
    seconds: PositiveDuration
    """CPU seconds of one call, the mean, on one thread while every core is as busy."""
    alone: PositiveDuration
    """The same while the other cores are idle."""
    uncertainty: Share
    """Relative standard error of ``seconds``."""
    spread: Share | None = None
    """How far, relative, a run that lasts as long as a turn's windows may lie from the mean of all
    turns: a standard deviation, by how far apart these are. None: there was one."""
    jitter: Share | None = None
    """Relative standard deviation of calls on busy cores, by how far two in a row are apart."""
    pooled: Pooled | None = None
    """On several threads, where the strategy that it was measured for has operations use them."""
    work: dict[str, Annotated[float, Field(ge=0.0)]]
    """Counts of priced work of this shape, by the price's name: what other shapes are scaled by."""

    def times(self, factor: float) -> MeasuredOperation:
        """The same with all seconds multiplied."""
        pooled = self.pooled and self.pooled.model_copy(
            update={"seconds": self.pooled.seconds * factor, "cpu": self.pooled.cpu * factor}
        )
        seconds = {"seconds": self.seconds * factor, "alone": self.alone * factor}
        return self.model_copy(update={**seconds, "pooled": pooled})


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
