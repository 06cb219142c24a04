"""Looks at shards in trainers, as if servers had them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.why import shards_apart
from recsim_train.sim.why.beforehand import beforehand
from recsim_train.sim.why.shards_apart import with_shards_apart

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

TABLES = [{"rows": 2000, "ids": 4}] * 20


def plan_of(plans: Plans, kind: str, trainers: int = 40, **roles: int) -> Plan:
    options = {"hosts": 2} if kind == "hierarchical" else {}
    spread = {"trainers": trainers, "embedding_servers": 0, "dense_servers": 0, **roles}
    return plans(
        kind,
        options,
        model={"tables": TABLES},
        training={"batch_size": 256, "threads": 4, "steps": 30, "warmup_steps": 2},
        roles=spread,
        data={"eval_rows": 0},
        simulation={"what_if_steps": 0},
    )


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("kind", ["flat_ps", "shadowsync", "allreduce", "localsgd", "hierarchical"])
def test_bounds_are_those_of_a_look_at_all_trainers(
    kind: str, together: int, plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(plans, kind)
    cluster = clusters(jitter=0.05, nic="2 Gbit/s", per_host={"trainer": together})
    assert with_shards_apart(plan, cluster) is not None
    apart = beforehand(plan, cluster).bounds
    monkeypatch.setattr(shards_apart, "_WORTH_IT", 1000)
    assert with_shards_apart(plan, cluster) is None
    direct = beforehand(plan, cluster).bounds
    assert apart.keys() == direct.keys()
    for name, bound in direct.items():
        highest = 1.1 if name == "loops" else 1.05
        assert 0.995 < apart[name] / bound < highest, name


@pytest.mark.parametrize(
    ("kind", "roles", "profile"),
    [
        ("flat_ps", {"trainers": 32}, {}),
        ("flat_ps", {"embedding_servers": 2, "dense_servers": 1}, {}),
        ("allreduce", {"embedding_servers": 2}, {}),
        ("des", {}, {}),
        ("scalefreectr", {}, {}),
        ("flat_ps", {}, {"colocate": True}),
        ("flat_ps", {}, {"topology": {"racks": 2, "hosts_per_rack": 20}}),
        ("flat_ps", {}, {"mixed": {"trainer": [{"count": 3, "cores": 2}, {}]}}),
        ("flat_ps", {}, {"per_host": {"trainer": 3}}),
    ],
)
def test_what_is_looked_at_as_it_is(
    kind: str, roles: dict[str, int], profile: dict[str, Any], plans: Plans, clusters: Clusters
) -> None:
    assert with_shards_apart(plan_of(plans, kind, **roles), clusters(**profile)) is None


def test_servers_that_there_are_stay(plans: Plans, clusters: Clusters) -> None:
    plan = plan_of(plans, "flat_ps", dense_servers=2)
    found = with_shards_apart(plan, clusters())
    assert found is not None
    moved, cluster = found
    assert len(moved.of_role("embedding_server")) == 40
    assert len(moved.of_role("dense_server")) == 2
    assert cluster.host("embedding_server") == cluster.host("trainer")
    bounds = beforehand(plan, clusters(nic="1 Gbit/s")).bounds
    assert "dense server: NIC send" in bounds
    assert not [name for name in bounds if name.startswith("embedding")]
