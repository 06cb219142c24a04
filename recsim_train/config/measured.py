"""Operations measured at their own shapes, as a cluster profile has them."""

from __future__ import annotations

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
