"""Predictions of calibration's own runs."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from recsim_train.calibration.own_runs import OwnRun, Said
from recsim_train.config.cluster import Cluster
from recsim_train.config.measured import MeasuredOperation
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import standard_error
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.run import operations_of, simulate
from recsim_train.trace.ledger import Ledger, share_around
from recsim_train.trace.record import Outcome
from recsim_train.workload.arithmetic import add
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature

_STEPS, _WHAT_IF_STEPS = 400, (20, 5)
"""Counted iterations of a prediction, at most, and of the short runs that tell how unsure it is,
the latter also for a quick calibration."""
_TURNS = 2
"""In which operations are brought to what they took: who shares the cores with whom changes it."""


def predicted(own: OwnRun, cluster: Cluster, *, quick: bool = False) -> Said:
    """`recsim_train.calibration.own_runs.Predict`, by the simulator.

    With operations as they were in the run, what is off is the model of everything else. How fast
    the machine was at that moment is part of what is off, and no known error.
    """
    plain = cluster.model_copy(update={"operations": None})
    training = own.plan.experiment.training
    spec = own.plan.experiment.having("training", steps=min(training.steps, _STEPS))
    plan = replace(own.plan, experiment=spec)
    seen = _per_example(own.ledger, own.examples_per_second)
    operations = _unscaled(plan, plain)
    for turn in range(_TURNS):
        priced = plain.model_copy(update={"operations": operations if turn else None})
        outcome = simulate(plan, priced)
        assert outcome.facts.ledger is not None
        took = _per_example(outcome.facts.ledger, _rate(outcome))
        operations = tuple(
            one.times(seen[one.operation] / took[one.operation])
            for one in operations
            if one.operation in seen and one.operation in took
        )
    spec = plan.experiment.having("simulation", what_if_steps=_WHAT_IF_STEPS[quick])
    told = plain.model_copy(update={"operations": operations})
    outcome = simulate(replace(plan, experiment=spec), told)
    errors, ledger = outcome.facts.calibration_errors, outcome.facts.ledger
    assert outcome.speed is not None
    assert ledger is not None
    known = [errors[cause] for cause in errors if cause != "speed"]
    share = share_around((line.what, line.seconds) for line in ledger.lines)
    return Said(_rate(outcome), hypot(standard_error(outcome.speed), *known), share)


def _unscaled(plan: Plan, plain: Cluster) -> tuple[MeasuredOperation, ...]:
    """The plan's operations at what unit prices make of them."""
    pricing = Pricing(plan.experiment, plain, plan.examples)
    found = []
    for name, scope in operations_of(plan, plain):
        seconds = pricing.shaped(name, scope)[0]
        found.append(
            MeasuredOperation.model_construct(
                operation=name,
                shape=str(signature(name, scope)),
                seconds=seconds,
                alone=seconds,
                uncertainty=0.0,
                work=cost(name, scope),
            )
        )
    return tuple(found)


def _rate(outcome: Outcome) -> float:
    """Examples per second of one that has come far enough."""
    assert outcome.speed is not None
    eps = outcome.speed.examples_per_second
    assert eps is not None
    return eps


def _per_example(ledger: Ledger, rate: float) -> dict[str, float]:
    """CPU seconds of one example by operation."""
    return add(*({what: s} for (_, what), s in ledger.per_example(rate).items()))
