"""What predictions of calibration's own runs miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import expm1, fsum, log, sqrt
from statistics import fmean, median

from recsim_train.calibration.fit import NOISE
from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput
from recsim_train.trace.ledger import Ledger
from recsim_train.trace.record import Outcome


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run of a program of calibration's own, to hold a prediction against."""

    plan: Plan
    examples_per_second: float
    ledger: Ledger

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
        return cls(plan, eps, ledger)

    def times(self, factor: float) -> OwnRun:
        """The same in so many times the seconds, of which the ledger keeps its shares."""
        return replace(self, examples_per_second=self.examples_per_second / factor)


def wander(runs: Sequence[OwnRun]) -> float | None:
    """As `recsim_train.config.cluster.Cluster.wander`, the mean; None: the system does not say."""
    uses = [own.ledger.machine for own in runs]
    found = [use.wander for use in uses if use is not None and use.wander is not None]
    return fmean(found) if found else None


Predict = Callable[[OwnRun, Cluster], tuple[float, float]]
"""Examples per second of such a run's plan at the profile's speed, in which operations take what
they took in the run, and the relative standard error of that as far as it is known: what the
profile says of its errors, and for how long it was simulated."""


_FAR = 2.0 * 1.4826
"""Median absolute errors: two standard deviations, were they normal."""


@dataclass(frozen=True, slots=True)
class Missed:
    """By how much predictions of own runs miss: logarithms of predicted / measured."""

    each: tuple[float, ...]
    beyond: float
    """As `recsim_train.config.cluster.Calibration.own_error`."""

    def __str__(self) -> str:
        off = sorted(abs(expm1(miss)) for miss in self.each)
        return f"median error {median(off):.0%}, largest {off[-1]:.0%}, of {len(off)} runs"


def own_error(runs: Sequence[OwnRun], cluster: Cluster, predict: Predict) -> Missed | None:
    """What predictions of these runs miss, and what of it their known errors do not explain; None:
    there are none. The runs are those that `OwnRun.times` has brought to the profile's speed.

    By the moments of (log error)^2 about 0, because a bias misses, too, weighted with what is
    known of the prediction: DerSimonian and Laird's estimate of what is between studies
    (Controlled Clinical Trials 7 (1986) 177), with predictions for studies. How a run scatters
    around its own mean is not taken off: intervals are there to hold runs against. What is farther
    off than `_FAR` counts as if it were no farther, so that one run that the machine disturbed does
    not decide.
    """
    if not runs:
        return None
    misses, errors = [], []
    for own in runs:
        eps, error = predict(own, cluster)
        misses.append(log(eps / own.examples_per_second))
        errors.append(error)
    far = _FAR * median(map(abs, misses))
    weights = [1.0 / (NOISE * NOISE + e * e) for e in errors]
    excess = [min(m * m, far * far) - e * e for m, e in zip(misses, errors, strict=True)]
    whole = fsum(w * x for w, x in zip(weights, excess, strict=True)) / fsum(weights)
    return Missed(tuple(misses), min(1.0, sqrt(max(0.0, whole))))
