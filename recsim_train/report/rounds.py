"""Synchronisation in the background: how many rounds were predicted, and how many were done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_train.report import text
from recsim_train.results.rundir import RunRecord
from recsim_train.results.statistics import median


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds per second of one background loop, medians of repeats."""

    predicted: float
    measured: float

    @property
    def signed_error(self) -> float:
        """Predicted / measured - 1: positive where too many rounds are predicted."""
        return self.predicted / self.measured - 1

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        return (
            f"a background loop does {text.number(self.predicted, 1)} rounds per second predicted, "
            f"{text.number(self.measured, 1)} measured: "
            f"{text.percent(self.signed_error, signed=True)}"
        )


def rounds_of(simulated: Sequence[RunRecord], real: Sequence[RunRecord]) -> Rounds | None:
    """None where there are no background loops, or a world ended none of their rounds."""
    predicted, measured = _of(simulated), _of(real)
    return Rounds(predicted, measured) if predicted and measured else None


def _of(records: Sequence[RunRecord]) -> float | None:
    found = [record.summary.synchronisation.rounds_per_second for record in records]
    known = [value for value in found if value is not None]
    return median(known) if len(known) == len(found) else None
