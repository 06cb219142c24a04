"""What is shown of a run while it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from math import nan
from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.executor import part
from recsim_train.executor.part import SoFar, TrainerSaid
from recsim_train.placement.plan import Plan
from recsim_train.session.job import Caller

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


def test_a_log_gets_a_line_a_second(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, float | None]] = []
    run = SoFar(plan, lambda *_: None, lambda figures: lines.append(dict(figures)))  # type: ignore[arg-type,misc]
    for tenth in range(31):
        monkeypatch.setattr(part.time, "monotonic", lambda now=tenth / 10: now)
        run.tell([TrainerSaid(tenth, 10 * tenth, nan if tenth == 30 else 0.5)])
    batch = plan.experiment.training.batch_size
    assert lines == [
        {"iteration": 0, "examples_per_second": None, "loss": 0.5},
        {"iteration": 10, "examples_per_second": pytest.approx(100 * batch), "loss": 0.5},
        {"iteration": 20, "examples_per_second": pytest.approx(100 * batch), "loss": 0.5},
        {"iteration": 30, "examples_per_second": pytest.approx(100 * batch), "loss": None},
    ]


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    caller = Caller(log=tmp_path / "log.jsonl")
    caller.logged("mine", {"iteration": 3, "loss": 0.25})
    caller.logged("mine", {"iteration": 4, "loss": None})
    read = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(one["run"], one["iteration"], one["loss"]) for one in read] == [
        ("mine", 3, 0.25), ("mine", 4, None),
    ]  # fmt: skip
    assert all(datetime.fromisoformat(one["at"]).tzinfo is not None for one in read)
    Caller(log=tmp_path / "gone" / "log.jsonl").logged("mine", {"iteration": 5})
