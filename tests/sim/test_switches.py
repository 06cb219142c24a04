"""What a woken thread takes from the one whose core it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, InRuns
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

SERVED = {"trainers": 2, "embedding_servers": 1, "dense_servers": 1}


@pytest.fixture
def outcomes(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> Callable[..., Outcome]:
    def make(cores: int, switch: str, **more: Any) -> Outcome:
        plan = plans(roles=SERVED, training={"steps": 20, "warmup_steps": 4}, **more)
        cluster = clusters(prices={"switch": switch}, cores=cores, colocate=True)
        return outcome_of(plan, cluster)

    return make


Pair = Callable[[int, str], tuple[Outcome, Outcome]]
"""By cores and price: without a price of switches and with it."""


@pytest.fixture(params=["tcp", "gloo"])
def pair(outcomes: Callable[..., Outcome], request: pytest.FixtureRequest) -> Pair:
    more = {"execution": {"transport": request.param}}
    return lambda cores, price: (outcomes(cores, "0 s", **more), outcomes(cores, price, **more))


def spent(outcome: Outcome) -> dict[tuple[str, str], float]:
    assert outcome.facts.ledger is not None
    return outcome.facts.ledger.rows()


def test_where_a_core_is_free_nothing_is_taken(pair: Pair) -> None:
    calm, disturbed = pair(64, "80 us")
    assert spent(calm) == spent(disturbed)
    assert calm.iterations == disturbed.iterations


def test_where_all_cores_work_each_message_takes_it_from_the_longest_work(pair: Pair) -> None:
    calm, disturbed = pair(1, "1 us")
    before, after = spent(calm), spent(disturbed)
    key = "trainer", "forward_backward"
    assert after[key] > before[key]
    for other in before.keys() - {key}:
        assert after[other] == pytest.approx(before[other], rel=0.05), other
    # of 6 messages of an iteration some come while the one core works: fewer over gloo, where
    # whoever sends waits until they have arrived
    taken = (after[key] - before[key]) / (2 * 20)
    assert 1.0e-6 < taken < 6.5e-6
    ledger = disturbed.facts.ledger
    assert ledger is not None
    assert abs(ledger.remainder) < 0.03 * ledger.total


def test_where_a_profile_says_what_passes_take_in_runs_switches_are_in_it(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles=SERVED, training={"steps": 20, "warmup_steps": 4})
    law = InRuns()
    free, dear = (
        outcome_of(plan, clusters(prices={"switch": price}, cores=1, colocate=True, in_runs=law))
        for price in ("0 s", "1 ms")
    )
    assert spent(free) == spent(dear)


def test_twice_the_price_takes_twice_as_much(outcomes: Callable[..., Outcome]) -> None:
    speeds = [outcomes(1, price).speed for price in ("0 s", "20 us", "40 us")]
    rates = [speed.examples_per_second for speed in speeds if speed is not None]
    assert rates[0] > rates[1] > rates[2]
    lost = [1 / rate - 1 / rates[0] for rate in rates[1:]]
    assert lost[1] == pytest.approx(2 * lost[0], rel=0.15)
