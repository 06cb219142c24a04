"""Requests that go on while their loop computes: the same in both worlds, and truly beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch

from recsim_train.config.experiment import Roles, StrategyChoice
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.results.summary import summarise
from recsim_train.strategy import registry
from recsim_train.strategy.base import (
    DENSE,
    EMBEDDING,
    DenseService,
    EmbeddingService,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import (
    Compute,
    Handle,
    Lookup,
    Pull,
    Push,
    Start,
    Update,
    Wait,
    batches,
)
from recsim_train.strategy.operations import APPLY, DEDUPLICATE, FORWARD_BACKWARD, LOAD
from recsim_train.strategy.registry import register
from recsim_train.strategy.values import Batch, Rows
from recsim_train.trace.record import Outcome, Span
from tests.conformance.test_worlds_agree import PROFILE, make_plan, payload, sequences
from tests.executor.keeping import execute_keeping
from tests.simulated import simulate


@pytest.fixture(autouse=True)
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch's rows are asked for before the present one is learned from."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    @register
    @dataclasses.dataclass
    class Ahead(Strategy):
        kind: ClassVar[str] = "ahead"
        summary: ClassVar[str] = "looks up one batch ahead"
        source: ClassVar[str] = "this test"
        lock_step: ClassVar[bool] = True  # one thread: one order of requests

        overlap: bool = option(True, help="whether requests go on while the worker computes")
        pooling: Literal["server", "worker"] = option("server", help="where bags are summed")
        apply: Literal["on_arrival", "together"] = option("on_arrival", help="of embeddings")

        def topology(self, threads: int) -> Topology:
            return Topology(
                loops=(Loop("worker", copies=threads),),
                services=(EmbeddingService(pooling=self.pooling, apply=self.apply), DenseService()),
            )

        async def worker(self) -> None:
            before: tuple[Batch, Rows | Handle[Rows]] | None = None
            async for batch in batches():
                ids = batch.ids
                if self.pooling == "worker":
                    ids = await Compute(DEDUPLICATE, ids)
                rows: Rows | Handle[Rows]
                if self.overlap:
                    rows = await Start(Lookup(EMBEDDING, ids))
                else:
                    rows = await Lookup(EMBEDDING, ids)
                if before is not None:
                    await self.learn(*before)
                before = batch, rows
            if before is not None:
                await self.learn(*before)

        async def learn(self, batch: Batch, asked: Rows | Handle[Rows]) -> None:
            rows = await Wait(asked) if isinstance(asked, Handle) else asked
            gradients = await Compute(FORWARD_BACKWARD, batch, rows)
            await Compute(APPLY, gradients.dense)
            if not self.overlap:
                await Update(EMBEDDING, gradients.rows)
                await Push(DENSE, gradients.dense)
                return
            update = await Start(Update(EMBEDDING, gradients.rows))
            push = await Start(Push(DENSE, gradients.dense))
            await Wait(push)
            await Wait(update)

        async def finish(self) -> None:
            await Compute(LOAD, await Wait(await Start(Pull(DENSE))))


SERVERS = Roles(trainers=1, embedding_servers=1, dense_servers=1)


def plan_of(roles: Roles, **options: object) -> Plan:
    return make_plan(roles, StrategyChoice(kind="ahead", options=options))


@pytest.mark.parametrize(
    ("roles", "options"),
    [
        (Roles(trainers=1, embedding_servers=1, dense_servers=1), {"pooling": "worker"}),
        (Roles(trainers=2, embedding_servers=1), {}),
        (Roles(trainers=2, embedding_servers=1), {"apply": "together"}),
        (Roles(), {}),
    ],
    ids=["servers, rows", "own dense shards", "together", "one process"],
)
def test_same_effects_and_same_bytes(
    roles: Roles, options: dict[str, object], tmp_path: Path
) -> None:
    plan = plan_of(roles, **options)
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    for outcome in (predicted, real):
        whole = summarise(plan, outcome=outcome, world="x", status="complete")
        assert {"start", "wait"} < set(whole.time_by_effect)
        assert not {"lookup", "update", "push"} & set(whole.time_by_effect)
        # "other" is what they leave; a sum of floats may miss zero by its last bit
        assert min(whole.time_by_effect.values()) >= -1e-15
    if len(plan.instances) > 1:
        assert {key[1] for key in payload(real)} > {"worker[0]/1", "worker[0]/2"}


@pytest.mark.parametrize("pooling", ["server", "worker"])
def test_what_is_learned_is_what_the_same_requests_one_by_one_learn(
    pooling: str, tmp_path: Path
) -> None:
    """An update belongs to the lookup of its rows, although another one was asked since."""
    states = []
    for overlap in (False, True):
        folder = tmp_path / str(overlap)
        folder.mkdir()
        plan = plan_of(SERVERS, overlap=overlap, pooling=pooling)
        execute_keeping(plan, folder)
        states.append([torch.load(folder / f"{i.name}.pt") for i in plan.instances])
    flat = [[t for state in run for t in _tensors(state)] for run in states]
    assert len(flat[0]) == 3
    for plain, started in zip(*flat, strict=True):
        assert torch.equal(plain, started)


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for x in value for t in _tensors(x)] if isinstance(value, list | tuple) else []


def beside(outcome: Outcome) -> int:
    """Lookups that a shard began to serve while the loop that asked computed."""
    served = [s for s in outcome.spans if s.effect == "serve_lookup" and s.iteration >= 0]
    computed: dict[str, list[Span]] = {}
    for s in outcome.spans:
        if s.effect == "compute" and s.name == "forward_backward":
            computed.setdefault(f"{s.instance}.{s.loop}", []).append(s)
    return sum(any(c.start < s.start < c.end for c in computed[s.loop]) for s in served)


def kept_back(outcome: Outcome) -> list[bool]:
    """Of each lookup that is asked for before a batch is learned from: whether the shard began to
    serve it only when that was computed. It may have begun before: the two share cores."""
    begun = sorted(s.start for s in outcome.spans if s.effect == "serve_lookup")
    computed = sorted(s.end for s in outcome.spans if s.name == "forward_backward")
    assert len(begun) == len(computed) > 2
    return [begin > end for begin, end in zip(begun[1:], computed[:-1], strict=True)]


def test_requests_go_on_while_the_loop_computes(tmp_path: Path) -> None:
    cluster = load_cluster(PROFILE, None)
    # far enough away that a request arrives when the loop has gone on to compute
    far = cluster.network.model_copy(update={"latency": 400e-6})
    cluster = cluster.model_copy(update={"network": far})
    found: dict[tuple[str, bool], Outcome] = {}
    for overlap in (False, True):
        spec = plan_of(SERVERS, overlap=overlap).experiment
        # steps so long that beside other programs, too, the shard gets a core in one of them
        wide = {"embedding_dim": 64, "bottom_mlp": (64, 64), "top_mlp": (512, 1)}
        long = {"batch_size": 2048, "steps": 12}
        update = {
            "model": spec.model.model_copy(update=wide),
            "training": spec.training.model_copy(update=long),
        }
        plan = build_plan(spec.model_copy(update=update), spec.strategies[0])
        folder = tmp_path / str(overlap)
        folder.mkdir()
        found["simulated", overlap] = simulate(plan, cluster)
        found["real", overlap] = execute(plan, staging=folder)
    for world in ("simulated", "real"):
        assert beside(found[world, False]) == 0
        assert not all(kept_back(found[world, True]))
    assert beside(found["simulated", True]) > 0
    times = [
        sum(i.end - i.start for i in found["simulated", overlap].iterations)
        for overlap in (False, True)
    ]
    assert times[1] < times[0]
    path = found["simulated", True].facts.critical_path
    assert path is not None
    assert path.hidden["lookup"] > 0.0
    split = sum(seconds for parts in path.effects.values() for seconds in parts.values())
    assert split <= path.seconds * (1 + 1e-9)
