"""What must hold for every strategy, whatever the setting: bytes, capacities, bandwidth, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Table
from recsim_train.data.counts import counts_for
from recsim_train.data.replay import Replay
from recsim_train.placement.plan import Plan
from recsim_train.sim.runtime import Runtime
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

SERVERS = {"embedding_servers": 2, "dense_servers": 1}
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "downpour": ("flat_ps", {}),
    "easgd": ("flat_ps", {"mode": "easgd", "every": 3}),
    "rows": ("flat_ps", {"pooling": "worker"}),
    "allreduce": ("allreduce", {}),
    "local": ("localsgd", {"every": 2, "switch": 1}),
    "s-easgd": ("shadowsync", {}),
    "s-ma": ("shadowsync", {"algorithm": "ma"}),
    "fr-bmuf": ("shadowsync", {"algorithm": "bmuf", "sync": "foreground"}),
    "des": ("des", {}),
    "des split": ("des", {"top": "split", "partition": "hash"}),
    "hierarchical": ("hierarchical", {"hosts": 2, "tags": "top.0=1", "outer": "easgd"}),
    "cache": ("scalefreectr", {"cache_share": 1.0}),
    "dct": ("flat_ps", {"compression": {"kind": "dct", "mode": "both"}}),
}
TABLES = tuple(Table(rows=rows) for rows in (900, 300, 70, 20))


def setting(plans: Plans, name: str, **changes: Any) -> Plan:
    kind, options = STRATEGIES[name]
    training = {"batch_size": 32, "steps": 6, "warmup_steps": 1, **changes.pop("training", {})}
    roles = {"trainers": 2, **SERVERS, **changes.pop("roles", {})}
    data = {"eval_rows": 0}
    return plans(
        kind,
        options,
        model={"tables": TABLES},
        training=training,
        roles=roles,
        data=data,
        **changes,
    )


def ran(plan: Plan, cluster: Cluster) -> Runtime:
    replay = Replay(plan) if plan.topology.cache is not None else None
    runtime = Runtime(plan, cluster, counts_for(plan), iterations=5, replay=replay)
    runtime.run()
    return runtime


@pytest.mark.parametrize("name", STRATEGIES)
@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(
    groups=st.integers(1, 2),
    batch=st.integers(4, 64),
    rate=st.sampled_from(["100 Mbit/s", "1 Gbit/s", "25 Gbit/s"]),
    jitter=st.sampled_from([0.0, 0.3]),
    colocate=st.booleans(),
)
def test_bytes_are_conserved_and_nothing_exceeds_its_capacity(
    plans: Plans,
    clusters: Clusters,
    name: str,
    groups: int,
    batch: int,
    rate: str,
    jitter: float,
    colocate: bool,
) -> None:
    plan = setting(plans, name, training={"batch_size": batch}, roles={"trainers": 2 * groups})
    runtime = ran(plan, clusters(nic=rate, jitter=jitter, colocate=colocate))
    used = dict(zip(runtime.engine.fluid.resources, runtime.engine.fluid.used(), strict=True))
    sent = sum(units for r, units in used.items() if r.name.endswith("nic.tx"))
    received = sum(units for r, units in used.items() if r.name.endswith("nic.rx"))
    assert sent == pytest.approx(received, rel=1e-9)
    assert sent > 0
    for resource, units in used.items():
        assert units <= resource.capacity * runtime.engine.now * (1 + 1e-9)
    assert all(loop.driver.finished for loop in runtime.loops)


def seconds(plan: Plan, cluster: Cluster) -> float:
    return ran(plan, cluster).engine.now


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n not in ("s-easgd", "s-ma")])
def test_more_bandwidth_is_never_slower_where_the_network_alone_binds(
    plans: Plans, clusters: Clusters, name: str
) -> None:
    """With many cores and slow links one kind of resource binds; max-min sharing in general knows
    no such law, and background loops that use what is free are left out."""
    plan = setting(plans, name)
    rates = ("20 Mbit/s", "40 Mbit/s", "80 Mbit/s")
    times = [seconds(plan, clusters(nic=rate, cores=64)) for rate in rates]
    assert times[0] >= times[1] >= times[2]
    assert times[0] > 1.3 * times[2]


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_inputs_give_equal_bits_and_the_bound_holds(
    plans: Plans, clusters: Clusters, name: str
) -> None:
    plan, cluster = setting(plans, name), clusters(nic="1 Gbit/s", jitter=0.2)
    first, second = (simulate(plan, cluster) for _ in range(2))
    assert repr(first) == repr(second)
    counted = [i for i in first.iterations if i.iteration >= 1]
    elapsed = max(i.end for i in counted) - min(i.start for i in counted)
    assert first.bound_eps is not None
    assert len(counted) * 32 / elapsed <= first.bound_eps * (1 + 1e-9)
