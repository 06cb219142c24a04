"""Prices from counted work and measured times: relative least squares without negative prices.

An observation says: this much counted work took so many seconds. The prices x minimise

    sum over observations of  w_g * log(counts . x / seconds)^2
  + ridge^2 * sum over prices of (x / prior - 1)^2,   x >= prior / 20

(Gauss and Newton's steps, each by non-negative least squares of what is above the lower limit;
Lawson and Hanson 1974, chapter 23). The square of counts . x / seconds - 1 instead, with which it
begins, would price too low wherever observations scatter: by 1.5 times the variance, because what
came out short counts for more than what came out long. No kernel is free: where timings are noisy,
a price may otherwise vanish because others take over what it stands for, and a larger model would
then be predicted to cost nothing more. A price at the limit says "at most about this" and is 100 %
uncertain. Errors are relative, because a step of 10 ms and one of 10 us matter alike to whoever
predicts them. A group of observations weighs the same however many observations it has (w_g =
weight / size of the group). The mild ridge only decides between prices that the observations cannot
tell apart. Each round weighs down what lies far off (Huber 1964), so that one disturbed timing does
not move every price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from recsim_train.config.cluster import Basis
from recsim_train.workload.arithmetic import Work

Array = NDArray[np.float64]

_RIDGE = 0.004
_LEAST = 0.05
"""Of its prior: less than any present machine pays."""
MOST_UNCERTAIN = 1.0
"""Relative error of a price of which only the magnitude is known: it was measured once, or lies at
a limit of what was searched."""
NOISE = 0.02
"""Relative error below which nothing is claimed to be known: no price, no operation, no run. Half
the range of a setting's repeats is more than that in most validations: 1.2 to 5.4 % in the median
of their settings (`spread` in benchmarks/results/fidelity*/validation.csv)."""
_HUBER = 1.5
_CLOSE = 0.02
_ROUNDS = 4
_RESAMPLES = 100


@dataclass(frozen=True, slots=True)
class Observation:
    """One micro-workload: what it did and how long that took."""

    group: str
    """Observations of one group are resampled and reported together."""
    work: Work
    """Units by price name."""
    seconds: float
    """Median of repeats, > 0."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fitted price."""

    value: float
    """Seconds per unit."""
    uncertainty: float
    """Relative standard error."""
    basis: Basis = "fit"
    """What the uncertainty rests on: see `recsim_train.config.cluster.Price`."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted prices and how well they reproduce what they were fitted to."""

    prices: dict[str, Estimate]
    residuals: dict[str, float]
    """Median absolute relative residual by group."""
    bias: dict[str, float]
    """Median signed relative residual by group: predicted / measured - 1."""
    held_out: float
    """Median absolute relative error on observations that a fit to the other half predicts."""
    errors: dict[str, float]
    """Of the same by group: root mean square of log(predicted / measured)."""


def fit(
    observations: Sequence[Observation],
    priors: Mapping[str, float],
    *,
    weights: Mapping[str, float] | None = None,
) -> Fit:
    """Fit the prices named in ``priors`` (their physical magnitudes, seconds per unit).

    ``weights``: of groups, 1 where not named. Prices that no observation has are left out.
    Raises ValueError for an observation without positive seconds or with a price that has no
    prior, and when there are no observations.
    """
    if not observations:
        raise ValueError("no observations to fit prices to")
    names = list(priors)
    for seen in observations:
        if not seen.seconds > 0.0:
            raise ValueError(f"{seen.group}: took {seen.seconds!r} seconds")
        missing = set(seen.work) - set(names)
        if missing:
            raise ValueError(f"{seen.group}: no prior for {', '.join(sorted(missing))}")
    scale = np.array([priors[name] for name in names])
    # columns in units of the prior: a solution of 1 is "as expected"
    rows = np.array(
        [
            [o.work.get(name, 0.0) * priors[name] / o.seconds for name in names]
            for o in observations
        ],
        dtype=np.float64,
    )
    groups = [o.group for o in observations]
    weigh = weights or {}
    solution = _solve(rows, groups, weigh)
    generator = np.random.default_rng(1)
    samples = np.array(
        [_solve(rows[s], [groups[i] for i in s], weigh) for s in _resamples(groups, generator)]
    )
    spread = samples.std(axis=0, ddof=1) / solution
    free = solution > 1.01 * _LEAST
    used = [bool((rows[:, k] > 0.0).any()) for k in range(len(names))]
    relative = rows @ solution - 1.0
    kept_out = _cross_validate(rows, groups, weigh)
    return Fit(
        prices={
            name: Estimate(float(solution[k] * scale[k]), float(spread[k]))
            if free[k]
            else Estimate(float(solution[k] * scale[k]), MOST_UNCERTAIN, "limit")
            for k, name in enumerate(names)
            if used[k]
        },
        residuals=_by_group(groups, np.abs(relative)),
        bias=_by_group(groups, relative),
        held_out=_typical(np.concatenate([*kept_out.values()])) if kept_out else float("nan"),
        errors={group: float(np.sqrt(np.mean(off * off))) for group, off in kept_out.items()},
    )


