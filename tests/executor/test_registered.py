"""Strategies and parts that only this process knows run in real processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.data.stream import held_out
from recsim_train.executor.feed import to_batch
from recsim_train.executor.net import kernels
from recsim_train.executor.values import RealRows
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.strategy import parts, registry
from recsim_train.strategy.base import (
    TRAINERS,
    EmbeddingService,
    Group,
    LocalQueue,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import AllReduce, Close, Compute, Put, Take, batches, items
from recsim_train.strategy.operations import APPLY
from recsim_train.strategy.parts import part, register_part
from recsim_train.strategy.registry import register
from recsim_train.strategy.steps import learn
from recsim_train.strategy.values import Dense
from tests.executor.keeping import execute_keeping

MODEL = Model(
    embedding_dim=4,
    bottom_mlp=(8, 4),
    top_mlp=(8, 1),
    tables=(Table(rows=40), Table(rows=30)),
    dtype="float64",
)
DATA = Data(eval_rows=64, synthetic=Synthetic(rows=5_000))
STEPS = 20


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(parts, "_registered", dict(parts._registered))


def register_delayed() -> None:
    """The step's mean gradient is applied one step late, doubled by a part."""

    @register_part
    @dataclasses.dataclass
    class Doubled(Compression):
        kind: ClassVar[str] = "doubled"

        async def all_reduce(self, value: Dense, group: str, number: int) -> Dense:
            total: Dense = await AllReduce(value, group, "sum")
            return total

    @register
    @dataclasses.dataclass
    class Delayed(Strategy):
        kind: ClassVar[str] = "delayed"
        summary: ClassVar[str] = "one step late"
        source: ClassVar[str] = "this test"
        lock_step: ClassVar[bool] = True

        pooling: Literal["server", "worker"] = option("server", help="where bags are summed")
        compression: Compression = part(NoCompression, help="what travels")

        def topology(self, threads: int) -> Topology:
            reducer = Loop("reducer", consumes_batches=False, paced_by="new", trains=False)
            return Topology(
                loops=(Loop("worker"), reducer),
                services=(EmbeddingService(pooling=self.pooling, apply="together"),),
                groups=(Group(TRAINERS, loop="reducer"),),
                queues=(LocalQueue("new", 1), LocalQueue("mean", 1)),
            )

        async def worker(self) -> None:
            pending = False
            async for batch in batches():
                gradient = await learn(batch, self.pooling)
                if pending:
                    await Compute(APPLY, await Take("mean"))
                await Put("new", gradient)
                pending = True
            await Compute(APPLY, await Take("mean"))
            await Close("new")

        async def reducer(self) -> None:
            number = 0
            async for gradient in items("new"):
                mean = await self.compression.all_reduce(gradient, TRAINERS, number)
                await Put("mean", mean)
                number += 1


def trained(folder: Path, trainers: int, lr: float, **options: object) -> torch.Tensor:
    choice = StrategyChoice(kind="delayed", options=options)
    spec = Experiment(
        name="delayed",
        model=MODEL,
        data=DATA,
        roles=Roles(trainers=trainers),
        training=Training(
            batch_size=32 // trainers, steps=STEPS, warmup_steps=0, dense_lr=lr, sparse_lr=0.1
        ),
        strategies=(choice,),
    )
    folder.mkdir()
    outcome = execute_keeping(build_plan(spec, choice), folder)
    assert len(outcome.iterations) == trainers * STEPS
    replica: torch.Tensor = torch.load(folder / "trainer[0].pt")["replica"]
    return replica


@pytest.mark.slow
def test_classes_of_this_process_reach_its_children(tmp_path: Path) -> None:
    register_delayed()
    alone = trained(tmp_path / "1", 1, 0.2)
    two = trained(tmp_path / "2", 2, 0.2, pooling="worker")
    torch.testing.assert_close(two, alone, rtol=0, atol=1e-12)
    doubled = trained(tmp_path / "3", 2, 0.1, compression={"kind": "doubled"})
    torch.testing.assert_close(doubled, alone, rtol=0, atol=1e-12)


def test_a_gradient_outlives_the_next_pass() -> None:
    """Another loop may still have it."""
    training = Training(batch_size=16)
    worker = Worker(Replica(MODEL, training, seed=3), "server")
    draw = torch.Generator().manual_seed(11)
    found = []
    for numbers in held_out(MODEL, DATA, 32):
        batch = to_batch(MODEL, numbers)
        pooled = torch.randn(2, 32, 4, generator=draw, dtype=torch.float64)
        gradients = kernels.forward_backward(worker, batch, RealRows(pooled, batch.ids))
        gradient = gradients.dense.tensor
        found.append((gradient, gradient.clone()))
    assert len(found) == 2
    for kept, was in found:
        torch.testing.assert_close(kept, was, rtol=0, atol=0)
        assert was.abs().max() > 0


def test_a_cut_nets_gradient_outlives_the_next_one() -> None:
    """It is summed by autograd into memory that the net hands out, and may be on its way."""
    net = Worker(Replica(MODEL, Training(batch_size=16), seed=3), "server").net
    kept = net.gradient
    for weights in net.weights.values():
        for parameter in weights:
            assert parameter.grad is not None
            parameter.grad += 1.0
    assert kept.min() == kept.max() == 1.0
    net.new_gradient()
    assert kept.min() == kept.max() == 1.0
    assert not net.gradient.any()
