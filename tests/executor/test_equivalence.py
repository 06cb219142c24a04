"""Distributed training computes what one process computes: float64, norm-wise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.launch import execute
from recsim_train.placement.build import build_plan

TABLES = (
    Table(rows=400),
    Table(rows=30),
    Table(rows=60, ids=3),
    Table(rows=50, ids=4, variable=True),
)
STEPS = 8


def train(
    folder: Path,
    roles: Roles,
    *,
    batch: int,
    choice: StrategyChoice | None = None,
    split: float = 10.0,
    optimizer: str = "rowwise_adagrad",
    threads: int = 1,
) -> tuple[dict[int, Tensor], Tensor, list[float]]:
    """(rows of every table, dense parameters, mean loss of every iteration)."""
    chosen = choice or StrategyChoice(kind="allreduce")
    spec = Experiment(
        name="equivalence",
        model=Model(
            embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(8, 1), tables=TABLES, dtype="float64"
        ),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000)),
        roles=roles,
        training=Training(
            batch_size=batch,
            threads=threads,
            steps=STEPS,
            warmup_steps=0,
            sparse_optimizer=optimizer,
            dense_lr=0.1,
            sparse_lr=0.1,
        ),
        placement=Placement(split_rows_above=split),
        strategies=(chosen,),
    )
    folder.mkdir()
    outcome = execute(build_plan(spec, chosen), staging=folder, keep_state=folder)
    rows = {t: torch.full((table.rows, 4), torch.nan).double() for t, table in enumerate(TABLES)}
    replica = torch.empty(0)
    for path in sorted(folder.glob("*.pt")):
        state = torch.load(path, weights_only=True)
        for name, value in state.items():
            if name.startswith("EMBEDDING"):
                slices, held = value
                position = 0
                for table, start, stop, *_ in slices:
                    rows[table][start:stop] = held[position : position + stop - start]
                    position += stop - start
        if path.name == "trainer[0].pt":
            replica = state["replica"]
    losses: dict[int, list[float]] = {}
    for iteration in outcome.iterations:
        assert iteration.loss is not None
        losses.setdefault(iteration.iteration, []).append(iteration.loss)
    means = [sum(v) / len(v) for _, v in sorted(losses.items())]
    return rows, replica, means


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


Result = tuple[dict[int, Tensor], Tensor, list[float]]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("one") / "run", Roles(), batch=24)


def assert_same(found: Result, wanted: Result, tolerance: float) -> None:
    for table, rows in wanted[0].items():
        assert distance(found[0][table], rows) < tolerance
    assert distance(found[1], wanted[1]) < tolerance
    assert found[2] == pytest.approx(wanted[2], rel=tolerance)


CASES = {
    "two trainers, no servers": (Roles(trainers=2), {}, 10.0),
    "three trainers, servers": (Roles(trainers=3, embedding_servers=2), {}, 10.0),
    "split tables": (Roles(trainers=2, embedding_servers=2), {}, 0.3),
    "rows travel": (Roles(trainers=2, embedding_servers=1), {"pooling": "worker"}, 10.0),
    "rows travel, split": (Roles(trainers=2), {"pooling": "worker"}, 0.3),
    "with a reader": (Roles(trainers=2, embedding_servers=1, readers=1), {}, 10.0),
}


@pytest.mark.parametrize("name", CASES)
def test_all_reduce_equals_one_process_with_the_global_batch(
    name: str, one_process: Result, tmp_path: Path
) -> None:
    roles, options, split = CASES[name]
    choice = StrategyChoice(kind="allreduce", options=options)
    batch = 24 // roles.trainers
    found = train(tmp_path / "run", roles, batch=batch, choice=choice, split=split)
    assert_same(found, one_process, 1e-12)


def test_the_comparison_can_fail(one_process: Result, tmp_path: Path) -> None:
    found = train(tmp_path / "run", Roles(), batch=24, optimizer="sgd")
    with pytest.raises(AssertionError):
        assert_same(found, one_process, 1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_one_downpour_worker_equals_plain_sgd(optimizer: str, tmp_path: Path) -> None:
    """Alone, pulling and pushing every iteration is sequential training, wherever shards live."""
    plain = train(tmp_path / "plain", Roles(), batch=24, optimizer=optimizer)
    choice = StrategyChoice(kind="flat_ps")
    for number, roles in enumerate((Roles(), Roles(embedding_servers=2, dense_servers=2))):
        folder = tmp_path / str(number)
        found = train(folder, roles, batch=24, choice=choice, optimizer=optimizer)
        assert_same(found, plain, 1e-12)
