"""Operations that were measured at their own shapes, and what they say of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum, hypot
from typing import Literal, NamedTuple

from recsim_train.config.measured import MeasuredOperation
from recsim_train.workload.signature import Signature

Rest = Literal["measured", "scaled", "unit", "guessed"]
"""What the seconds of an operation rest on: its own measured shape; unit prices, scaled by what the
nearest measured shape came to; unit prices; unit prices of work that was never measured."""


class Known(NamedTuple):
    """One measured shape."""

    shape: Signature
    entry: MeasuredOperation

    def priced(self, prices: Mapping[str, float]) -> float:
        """Seconds of the same by unit prices."""
        return fsum(units * prices[name] for name, units in self.entry.work.items())

    @property
    def error(self) -> float:
        """Relative: how far what a run sees may lie from its seconds."""
        return hypot(self.entry.uncertainty, self.entry.spread or 0.0)


class MeasuredOperations:
    """Those of a profile, by operation."""

    def __init__(self, entries: Iterable[MeasuredOperation]) -> None:
        self._known: dict[str, list[Known]] = {}
        for entry in entries:
            known = Known(Signature.parse(entry.shape), entry)
            self._known.setdefault(entry.operation, []).append(known)

    def __contains__(self, operation: str) -> bool:
        return operation in self._known

    def nearest(self, operation: str, shape: Signature) -> Known:
        """The measured shape that is nearest; of equally near ones the first in the profile."""
        return min(self._known[operation], key=lambda known: shape.distance(known.shape))
