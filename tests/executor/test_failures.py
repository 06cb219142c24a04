"""When something dies: one sentence that names it, everything ended, what was measured kept."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from recsim_train.config.experiment import (
    Data,
    Execution,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.process import evaluate, forkserver
from recsim_train.executor.process.launch import PartialRun, execute
from recsim_train.executor.queues import QueueFeed
from recsim_train.executor.runtime import LoopContext, run_loop
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.effects import Compute, Now, Pull
from recsim_train.strategy.operations import SNAPSHOT
from tests.clock import by_the_clock, tried_anew, until


def make_plan(
    *,
    steps: int = 10**6,
    timeout: str = "30 s",
    start_timeout: str = "120 s",
    transport: str = "tcp",
    readers: int = 1,
    **data: object,
) -> Plan:
    choice = StrategyChoice(kind="flat_ps")
    spec = Experiment(
        name="failures",
        model=Model(
            embedding_dim=4,
            bottom_mlp=(8, 4),
            top_mlp=(8, 1),
            tables=(Table(rows=40), Table(rows=50)),
        ),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000), **data),
        roles=Roles(trainers=2, embedding_servers=1, dense_servers=1, readers=readers),
        training=Training(batch_size=16, threads=1, steps=steps, warmup_steps=2),
        execution=Execution(timeout=timeout, start_timeout=start_timeout),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def children(staging: Path) -> list[psutil.Process]:
    """The role processes of one run: no other test's."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie has no command line
            if str(staging) in process.cmdline():
                found.append(process)
    return found


ROLES = ["trainer[0]", "trainer[1]", "embedding_server[0]", "dense_server[0]", "reader[0]"]


@pytest.mark.parametrize("role", ROLES)
@tried_anew()
def test_a_killed_process_is_named_and_everything_ends(role: str, tmp_path: Path) -> None:
    killed_at: list[float] = []
    seen: list[psutil.Process] = []

    def kill(done: int, *_: object) -> None:
        if done > 5 and not killed_at:
            seen.extend(children(tmp_path))
            victim = next(p for p in seen if role in p.cmdline())
            killed_at.append(time.monotonic())
            victim.kill()

    with pytest.raises(PartialRun) as failure:
        execute(make_plan(), staging=tmp_path, progress=kill)
    took = time.monotonic() - killed_at[0]
    assert str(failure.value) == f"{role} was killed by signal 9 (SIGKILL)"
    assert len(seen) == len(ROLES)
    assert not any(p.is_running() for p in seen)
    outcome = failure.value.outcome
    assert outcome is not None
    assert 0 < outcome.steps < 10**6
    left = {f"trainer[{t}]" for t in range(2)} - {role}
    assert {i.loop for i in outcome.iterations} == {f"{name}.worker[0]" for name in left}
    lost = [warning for warning in outcome.facts.warnings if "left nothing" in warning]
    assert [role in warning for warning in lost] == [True] * role.startswith("trainer")
    with by_the_clock():
        assert took < 15


def test_the_death_of_what_roles_are_forked_from_is_told(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []

    def kill(done: int, *_: object) -> None:
        if done > 5 and not seen:
            seen.extend(children(tmp_path))
            forkserver.ready().process.kill()

    with pytest.raises(PartialRun, match=r"are forked from was killed by signal 9 \(SIGKILL\)$"):
        execute(make_plan(), staging=tmp_path, progress=kill)
    assert len(seen) == len(ROLES)
    assert not psutil.wait_procs(seen, timeout=5)[1]
    (tmp_path / "again").mkdir()
    assert execute(make_plan(steps=5), staging=tmp_path / "again").steps == 5


def test_an_error_in_one_role_is_its_sentence(tmp_path: Path) -> None:
    path = tmp_path / "gone.tsv"
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(PartialRun, match=r"reader\[0\] failed: .*gone\.tsv"):
        execute(make_plan(path=(str(path),)), staging=staging)
    assert not children(staging)


def test_a_stalled_process_is_given_up_after_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recsim_train.executor.process.launch.GRACE", 1.0
    )  # it cannot do as it is asked
    stopped: list[psutil.Process] = []

    def stall(done: int, *_: object) -> None:
        if done > 5 and not stopped:
            victim = next(p for p in children(tmp_path) if "dense_server[0]" in p.cmdline())
            victim.suspend()
            stopped.append(victim)

    with pytest.raises(PartialRun) as failure:
        execute(make_plan(timeout="3 s"), staging=tmp_path, progress=stall)
    text = str(failure.value)
    assert "who waited for what" in text
    # a push is awaited in the part that may thin it out
    assert "pull at flat_ps.py:" in text or "push at compression.py:" in text
    assert not any(p.is_running() for p in stopped)


