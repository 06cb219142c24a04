"""What a run that was started again has lost, by hand arithmetic."""

from __future__ import annotations

import pytest

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.session.lives import Lives
from recsim_train.trace.facts import CheckpointMade
from recsim_train.trace.record import Iteration, Outcome


@pytest.fixture
def plan() -> Plan:
    spec = Experiment(
        name="lives",
        model=Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=9),)),
        data=Data(eval_rows=0),
        roles=Roles(trainers=2),
        training=Training(batch_size=8, steps=90, warmup_steps=10, threads=1),
        strategies=(StrategyChoice(kind="allreduce"),),
    )
    return build_plan(spec, spec.strategies[0])


def life(plan: Plan, first: int, end: int, began: float) -> Outcome:
    """Iterations of a second each, by both trainers."""
    warmup = plan.resumed(first).experiment.training.warmup_steps
    found = Outcome([], {}, [], 0, max(0, end - warmup), began=began)
    found.iterations = [
        Iteration(f"trainer[{t}].worker[0]", n, n - first, n - first + 1.0, 0.5)
        for t in range(2)
        for n in range(first, end)
    ]
    return found


def test_goodput_is_of_all_lives_together(plan: Plan) -> None:
    lives = Lives(plan)
    first = life(plan, 0, 50, began=1000.0)
    first.facts.checkpoints = [
        CheckpointMade(20, 0.25, 1.0, 99), CheckpointMade(40, 9.0, 1.0, 99, "the disk is full")
    ]  # fmt: skip
    lives.failed(0, first)
    lives.failed(20, None)
    last = life(plan, 20, 100, began=1070.0)
    found = lives.reliability(20, last)
    assert found is not None
    # counted from iteration 10, at second 1010; the last one ends 80 s after second 1070
    assert found.goodput == pytest.approx(90 * 2 * 8 / 140.0)
    # iterations 20 to 49 were done twice; nothing went on between seconds 1050 and 1070
    assert found.lost_examples == 30 * 2 * 8
    assert found.standstill_seconds == pytest.approx(20.25)
    assert (found.failures, found.checkpoints) == (2, 1)


def test_a_run_of_one_life_has_lost_nothing(plan: Plan) -> None:
    assert Lives(plan).reliability(0, life(plan, 0, 100, 0.0)) is None
