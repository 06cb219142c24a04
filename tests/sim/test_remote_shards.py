"""Bounds of shards in trainers, as if servers had most of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.evaluate import asymptotic
from recsim_train.evaluate.asymptotic import RemoteShards, asymptotic_bounds, with_remote_shards
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import BOUND, at
from recsim_train.placement.plan import Plan
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

ALIKE = [{"rows": 2000, "ids": 3}] * 20
UNLIKE = [{"rows": 50000, "ids": 1}] * 3 + [{"rows": 100, "ids": 10}] * 50


def plan_of(plans: Plans, kind: str, trainers: int = 40, tables: Any = ALIKE, **roles: int) -> Plan:
    options = {"hosts": 2} if kind == "hierarchical" else {}
    spread = {"trainers": trainers, "embedding_servers": 0, "dense_servers": 0, **roles}
    return plans(
        kind,
        options,
        model={"tables": tables},
        training={"batch_size": 256, "threads": 4, "steps": 30, "warmup_steps": 2},
        roles=spread,
        data={"eval_rows": 0},
        simulation={"what_if_steps": 0},
    )


def apart_from(plan: Plan, cluster: Cluster) -> RemoteShards | None:
    return with_remote_shards(at(Case.of(plan, cluster), BOUND))


def bounds_of(plan: Plan, cluster: Cluster) -> dict[str, float]:
    return dict(asymptotic_bounds(Case.of(plan, cluster)).bounds)


def at_all(plan: Plan, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Bounds by all trainers."""
    with monkeypatch.context() as patched:
        patched.setattr(asymptotic, "with_remote_shards", lambda _: None)
        return bounds_of(plan, cluster)


@pytest.mark.parametrize("tables", [ALIKE, UNLIKE], ids=["alike", "unlike"])
@pytest.mark.parametrize(("trainers", "together"), [(10, 1), (40, 1), (40, 4)])
@pytest.mark.parametrize(
    "kind", ["flat_ps", "shadowsync", "allreduce", "localsgd", "hierarchical", "scalefreectr"]
)
def test_bounds_are_those_by_all_trainers(
    kind: str,
    trainers: int,
    together: int,
    tables: Any,
    plans: Plans,
    clusters: Clusters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(plans, kind, trainers, tables)
    cluster = clusters(jitter=0.05, nic="2 Gbit/s", per_host={"trainer": together})
    assert apart_from(plan, cluster) is not None
    apart, direct = bounds_of(plan, cluster), at_all(plan, cluster, monkeypatch)
    assert apart.keys() == direct.keys()
    for name, bound in direct.items():
        # who waits longer for others hides more of what a loop takes by itself
        lowest, highest = (0.93, 1.05) if name == "loops" else (0.98, 1.06)
        assert lowest < apart[name] / bound < highest, name


@pytest.mark.parametrize("kind", ["flat_ps", "shadowsync", "allreduce", "hierarchical"])
@pytest.mark.parametrize("nic", ["200 Mbit/s", "10 Gbit/s"])
def test_no_prediction_is_beyond_them(
    kind: str, nic: str, plans: Plans, clusters: Clusters
) -> None:
    plan, cluster = plan_of(plans, kind, 8), clusters(nic=nic)
    assert apart_from(plan, cluster) is not None
    speed = simulate(plan, cluster).speed
    assert speed is not None
    assert speed.examples_per_second is not None
    assert speed.examples_per_second < 1.03 * min(bounds_of(plan, cluster).values())


@pytest.mark.parametrize(
    ("kind", "roles", "profile"),
    [
        ("flat_ps", {"trainers": 3}, {}),
        ("flat_ps", {"trainers": 12}, {"per_host": {"trainer": 4}}),
        ("flat_ps", {"embedding_servers": 2, "dense_servers": 1}, {}),
        ("allreduce", {"embedding_servers": 2}, {}),
        ("des", {}, {}),
        ("flat_ps", {}, {"colocate": True}),
        ("flat_ps", {}, {"topology": {"racks": 2, "hosts_per_rack": 20}}),
        ("flat_ps", {}, {"mixed": {"trainer": [{"count": 3, "cores": 2}, {}]}}),
        ("flat_ps", {}, {"per_host": {"trainer": 3}}),
    ],
)
def test_what_stays_as_it_is(
    kind: str, roles: dict[str, int], profile: dict[str, Any], plans: Plans, clusters: Clusters
) -> None:
    assert apart_from(plan_of(plans, kind, **roles), clusters(**profile)) is None


def test_servers_that_there_are_stay(plans: Plans, clusters: Clusters) -> None:
    plan = plan_of(plans, "flat_ps", dense_servers=2)
    found = apart_from(plan, clusters())
    assert found is not None
    assert found.moved == ("embedding_server",)
    assert len(found.case.plan.of_role("embedding_server")) == 40
    assert len(found.case.plan.of_role("dense_server")) == 2
    assert found.case.cluster.host("embedding_server") == found.case.cluster.host("trainer")
    bounds = bounds_of(plan, clusters(nic="1 Gbit/s"))
    assert "dense server: NIC send" in bounds
    assert not [name for name in bounds if name.startswith("embedding")]


def test_each_simulated_trainer_has_its_own_shard(plans: Plans, clusters: Clusters) -> None:
    found = apart_from(plan_of(plans, "flat_ps"), clusters(per_host={"trainer": 4}))
    assert found is not None
    assert found.case.plan.embedding is not None
    assert found.case.plan.dense is not None
    for shards in (found.case.plan.embedding.shards, found.case.plan.dense.shards):
        homes = [shard.host.index for shard in shards if shard.host.role == "trainer"]
        assert homes == [0, 1, 2, 3]
        assert len(shards) == 40