def _stopping(staging: Path, role: str, seconds: float = 0.0) -> Callable[..., None]:
    """A progress that stops a role once, and has it go on so many seconds later; 0: never."""
    stopped: list[psutil.Process] = []

    def stop(done: int, *_: object) -> None:
        if done > 5 and not stopped:
            stopped.append(next(p for p in children(staging) if role in p.cmdline()))
            stopped[0].suspend()
            if seconds:
                threading.Timer(seconds, stopped[0].resume).start()

    return stop


def test_who_has_done_its_steps_waits_for_the_others_as_long_as_the_time_out_says(
    tmp_path: Path,
) -> None:
    """And not as long as processes may take to start."""
    # with no reader, which would wait for trainer[0] before it reads on for trainer[1]
    plan = make_plan(steps=400, timeout="60 s", start_timeout="8 s", readers=0)
    outcome = execute(plan, staging=tmp_path, progress=_stopping(tmp_path, "trainer[0]", 14.0))
    assert outcome.steps == 400


@pytest.mark.parametrize(
    "role", [pytest.param("trainer[0]", marks=pytest.mark.thorough), "trainer[1]", "reader[0]"]
)
@tried_anew()
def test_a_process_that_stops_for_good_is_named_whoever_waits_for_it(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recsim_train.executor.process.launch.GRACE", 1.0
    )  # it cannot do as it is asked
    begin = time.monotonic()
    plan = make_plan(steps=400, timeout="4 s")
    with pytest.raises(PartialRun) as failure:
        execute(plan, staging=tmp_path, progress=_stopping(tmp_path, role))
    took = time.monotonic() - begin
    assert f"{role} gave no sign of life for 4 s" in str(failure.value)
    with by_the_clock():
        assert took < 60


def test_no_thread_or_descriptor_is_left_behind(tmp_path: Path) -> None:
    process = psutil.Process()
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
        execute(make_plan(steps=5), staging=tmp_path / name)
        if name == "first":
            before = (threading.active_count(), process.num_fds())
    until(lambda: threading.active_count() <= before[0], 20)
    until(lambda: process.num_fds() <= before[1] + 1, 20)


def context(plan: Plan) -> LoopContext:
    replica = Replica(plan.experiment.model, plan.experiment.training, 1)
    return LoopContext(
        instance="trainer[0]",
        label="worker[0]",
        definition=plan.loop("worker"),
        topology=plan.topology,
        worker=Worker(replica, "server"),
        feed=QueueFeed(1, lambda: False),
        embedding=None,
        dense=None,
        collectives={},
        clock=time.monotonic,
        recorder=None,
    )


def test_awaiting_anything_else_names_the_line() -> None:
    class Stranger:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield "not an effect"

    async def program() -> None:
        await Now()
        await Stranger()

    with pytest.raises(StrategyError, match=r"test_failures\.py:\d+: .* a strategy may await"):
        run_loop(context(make_plan()), program())


def test_a_failed_effect_is_thrown_into_the_program() -> None:
    caught = []

    async def program() -> None:
        try:
            await Pull("dense")
        except AttributeError as error:
            caught.append(error)
        await Compute(SNAPSHOT)

    run_loop(context(make_plan()), program())
    assert len(caught) == 1


def test_metrics_against_a_reference() -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(500, generator=generator).round(decimals=1)  # with ties
    labels = (torch.rand(500, generator=generator) < torch.sigmoid(logits)).float()
    found = evaluate.auc(logits, labels)
    assert found == pytest.approx(sklearn_metrics.roc_auc_score(labels, logits))
    loss = evaluate.log_loss(logits, labels)
    probabilities = torch.sigmoid(logits.double())
    assert loss == pytest.approx(sklearn_metrics.log_loss(labels, probabilities))
    rate = torch.full_like(logits, float(labels.mean()))
    constant = evaluate.log_loss(torch.logit(rate.double()), labels)
    assert evaluate.normalized_entropy(constant, labels) == pytest.approx(1.0)
    assert evaluate.auc(logits, torch.ones(500)) is None


def test_outcome_fields_that_quality_fills_exist() -> None:
    from recsim_train.trace.record import Outcome

    names = {field.name for field in dataclasses.fields(Outcome)}
    assert {"loss", "auc", "normalized_entropy"} <= names
