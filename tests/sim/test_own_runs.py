"""Predictions of calibration's own runs have operations as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.cluster import Calibration, Cluster
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.prediction import predict
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import standard_error
from recsim_train.session import own_runs
from recsim_train.session.own_runs import predicted
from recsim_train.strategy.operations import FORWARD_BACKWARD
from recsim_train.trace.ledger import ASKING, REQUESTS, RUNTIME, TRANSPORT, Ledger
from recsim_train.trace.record import Outcome

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]


def done(
    plans: Plans,
    cluster: Cluster,
    outcome_of: OutcomeOf,
) -> OwnRun:
    training = {"steps": 120, "warmup_steps": 10, "batch_size": 256}
    plan = plans("flat_ps", roles={"trainers": 2}, training=training)
    outcome = outcome_of(plan, cluster)
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    assert outcome.facts.ledger is not None
    return OwnRun(plan, outcome.speed.examples_per_second, outcome.facts.ledger)


def dearer(cluster: Cluster, factor: float) -> Cluster:
    """Matrix products, which are nothing but operations, take so many times as long."""
    price = cluster.costs.gemm_flop
    more = {"gemm_flop": price.model_copy(update={"value": factor * price.value})}
    return cluster.model_copy(update={"costs": cluster.costs.model_copy(update=more)})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What `predicted` simulates, in turn."""
    outcomes: list[Outcome] = []

    def simulated(case: Case) -> Outcome:
        outcomes.append(predict(case))
        return outcomes[-1]

    monkeypatch.setattr(own_runs, "predict", simulated)
    return outcomes


def test_operations_take_what_they_took_in_the_run(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, made: list[Outcome]
) -> None:
    """Planted: the machine's matrix products take five times what the profile's prices say."""
    cluster = clusters(cores=2, colocate=True)
    own = done(plans, dearer(cluster, 5.0), outcome_of)
    predicted(own, cluster)

    def passes(ledger: Ledger | None) -> float:
        assert ledger is not None
        return ledger.spent(FORWARD_BACKWARD.name) / ledger.spent(RUNTIME)

    before, last = passes(made[0].facts.ledger), passes(made[-1].facts.ledger)
    assert before < 0.8 * passes(own.ledger)
    assert last == pytest.approx(passes(own.ledger), rel=0.01)


def test_how_long_they_were_simulated_makes_them_unsure(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, made: list[Outcome]
) -> None:
    cluster = clusters(cores=2, colocate=True)
    own = done(plans, cluster, outcome_of)
    said = predicted(own, cluster)
    assert made[-1].speed is not None
    assert said.error >= standard_error(made[-1].speed) > 0.0


@pytest.mark.parametrize("dearer_calls", [1.0, 4.0])
def test_what_is_around_operations_is_the_rest_of_the_ledger(
    dearer_calls: float,
    plans: Plans,
    clusters: Clusters,
    outcome_of: OutcomeOf,
    made: list[Outcome],
) -> None:
    cluster = clusters(cores=2, colocate=True)
    price = cluster.costs.effect
    more = {"effect": price.model_copy(update={"value": dearer_calls * price.value})}
    cluster = cluster.model_copy(update={"costs": cluster.costs.model_copy(update=more)})
    said = predicted(done(plans, cluster, outcome_of), cluster)
    ledger = made[-1].facts.ledger
    assert ledger is not None
    rest = [
        ledger.spent(what)
        for what in (RUNTIME, ASKING, REQUESTS, TRANSPORT)  # all that flat_ps has besides
    ]
    assert said.share_around == pytest.approx(
        sum(rest) / sum(line.seconds for line in ledger.lines)
    )
    assert 0.01 < said.share_around < 0.9


def test_the_machines_speed_makes_them_no_less_sure(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(cores=2, colocate=True)
    own = done(plans, cluster, outcome_of)

    def speed(level: float) -> MachineSpeed:
        return MachineSpeed(**dict.fromkeys(MachineSpeed.model_fields, level))

    moved = MachineSpeeds(before=speed(0.5), after=speed(1.5))

    def error(speeds: MachineSpeeds | None) -> float:
        known = Calibration(date="2026-11-24", machine="a machine", machine_speed=speeds)
        return predicted(own, cluster.model_copy(update={"calibration": known})).error

    assert moved.spread is not None
    assert moved.spread > 0.3
    assert error(moved) == pytest.approx(error(None))
