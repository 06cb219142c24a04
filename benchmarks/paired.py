"""Statistics of interleaved measurements: ratios within a round, their median, its interval, bars.

A machine's speed drifts by tens of per cent within minutes, so only what was measured in one round
is compared; rounds are the sample. The interval of the median is that of the sign test, which
assumes nothing of how ratios are distributed: with n of them in order it reaches from the k-th
lowest to the k-th highest, k as large as 95 % allow (Conover, Practical Nonparametric Statistics,
section 3.2). Fewer than six rounds have no such interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binom

CONFIDENCE = 0.95
SLACK = 0.05
"""How far below a bar the lower end of the interval may lie."""


@dataclass(frozen=True, slots=True)
class Median:
    """The median of a sample, and its interval."""

    value: float
    low: float
    high: float
    count: int
    coverage: float
    """Probability that the interval holds the true median; below `CONFIDENCE` it is the range."""

    @property
    def sure(self) -> bool:
        """Whether there were enough values."""
        return self.coverage >= CONFIDENCE

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} .. {self.high:.3f})"


def median_of(values: Sequence[float]) -> Median | None:
    """None for no values."""
    if not values:
        return None
    ordered, n = sorted(values), len(values)
    k = max(1, int(binom.ppf((1 - CONFIDENCE) / 2, n, 0.5)))  # from either end
    coverage = 1 - 2 * float(binom.cdf(k - 1, n, 0.5))
    return Median(statistics.median(ordered), ordered[k - 1], ordered[n - k], n, coverage)


def ratios(of: Mapping[int, float | None], over: Mapping[int, float | None]) -> dict[int, float]:
    """Ratio of each round in which both were measured, by round."""
    return {
        number: value / base
        for number, value in sorted(of.items())
        if value is not None and (base := over.get(number))
    }


def verdict(ratio: Median | None, bar: float | None) -> str:
    """In words: met, missed, or why it cannot be said; nothing without a bar."""
    if bar is None:
        return ""
    if ratio is None:
        return "not measured"
    if not ratio.sure:
        return f"too few rounds ({ratio.count})"
    return "met" if ratio.value >= bar and ratio.low >= bar - SLACK else "**missed**"