def _typical(logs: Array) -> float:
    """Median absolute relative error."""
    return float(np.median(np.abs(np.expm1(logs))))


def _solve(rows: Array, groups: list[str], weigh: Mapping[str, float]) -> Array:
    sizes = {group: groups.count(group) for group in set(groups)}
    base = np.array([np.sqrt(weigh.get(group, 1.0) / sizes[group]) for group in groups])
    weights = base
    ridge = _RIDGE * np.eye(rows.shape[1])
    target = np.full(rows.shape[1], _RIDGE)
    solution = np.ones(rows.shape[1])
    ratio = np.ones(len(rows))
    for turn in range(2 * _ROUNDS):
        near, wanted = rows / ratio[:, None], 1.0 - np.log(ratio)
        matrix = np.vstack([near * weights[:, None], ridge])
        above = np.concatenate([weights * wanted, target]) - matrix.sum(axis=1) * _LEAST
        solution = _LEAST + nnls(matrix, above)[0]
        off = np.abs(np.log(rows @ solution))
        weights = base * eased(off)
        if turn + 1 >= _ROUNDS:  # it is near
            ratio = rows @ solution
    return np.asarray(solution)


def eased(off: Array) -> Array:
    """By how much each observation weighs less that lies so far ``off`` (Huber 1964)."""
    limit = max(_CLOSE, _HUBER * 1.4826 * float(np.median(off)))
    return np.asarray(np.sqrt(np.minimum(1.0, limit / np.maximum(off, 1e-12))))


def _resamples(groups: list[str], generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """Indices drawn with replacement within each group."""
    members = [
        np.array([i for i, g in enumerate(groups) if g == group]) for group in dict.fromkeys(groups)
    ]
    return [
        np.concatenate([generator.choice(m, size=len(m)) for m in members])
        for _ in range(_RESAMPLES)
    ]


def _cross_validate(rows: Array, groups: list[str], weigh: Mapping[str, float]) -> dict[str, Array]:
    """By group, log(predicted / measured) of its observations. Two folds, alternating within each
    group in the order of the grid."""
    turn: defaultdict[str, count[int]] = defaultdict(count)
    fold = np.array([next(turn[group]) % 2 for group in groups])
    found: dict[str, list[float]] = {}
    for held in (0, 1):
        train = [i for i in range(len(groups)) if fold[i] != held]
        if len(train) in (0, len(groups)):
            continue
        solution = _solve(rows[train], [groups[i] for i in train], weigh)
        for i in np.flatnonzero(fold == held).tolist():
            found.setdefault(groups[i], []).append(float(np.log(rows[i] @ solution)))
    return {group: np.array(found[group]) for group in dict.fromkeys(groups) if group in found}


def _by_group(groups: Sequence[str], values: Array) -> dict[str, float]:
    return {
        group: float(np.median([v for g, v in zip(groups, values, strict=True) if g == group]))
        for group in dict.fromkeys(groups)
    }
