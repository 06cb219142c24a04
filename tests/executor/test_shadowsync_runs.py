"""ShadowSync in real processes: every variant ends, learns, and leaves the weights it promises."""

from __future__ import annotations

from pathlib import Path

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
from recsim_train.placement.build import build_plan
from tests.executor.keeping import execute_keeping

CASES = [
    (1, "easgd", "shadow"),
    (1, "bmuf", "foreground"),
    (2, "easgd", "shadow"),
    (2, "bmuf", "shadow"),
    (2, "ma", "foreground"),
    (4, "easgd", "shadow"),
    (4, "ma", "shadow"),
    (4, "bmuf", "foreground"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("trainers", "algorithm", "sync"), CASES)
def test_it_ends_and_learns(trainers: int, algorithm: str, sync: str, tmp_path: Path) -> None:
    options = {"algorithm": algorithm, "sync": sync, "every": 7}
    choice = StrategyChoice(kind="shadowsync", options=options)
    spec = Experiment(
        name="shadow",
        model=Model(
            embedding_dim=4,
            bottom_mlp=(8, 4),
            top_mlp=(8, 1),
            tables=(Table(rows=40), Table(rows=30), Table(rows=20, ids=2)),
        ),
        data=Data(eval_rows=400, synthetic=Synthetic(rows=20_000)),
        roles=Roles(trainers=trainers, embedding_servers=1, dense_servers=1),
        training=Training(
            batch_size=32, threads=2, steps=60, warmup_steps=0, dense_lr=0.1, sparse_lr=0.1
        ),
        strategies=(choice,),
    )
    outcome = execute_keeping(build_plan(spec, choice), tmp_path)
    assert len(outcome.iterations) == 2 * trainers * 60
    loss = {i: [] for i in range(60)}
    for done in outcome.iterations:
        loss[done.iteration].append(done.loss)
    early, late = (sum(sum(loss[i]) for i in part) for part in (range(15), range(45, 60)))
    assert late < early
    assert outcome.normalized_entropy is not None
    assert outcome.normalized_entropy < 1
    states = [torch.load(tmp_path / f"trainer[{t}].pt") for t in range(trainers)]
    replicas = [state["replica"] for state in states]
    if algorithm == "easgd":
        central = torch.load(tmp_path / "dense_server[0].pt")["dense/0"][1]
        torch.testing.assert_close(replicas[0], central, rtol=0, atol=0)
    else:
        for replica in replicas[1:]:
            torch.testing.assert_close(replica, replicas[0], rtol=0, atol=0)
    # a loop beside training does one round or more, and one when training has ended
    beside = {done.loop for done in outcome.rounds}
    names = {"shadow": "shadow[0]", "foreground": "meeting[0]"}
    assert beside == {f"trainer[{t}].{names[sync]}" for t in range(trainers)}
    if sync == "shadow":  # at the start, after every gap of 4 iterations, when all has ended
        for loop in beside:
            rounds = sum(done.loop == loop for done in outcome.rounds)
            assert 2 <= rounds <= 1 + 60 // 4 + 1
