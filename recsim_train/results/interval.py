"""The 90 % interval of a prediction, the same in reports, winners, sweeps and validations.

A prediction has two errors that know nothing of each other: its simulation ended after so many
steps, and its prices have the calibration's errors. Each is known as a 95 % interval; together they
count in quadrature, on either side by itself. What validations found true of nine in ten
measurements (docs/explain/how-true.md) is this interval, so no other is shown of a whole
prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log

from recsim_train.results.statistics import Z95, Z975
from recsim_train.results.summary import Summary

Interval = tuple[float, float]
Ends = Sequence[float | None] | None
"""Of an interval; None, or with None in it: not known."""
_NARROWER = Z95 / Z975
"""From a 95 % interval to a 90 % one, both of a normal distribution."""


def interval(
    eps: float,
    simulation: Ends,
    calibration: Ends,
    seeds: Sequence[float] = (),
) -> Interval | None:
    """90 % interval of predicted examples per second; None where calibration's part of it is not
    known: the other part alone would pass for a whole one.

    ``simulation``, ``calibration``: 95 % intervals around ``eps`` by either error alone;
    ``seeds``: what all seeds of the same came to, a range that widens the first.
    """
    simulated, priced = _known(simulation), _known(calibration)
    if priced is None:
        return None
    if len(seeds) > 1:
        each = [(min(seeds), max(seeds)), *((simulated,) if simulated else ())]
        simulated = min(low for low, _ in each), max(high for _, high in each)
    known = [priced, *((simulated,) if simulated else ())]
    below = _NARROWER * hypot(*(max(0.0, eps - low) for low, _ in known))
    above = _NARROWER * hypot(*(max(0.0, high - eps) for _, high in known))
    return max(0.0, eps - below), eps + above


def _known(ends: Ends) -> Interval | None:
    if not ends or ends[0] is None or ends[1] is None:
        return None
    return ends[0], ends[1]


def ended(eps: float | None, simulation: Ends) -> float | None:
    """Relative standard error that a prediction of ``eps`` examples per second has because it
    ended, by its 95 % interval; None: not known."""
    ends = _known(simulation)
    return (ends[1] - ends[0]) / (2.0 * Z975 * eps) if ends and eps else None


def of_summary(summary: Summary, seeds: Sequence[float] = ()) -> Interval | None:
    """`interval` of a prediction's run; of a measured one, which has no prices, 90 % of what its
    windows show."""
    eps = summary.examples_per_second
    if eps is None:
        return None
    if summary.world == "real":
        return interval(eps, None, summary.ci95)
    return interval(eps, summary.ci95, summary.facts.calibration_ci95, seeds)


_OWN = ("model", "links")
"""Causes of error that two strategies do not share."""
_EQUAL = 1e-9
"""Relative: throughputs without any error tie where they differ by rounding."""
_TOGETHER = "all together"
"""All causes together, where they are not known one by one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A throughput, and what tells how far it can be trusted."""

    eps: float
    """Examples per second."""
    noise: float | None
    """Relative standard error by chance; None: not known."""
    errors: Mapping[str, float] | None
    """The same by each cause that repetition leaves as it is; None: not known, empty: there is
    none."""
    prices: str | None
    """The profile whose prices it has."""
    strategy: str
    """With its options."""


def evidence(
    eps: float,
    simulation: Ends,
    calibration: Ends,
    errors: Mapping[str, float] | None,
    *,
    prices: str | None,
    strategy: str,
    seeds: Sequence[float] = (),
) -> Evidence:
    """Of a prediction. Arguments as of `interval`; ``errors``: by cause."""
    noise, whole = ended(eps, simulation), ended(eps, calibration)
    if len(seeds) > 1 and eps:
        noise = max(noise or 0.0, (max(seeds) - min(seeds)) / (2.0 * Z975 * eps))
    causes = errors or (None if whole is None else {_TOGETHER: max(0.0, whole)})
    return Evidence(eps, noise, causes, prices, strategy)


def tie(one: Evidence, other: Evidence) -> bool:
    """Whether two throughputs differ by no more than chance and calibration's errors make.

    What errs in both alike moves both alike: of causes that they share only by how much one answers
    more to it counts. Where nothing is known of one's errors nothing is told apart.
    """
    if one.errors is None or other.errors is None or not one.eps or not other.eps:
        return True
    alike, same = one.prices == other.prices, one.strategy == other.strategy
    apart = []
    for cause in {*one.errors, *other.errors}:
        mine, theirs = one.errors.get(cause, 0.0), other.errors.get(cause, 0.0)
        shared = alike and cause != _TOGETHER and (same or cause not in _OWN)
        apart.append(mine - theirs if shared else hypot(mine, theirs))
    noise = [one.noise or 0.0, other.noise or 0.0]
    return abs(log(one.eps / other.eps)) <= Z95 * hypot(*noise, *apart) + _EQUAL
