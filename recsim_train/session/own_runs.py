"""Predictions of calibration's own runs."""

from __future__ import annotations

from math import hypot

from recsim_train.calibration.own_runs import OwnRun, Said
from recsim_train.config.cluster import Cluster
from recsim_train.config.measured import MeasuredOperation
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import OWN, OWN_QUICK, at
from recsim_train.evaluate.prediction import predict
from recsim_train.evaluate.simulations import operations_of
from recsim_train.results.statistics import standard_error
from recsim_train.sim.pricing import Pricing
from recsim_train.trace.ledger import Ledger, share_around
from recsim_train.trace.record import Outcome
from recsim_train.workload.arithmetic import add
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature

_TURNS = 2
"""In which operations are brought to what they took: who shares the cores with whom changes it."""


def predicted(own: OwnRun, cluster: Cluster, *, quick: bool = False) -> Said:
    """`recsim_train.calibration.own_runs.Predict`, by the simulator.

    With operations as they were in the run, what is off is the model of everything else. How fast
    the machine was at that moment is part of what is off, and no known error.
    """
    case = at(Case.of(own.plan, cluster), OWN_QUICK if quick else OWN)
    plain = case.with_({"simulation.what_if_steps": None, "cluster.operations": None})
    seen = _per_example(own.ledger, own.examples_per_second)
    operations = _unscaled(plain)
    for turn in range(_TURNS):
        outcome = predict(plain.with_({"cluster.operations": operations if turn else None}))
        assert outcome.facts.ledger is not None
        took = _per_example(outcome.facts.ledger, _rate(outcome))
        operations = tuple(
            one.times(seen[one.operation] / took[one.operation])
            for one in operations
            if one.operation in seen and one.operation in took
        )
    outcome = predict(case.with_({"cluster.operations": operations}))
    errors, ledger = outcome.facts.calibration_errors, outcome.facts.ledger
    assert outcome.speed is not None
    assert ledger is not None
    known = [errors[cause] for cause in errors if cause != "speed"]
    share = share_around((line.what, line.seconds) for line in ledger.lines)
    return Said(_rate(outcome), hypot(standard_error(outcome.speed), *known), share)


def _unscaled(plain: Case) -> tuple[MeasuredOperation, ...]:
    """The operations at what unit prices make of them."""
    pricing = Pricing(plain.experiment, plain.cluster, plain.plan.examples)
    found = []
    for name, scope in operations_of(plain):
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
