"""What is shown of a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.executor import part
from recsim_train.executor.part import SoFar, TrainerSaid
from recsim_train.placement.plan import Plan

ROOT = Path(__file__).parents[2]
Shown = tuple[Callable[..., None], "Told"]
Told = list[tuple[float, float, str, str]]


@pytest.fixture
def plan() -> Plan:
    small = ["model=tiny", "data.path=null"]
    (only,) = calls.load(ROOT / "experiments" / "quickstart.yaml", None, small).plans
    return only


@pytest.fixture
def shown(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Says at a second what trainers said; what a meter was told."""
    told: Told = []
    run = SoFar(plan, lambda *words: told.append(words))  # type: ignore[arg-type,misc]

    def at(second: float, *said: TrainerSaid) -> None:
        monkeypatch.setattr(part.time, "monotonic", lambda: second)
        run.tell(list(said))

    return at, told


def test_examples_per_second_are_those_of_the_last_seconds(plan: Plan, shown: Shown) -> None:
    at, told = shown
    rules = plan.experiment.training
    batch, steps = rules.batch_size, rules.warmup_steps + rules.steps
    at(0.0, TrainerSaid(0, 0, None), TrainerSaid(0, 0, None))
    at(4.0, TrainerSaid(1, 2, 0.75), TrainerSaid(2, 6, 0.25))
    for second in range(5, 40):  # much faster from now on
        at(float(second), TrainerSaid(2, 20 * second, 0.5), TrainerSaid(2, 20 * second, None))
    assert told[0] == (0, steps, "training", "")
    assert told[1] == (1, steps, "training", f"{2 * batch:,} examples/s, loss 0.5000")
    assert told[-1] == (2, steps, "training", f"{40 * batch:,} examples/s, loss 0.5000")


def test_the_end_is_evaluation_and_a_loss_may_be_gone(plan: Plan, shown: Shown) -> None:
    at, told = shown
    rules = plan.experiment.training
    steps = rules.warmup_steps + rules.steps
    at(0.0, TrainerSaid(0, 0, None))
    at(1.0, TrainerSaid(steps, steps, nan))
    assert told[-1] == (steps, steps, "evaluating", "loss not finite")
