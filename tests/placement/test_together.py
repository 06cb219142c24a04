"""Gradients that are applied together need one of each trainer: what has more is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

import recsim_train
from recsim_train.config.errors import UserError
from recsim_train.strategy import registry
from recsim_train.strategy.base import EmbeddingService, Loop, Strategy, Topology
from recsim_train.strategy.effects import batches
from recsim_train.strategy.registry import register
from recsim_train.strategy.steps import learn

EXPERIMENT = """
name: together
model: tiny
roles: {trainers: 2, embedding_servers: 1}
training: {batch_size: 32, steps: 6, warmup_steps: 1, threads: THREADS}
data: {eval_rows: 64}
strategy: KIND
"""


@pytest.fixture(autouse=True)
def _strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    class Base(Strategy):
        summary: ClassVar[str] = "free workers whose gradients are applied together"
        source: ClassVar[str] = "this test"
        copies: ClassVar[int] = 0
        """0: as many as there are threads."""

        def topology(self, threads: int) -> Topology:
            service = EmbeddingService(apply="together")
            return Topology(
                loops=(Loop("worker", copies=self.copies or threads),), services=(service,)
            )

        async def worker(self) -> None:
            async for batch in batches():
                await learn(batch, "server")

    @register
    @dataclasses.dataclass
    class Free(Base):
        kind: ClassVar[str] = "free_together"

    @register
    @dataclasses.dataclass
    class Twice(Base):
        kind: ClassVar[str] = "twice_together"
        lock_step: ClassVar[bool] = True
        copies: ClassVar[int] = 2


def study(folder: Path, kind: str, threads: int) -> recsim_train.Study:
    path = folder / "experiment.yaml"
    path.write_text(EXPERIMENT.replace("KIND", kind).replace("THREADS", str(threads)))
    return recsim_train.load(path, cluster="reference-2core")


@pytest.mark.parametrize(("kind", "threads"), [("free_together", 2), ("twice_together", 1)])
def test_more_loops_than_one_that_train_are_refused_in_both_worlds(
    tmp_path: Path, kind: str, threads: int
) -> None:
    for world in (recsim_train.predict, recsim_train.measure):
        with pytest.raises(UserError, match=kind) as refused:
            world(study(tmp_path, kind, threads), out=tmp_path / "runs")
        assert 'apply="together"' in str(refused.value)
        assert f"training.threads={threads}" in str(refused.value)
        assert "2 loops of a trainer" in str(refused.value)
        assert not list(tmp_path.glob("runs/*"))


def test_one_loop_that_trains_is_predicted_and_measured(tmp_path: Path) -> None:
    (predicted,) = recsim_train.predict(study(tmp_path, "free_together", 1), out=tmp_path)
    (measured,) = recsim_train.measure(study(tmp_path, "free_together", 1), out=tmp_path)
    assert predicted.examples_per_second > 0
    assert measured.examples_per_second > 0
