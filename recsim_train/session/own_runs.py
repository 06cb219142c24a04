"""Predictions of calibration's own runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import hypot

from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.cluster import Cluster
from recsim_train.config.measured import MeasuredOperation
from recsim_train.placement.plan import Plan
from recsim_train.sim.asked import operations_of
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.run import simulate
from recsim_train.trace.ledger import Ledger
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature

_STEPS, _WHAT_IF_STEPS = 160, 5
"""Counted iterations of a prediction, at most, and of the short runs that tell how unsure it is."""


def predicted(own: OwnRun, cluster: Cluster) -> tuple[float, float]:
    """`recsim_train.calibration.own_runs.Predict`, by the simulator.

    With operations as they were in the run, what is off is the model of everything else.
    """
    plain = cluster.model_copy(update={"operations": None})
    plan = _shorter(own.plan)
    first = simulate(plan, plain)
    assert first.facts.ledger is not None
    seen = _per_example(own.ledger, own.examples_per_second)
    priced = _per_example(first.facts.ledger, _rate(first))
    pricing = Pricing(plan.experiment, plain, plan.examples)
    operations = []
    for name, scope in operations_of(plan, plain):
        if name in seen and name in priced:
            seconds = pricing.shaped(name, scope)[0] * seen[name] / priced[name]
            operations.append(
                MeasuredOperation.model_construct(
                    operation=name,
                    shape=str(signature(name, scope)),
                    seconds=seconds,
                    alone=seconds,
                    uncertainty=0.0,
                    work=cost(name, scope),
                )
            )
    asked = plan.experiment.simulation.model_copy(update={"what_if_steps": _WHAT_IF_STEPS})
    spec = plan.experiment.model_copy(update={"simulation": asked})
    outcome = simulate(
        replace(plan, experiment=spec),
        plain.model_copy(update={"operations": tuple(operations)}),
    )
    return _rate(outcome), hypot(*outcome.facts.calibration_errors.values())


def _shorter(plan: Plan) -> Plan:
    """The same for a few steps."""
    rules = plan.experiment.training
    fewer = rules.model_copy(update={"steps": min(rules.steps, _STEPS)})
    return replace(plan, experiment=plan.experiment.model_copy(update={"training": fewer}))


def _rate(outcome: Outcome) -> float:
    """Examples per second of one that has come far enough."""
    assert outcome.speed is not None
    eps = outcome.speed.examples_per_second
    assert eps is not None
    return eps


def _per_example(ledger: Ledger, rate: float) -> dict[str, float]:
    """CPU seconds of one example by operation."""
    found: defaultdict[str, float] = defaultdict(float)
    for (_, what), seconds in ledger.per_example(rate).items():
        found[what] += seconds
    return found
