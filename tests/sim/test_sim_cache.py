"""Caches in the simulator: what a size buys, what does not fit, what is said about the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import Plan
from recsim_train.sim.host.memory import memory_of_all
from recsim_train.trace.facts import Cached
from recsim_train.trace.record import Outcome
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
MODEL = {"tables": ({"rows": 4000}, {"rows": 2000}, {"rows": 50})}


def plan_of(
    plans: Plans, trainers: int = 2, servers: int = 1, model: Any = MODEL, **options: Any
) -> Plan:
    roles = {"trainers": trainers, "embedding_servers": servers}
    return plans("scalefreectr", options, model=model, roles=roles)


def figures(outcome: Outcome) -> Cached:
    assert outcome.facts.cache is not None
    return outcome.facts.cache


def seconds(outcome: Outcome) -> float:
    return max(i.end for i in outcome.iterations)


def test_equal_inputs_give_equal_outcomes(plans: Plans, clusters: Clusters) -> None:
    first, second = (simulate(plan_of(plans, cache_rows=300), clusters()) for _ in range(2))
    assert repr(dataclasses.astuple(first)) == repr(dataclasses.astuple(second))
    assert len(first.iterations) == 2 * 23
    assert {i.loop for i in first.iterations} == {"trainer[0].worker[0]", "trainer[1].worker[0]"}


def test_a_larger_cache_hits_more_often_and_hides_the_way_to_the_servers(
    plans: Plans, clusters: Clusters, equal_shares: None
) -> None:
    # bytes are what is far: of latencies most are the collectives', which no cache hides
    far = clusters(network={"latency": "500 us"}, nic="20 Mbit/s")
    none, small, full = (
        simulate(plan_of(plans, **options), far)
        for options in ({"cache": False}, {"cache_rows": 200}, {"cache_share": 1.0})
    )
    assert figures(none).hit_rate == 0.0
    assert 0.0 < figures(small).hit_rate < figures(full).hit_rate < 1.0
    assert figures(none).probed == figures(full).probed
    assert figures(full).evicted == 0 < figures(small).evicted
    assert seconds(none) > 1.3 * max(seconds(small), seconds(full))


def test_stages_overlap(plans: Plans, clusters: Clusters) -> None:
    """An iteration of the pipeline takes less than its loops' work one after the other."""
    outcome = simulate(plan_of(plans, cache_rows=200), clusters(nic="100 Mbit/s"))
    busy = sum(
        total.seconds
        for key, total in outcome.totals.items()
        if key.instance == "trainer[0]" and key.effect not in ("take", "put", "next_batch")
    )
    counted = [
        i for i in outcome.iterations if i.iteration >= 3 and i.loop.startswith("trainer[0]")
    ]
    assert max(i.end for i in counted) - min(i.start for i in counted) < 0.9 * busy


def test_a_cache_that_can_not_start_is_the_users_error(plans: Plans, clusters: Clusters) -> None:
    with pytest.raises(UserError, match=r"cache of 30 rows per trainer cannot hold two steps"):
        simulate(plan_of(plans, cache_rows=30), clusters())


def test_a_later_step_that_does_not_fit_is_said_before_the_prediction_starts(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recsim_train.data.replay.check_cache", lambda *_: None)
    with pytest.raises(UserError, match=r"^the cache of 30 rows per trainer can"):
        simulate(plan_of(plans, cache_rows=30), clusters())


def test_it_says_when_a_parameter_server_would_send_less(plans: Plans, clusters: Clusters) -> None:
    def said(**roles: Any) -> list[str]:
        outcome = simulate(plan_of(plans, cache_share=1.0, **roles), clusters())
        return [w for w in outcome.facts.warnings if "never measured" not in w]

    assert "expect that one to be faster" in said(trainers=4, servers=4)[0]
    # all trainers need much the same rows, and all would ask the one server for them
    popular = {"tables": ({"rows": 60},) * 3}
    assert said(trainers=8, servers=1, model=popular) == []
    assert said(trainers=1, servers=1) == []  # nothing is summed up over the network


def test_a_cache_needs_memory(plans: Plans) -> None:
    plan = plan_of(plans, cache_rows=500)
    trainer = plan.of_role("trainer")[0]
    # 500 slots of 8 floats, a state and 16 bytes of books; 4 bytes for each of 3,025 own rows
    assert (
        memory_of_all(plan, [(trainer, 0.0)])[0].parts["cache"] == 500 * (8 * 4 + 4 + 16) + 4 * 3025
    )
    assert "cache" not in memory_of_all(plans("allreduce"), [(trainer, 0.0)])[0].parts
