"""Small experiments and clusters with round prices, and one way to run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import ASSUMED_THREADS, Cluster, Costs, Host, Network, Price
from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    Simulation,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.data.counts import ShardCount
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.sim.host import machines
from recsim_train.sim.messages import gloo_group
from recsim_train.strategy import registry
from recsim_train.strategy.base import Strategy
from recsim_train.trace.record import Outcome
from tests.at_work import rate_at_work
from tests.simulated import simulate

PRICES = {
    "call": "2 us",
    "interpreter": "2 us",
    "gemm_flop": "20 ps",
    "stream_byte": "100 ps",
    "gather_row": "30 ns",
    "gather_byte": "100 ps",
    "scatter_row": "40 ns",
    "scatter_byte": "200 ps",
    "unique_id": "30 ns",
    "read_row": "4 us",
    "synthesize_row": "100 ns",
    "synthesize_id": "5 ns",
    "feed_batch": "5 us",
    "effect": "10 us",
    "asking": "15 us",
    "request": "20 us",
    "row_request": "20 us",
    "message": "10 us",
    "gloo_message": "10 us",
    "collective_message": "10 us",
    "reduced_byte": "100 ps",
    "exchanged_byte": "100 ps",
    "wire_byte": "100 ps",
    "collective_step": "20 us",
}


@pytest.fixture
def equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages share links equally, and nothing acknowledges them: what closed forms know."""
    monkeypatch.setattr(machines, "Links", lambda *given: None)
    monkeypatch.setattr(gloo_group, "ANSWERED", 0.0)


class FakeCounts:
    """Ids by arithmetic: every id distinct, split evenly over the shards."""

    source = "a test's fixed counts"
    steps = None
    exact = False
    decoded = 1.0

    def __init__(self, plan: Plan) -> None:
        self._shards = plan.embedding.shards if plan.embedding else ()
        tables, batch = plan.experiment.model.tables, plan.experiment.training.batch_size
        self._ids = [
            sum(batch * tables[s.table].ids * s.rows // tables[s.table].rows for s in shard.slices)
            for shard in self._shards
        ]
        self._total = batch * sum(t.ids for t in tables)

    def shard_counts(self, position: int, iteration: int) -> list[ShardCount]:
        return [ShardCount(n, n, 0) for n in self._ids]

    def batch_counts(self, position: int, iteration: int) -> tuple[int, int]:
        return self._total, self._total


def make_cluster(**changes: Any) -> Cluster:
    host = {"cores": 8, "memory": "64 GiB", "nic": "10 Gbit/s"}
    host |= {key: changes.pop(key) for key in ("cores", "memory", "nic") if key in changes}
    network = {"latency": "20 us", **changes.pop("network", {})}
    prices = dict.fromkeys(Costs.model_fields, "20 ps") | PRICES | changes.pop("prices", {})
    hosts = {"default": Host(**host)} | changes.pop("hosts", {})
    settings: dict[str, Any] = {
        "name": "test",
        "hosts": hosts,
        "network": Network(**network),
        "threads": ASSUMED_THREADS,
        "costs": Costs(**{name: Price(value=value) for name, value in prices.items()}),
    }
    return Cluster(**settings | changes)


def make_plan(kind: str = "flat_ps", options: dict[str, Any] | None = None, **changes: Any) -> Plan:
    choice = StrategyChoice(kind=kind, options=options or {})
    model = {
        "embedding_dim": 8,
        "dense_features": 4,
        "bottom_mlp": (32, 8),
        "top_mlp": (32, 1),
        "tables": tuple(Table(rows=1000) for _ in range(6)),
        **changes.pop("model", {}),
    }
    training = {"batch_size": 64, "steps": 20, "warmup_steps": 3, **changes.pop("training", {})}
    experiment = Experiment(
        name="test",
        model=Model(**model),
        roles=Roles(**changes.pop("roles", {})),
        training=Training(**training),
        strategies=(choice,),
        simulation=Simulation(**{"precision": "0 %", **changes.pop("simulation", {})}),
        data=Data(**changes.pop("data", {})),
        **changes,
    )
    return build_plan(experiment, choice)


def predict(plan: Plan, cluster: Cluster) -> Outcome:
    """Simulate twice: the outcomes must be the same to the last bit."""
    first, second = (simulate(plan, cluster, counts=FakeCounts(plan)) for _ in range(2))
    assert repr(dataclasses.astuple(first)) == repr(dataclasses.astuple(second))
    return first


def speed(plan: Plan, outcome: Outcome) -> float:
    """Examples per second while all loops are at counted iterations."""
    training = plan.experiment.training
    return rate_at_work(outcome.iterations, training.warmup_steps, training.batch_size)


@pytest.fixture
def clusters() -> Callable[..., Cluster]:
    return make_cluster


@pytest.fixture
def plans() -> Callable[..., Plan]:
    return make_plan


@pytest.fixture
def outcome_of() -> Callable[[Plan, Cluster], Outcome]:
    return predict


@pytest.fixture
def eps() -> Callable[[Plan, Cluster], float]:
    """Predicted examples per second; checks the bound on the way."""

    def run(plan: Plan, cluster: Cluster) -> float:
        outcome = predict(plan, cluster)
        found = speed(plan, outcome)
        assert outcome.bound_eps is not None
        # between hosts frames wait in queues when the counted window begins and when it ends
        assert found <= outcome.bound_eps * (1 + (1e-9 if cluster.colocate else 3e-3))
        assert all(0 <= busy <= 1 for busy in outcome.utilisation.values())
        return found

    return run


@pytest.fixture
def fake_counts() -> Callable[[Plan], FakeCounts]:
    return FakeCounts


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Strategy]], None]:
    """Adds strategies for the length of one test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    def add(strategy: type[Strategy]) -> None:
        registry._registered[strategy.kind] = strategy

    return add
