"""A model that leaves the finite numbers has no held-out figure, whatever trains it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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
from recsim_train.executor.part import ProcessPart
from recsim_train.executor.process import evaluate
from recsim_train.executor.process.launch import execute
from recsim_train.executor.process.merge import merge
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.strategy.registry import strategies
from recsim_train.trace.record import Iteration, Outcome

NAN, INF = math.nan, math.inf


def make_plan(choice: StrategyChoice, roles: Roles, **training: Any) -> Plan:
    spec = Experiment(
        name="diverged",
        model=Model(
            embedding_dim=8,
            bottom_mlp=(16, 8),
            top_mlp=(16, 1),
            tables=(Table(rows=400), Table(rows=60, ids=3)),
        ),
        data=Data(eval_rows=200, synthetic=Synthetic(rows=2000)),
        roles=roles,
        training=Training(**{"batch_size": 32, "steps": 4, "warmup_steps": 0, **training}),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def trained(folder: Path, kind: str, roles: Roles, **training: Any) -> Outcome:
    return execute(make_plan(StrategyChoice(kind=kind), roles, **training), staging=folder)


KINDS = sorted(strategies())


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        *((kind, {"dense_lr": 1e12}) for kind in KINDS),
        *(pytest.param(kind, {"sparse_lr": 1e38}, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_a_learning_rate_that_overflows_leaves_no_held_out_figure(
    kind: str, rate: dict[str, float], tmp_path: Path
) -> None:
    found = trained(tmp_path, kind, Roles(trainers=2), **rate)
    bad = [i for i in found.iterations if i.loss is None or not math.isfinite(i.loss)]
    assert (found.auc, found.loss, found.normalized_entropy) == (None, None, None)
    assert found.steps == 4
    assert found.facts.diverged is not None
    assert found.facts.diverged.since == min(i.iteration for i in bad)
    assert found.facts.diverged.losses == len(bad)
    assert found.facts.diverged.of == len(found.iterations) == 8
    (said,) = found.facts.warnings
    assert f"diverged since iteration {found.facts.diverged.since}" in said


@pytest.mark.parametrize("kind", KINDS)
def test_every_loop_that_trains_leaves_its_loss(kind: str, tmp_path: Path) -> None:
    found = trained(tmp_path, kind, Roles(trainers=2))
    assert found.facts.diverged is None
    assert found.auc is not None
    losses = [i.loss for i in found.iterations]
    assert len(losses) == 8
    assert all(loss is not None and 0.3 < loss < 1.5 for loss in losses)
    assert all(r.loss is None for r in found.rounds)  # a background loop has none


def test_the_last_step_may_overflow_when_every_training_loss_was_finite(tmp_path: Path) -> None:
    found = trained(tmp_path, "allreduce", Roles(), dense_lr=1e38, steps=1)
    assert [i.loss is not None and math.isfinite(i.loss) for i in found.iterations] == [True]
    assert found.facts.diverged is not None
    assert found.facts.diverged.phrase == "diverged at evaluation"
    assert (found.auc, found.loss, found.normalized_entropy) == (None, None, None)


@pytest.mark.parametrize(
    "scores",
    [
        [NAN] * 4, [NAN, 0.0, 0.1, 0.2], [0.0, 0.1, 0.2, NAN],
        [INF, -INF, INF, 0.0], [INF, 0.0, 0.0, 0.0], [0.0, 0.0, -INF, 0.0],
    ],
)  # fmt: skip
@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
def test_scores_that_are_not_finite_have_no_order_and_no_loss(
    scores: list[float], labels: list[int]
) -> None:
    logits, truth = torch.tensor(scores), torch.tensor(labels, dtype=torch.float32)
    loss = evaluate.log_loss(logits, truth)
    assert evaluate.auc(logits, truth) is None
    assert math.isnan(loss)
    assert evaluate.normalized_entropy(loss, truth) is None
    assert evaluate.normalized_entropy(INF, truth) is None


def test_the_largest_finite_scores_still_have_an_order() -> None:
    most = torch.finfo(torch.float32).max
    logits, truth = torch.tensor([-most, most, 0.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert evaluate.auc(logits, truth) == 1.0
    assert math.isfinite(evaluate.log_loss(logits, truth))


def part(losses: dict[str, list[float | None]], held_out: float | None = 0.5) -> ProcessPart:
    records = Outcome([], {}, [], 0, 4)
    for loop, values in losses.items():
        records.iterations += [Iteration(loop, k, 0.0, 0.0, loss) for k, loss in enumerate(values)]
    records.loss, records.auc, records.normalized_entropy = held_out, 0.7, 0.9
    process = next(iter(losses)).partition(".")[0]
    return ProcessPart(process, records, 0.0, [], [], [], 0, None)


@pytest.mark.parametrize("worst", [NAN, INF])
@pytest.mark.parametrize("complete", [True, False])
def test_a_loss_that_overflows_once_and_recovers_has_diverged(worst: float, complete: bool) -> None:
    plan = make_plan(StrategyChoice(kind="flat_ps"), Roles(trainers=2))
    parts = [
        part({"trainer[0].worker[0]": [0.7, 0.6, 0.5, worst]}),
        part({"trainer[1].worker[0]": [0.7, worst, 0.6, 0.5]}),
    ]
    found = merge(plan, parts, complete=complete)
    assert found.facts.diverged is not None
    assert found.facts.diverged.since == 1  # the smallest over loops
    assert found.facts.diverged.losses == 2
    assert found.facts.diverged.of == 8
    assert found.auc is None


def test_loops_without_a_loss_and_finite_ones_have_not() -> None:
    plan = make_plan(StrategyChoice(kind="flat_ps"), Roles(trainers=2))
    losses = {"trainer[0].worker[0]": [0.7, 3e38], "trainer[1].worker[0]": [None, None]}
    found = merge(plan, [part(losses)], complete=True)
    assert found.facts.diverged is None
    assert (found.loss, found.auc, found.normalized_entropy) == (0.5, 0.7, 0.9)
    assert merge(plan, [part(losses, None)], complete=True).facts.diverged is None
    unscored = merge(plan, [part(losses, NAN)], complete=True)
    assert unscored.facts.diverged is not None
    assert unscored.facts.diverged.since is None
    assert (unscored.loss, unscored.auc, unscored.normalized_entropy) == (None, None, None)
