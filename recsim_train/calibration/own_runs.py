"""What predictions of calibration's own runs miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, inf, log, sqrt
from statistics import median
from typing import NamedTuple

from recsim_train.calibration.fit import NOISE
from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput
from recsim_train.trace.ledger import Ledger
from recsim_train.trace.record import Outcome, Total, TotalKey


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run of a program of calibration's own, to hold a prediction against."""

    plan: Plan
    examples_per_second: float
    ledger: Ledger
    totals: Mapping[TotalKey, Total] = field(default_factory=dict)
    """What its counted iterations did."""

    @classmethod
    def of(cls, plan: Plan, outcome: Outcome) -> OwnRun:
        """A run that has ended."""
        rules, ledger = plan.experiment.training, outcome.facts.ledger
        speed = throughput(
            outcome.iterations,
            warmup=rules.warmup_steps, steps=rules.steps, batch_size=rules.batch_size,
        )  # fmt: skip
        eps = speed.examples_per_second
        assert eps is not None
        assert ledger is not None
        return cls(plan, eps, ledger, outcome.totals)


class Said(NamedTuple):
    """A prediction of such a run, with operations as they were in it."""

    examples_per_second: float
    error: float
    """Relative standard error, as far as it is known: what the profile says of its errors, and for
    how long it was simulated."""
    share_around: float
    """Of all CPU seconds, what is around operations (`recsim_train.trace.ledger.share_around`)."""


Predict = Callable[[OwnRun, Cluster], Said]


_FAR, _ROUNDS = 2.0, 40
"""Standard deviations at which what is farther off is cut (as by Huber's second proposal, Robust
Statistics (1981): there at 1.5; at 2 a variance of normal errors comes out 8 % too small, not 22);
how often these are estimated, each time with those of before."""


@dataclass(frozen=True, slots=True)
class Missed:
    """By how much predictions of own runs miss: logarithms of predicted / measured."""

    each: tuple[float, ...]
    beyond: float
    """As `recsim_train.config.cluster.Calibration.own_error`."""

    def __str__(self) -> str:
        off = sorted(abs(expm1(miss)) for miss in self.each)
        return f"median error {median(off):.0%}, largest {off[-1]:.0%}, of {len(off)} runs"


def own_error(
    runs: Sequence[OwnRun],
    cluster: Cluster,
    predict: Predict,
    tick: Callable[[], object] = lambda: None,
) -> Missed | None:
    """What predictions of these runs miss, and what of it their known errors do not explain; None:
    there are none.

    Operations are as they were, so that all that is missed is of what is around them, and is taken
    to grow with its share of the CPU seconds, waiting included. By the moments of (log error)^2
    about 0, because a bias misses, too, weighted with what is known of the prediction: DerSimonian
    and Laird's estimate of what is between studies (Controlled Clinical Trials 7 (1986) 177), with
    predictions for studies. How a run scatters around its own mean is not taken off, nor how fast
    the machine was just then: intervals are there to hold runs against. What is farther off than
    `_FAR` standard deviations, as the result has them, counts as if it were no farther, so that one
    run that the machine disturbed does not decide. At most 1.
    """
    if not runs:
        return None
    said = []
    for own in runs:
        said.append(predict(own, cluster))
        tick()
    misses = [
        log(one.examples_per_second / own.examples_per_second)
        for one, own in zip(said, runs, strict=True)
    ]
    found = inf
    for _ in range(_ROUNDS):
        above = below = 0.0
        for one, miss in zip(said, misses, strict=True):
            claimed, share = one.error * one.error, one.share_around * one.share_around
            far = _FAR * _FAR * (claimed + found * share) if share else inf
            weight = 1.0 / (NOISE * NOISE + claimed)
            above += weight * (min(miss * miss, far) - claimed)
            below += weight * share
        found = max(0.0, above / below) if below else 0.0
    return Missed(tuple(misses), min(1.0, sqrt(found)))
