"""A whole training at a predicted throughput: how long it takes, and what its hosts cost."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_train.results.figures import Summary
from recsim_train.results.interval import Interval, of_summary
from recsim_train.trace.facts import Rented

BILLION = 1e9
"""Examples that a cost is said of."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Training on so many examples. Ends of intervals are those of the prediction's 90 % one."""

    examples: float
    seconds: float
    seconds90: tuple[float, float] | None
    cost: float | None = None
    """None: not all hosts have a price."""
    cost90: tuple[float, float] | None = None
    currency: str | None = None


def whole_training(summary: Summary, examples: float) -> Whole | None:
    """None where there is no throughput. What goes on beside training (evaluation, checkpoints,
    starting) is not in it."""
    eps = summary.examples_per_second
    return whole_of(examples, eps, of_summary(summary), summary.facts.rented) if eps else None


def whole_of(examples: float, eps: float, rates: Interval | None, rented: Rented | None) -> Whole:
    """At ``eps`` examples per second, of which ``rates`` are the 90 % interval."""
    ends = None if rates is None or not rates[0] else (examples / rates[1], examples / rates[0])
    if rented is None:
        return Whole(examples, examples / eps, ends)
    costs = None if ends is None else (rented.cost(ends[0]), rented.cost(ends[1]))
    seconds = examples / eps
    return Whole(examples, seconds, ends, rented.cost(seconds), costs, rented.currency)
