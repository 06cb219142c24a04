"""What a process has measured survives signals that come while it is written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

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
from recsim_train.executor.part import INTERRUPTED, Ending
from recsim_train.executor.process import launch, parting
from recsim_train.executor.process.board import FolderBoard
from recsim_train.executor.process.merge import merge
from recsim_train.executor.process.spec import write_spec
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from tests.clock import LIMIT, until

SLOW = """
import sys, time
from pathlib import Path
from recsim_train.executor.process import entry
from recsim_train.executor.process import role

write = role.Role.part

def part(self):
    print("writing", flush=True)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:  # as where there are many spans: work, no single sleep
        time.sleep(0.01)
    return write(self)

role.Role.part = part
entry.run_role(Path(sys.argv[1]), 0)
"""

NOT_YET = b'"slowest": 0'


def plan_of(steps: int) -> Plan:
    model = Model(
        embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(8, 1), tables=(Table(rows=40), Table(rows=30))
    )
    spec = Experiment(
        name="leaving",
        model=model,
        data=Data(eval_rows=64, synthetic=Synthetic(rows=5_000)),
        roles=Roles(),
        training=Training(batch_size=16, steps=steps, warmup_steps=0),
        strategies=(StrategyChoice(kind="allreduce"),),
    )
    return build_plan(spec, spec.strategies[0])


@pytest.mark.parametrize("steps", [10**6, 50], ids=["in training", "at the end"])
@pytest.mark.parametrize("more", [1, 5])
def test_a_part_is_written_whole_under_repeated_signals(
    tmp_path: Path, steps: int, more: int
) -> None:
    plan, board = plan_of(steps), FolderBoard(tmp_path)
    write_spec(tmp_path, plan)
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if steps > 50:
            until(lambda: b'"slowest": 0' not in (board.get("progress-0") or NOT_YET), LIMIT)
            process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "writing\n"
        for _ in range(more):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.25)
        assert process.wait(LIMIT) == 1
    (word,) = parting.words_left(board, ["trainer[0]"]).values()
    assert word == Ending("trainer[0]", INTERRUPTED, "asked to end", word.waits, measured=True)
    part = parting.get_part(board, 0)
    assert part is not None
    outcome = merge(plan, [part], complete=False)
    assert outcome.steps > 0
    assert len(part.records.iterations) == outcome.steps


class Writes:
    """A process that ends so many seconds after it has been asked to, by the clock ``now``."""

    returncode: int | None = None

    def __init__(self, seconds: float, now: list[float]) -> None:
        self.seconds, self.now = seconds, now
        self.signals: list[signal.Signals] = []

    def poll(self, seconds: float = 0.0) -> int | None:
        if self.signals and self.now[0] >= self.end:
            self.returncode = 1
        else:
            self.now[0] += seconds
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        wait = self.seconds if number == signal.SIGTERM else 0.0
        self.end = self.now[0] + wait


def test_who_writes_is_given_more_time_than_who_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "WRITING", 2.0)
    now, board = [100.0], FolderBoard(tmp_path)
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    instance = plan_of(5).instances[0]
    processes = [Writes(seconds, now) for seconds in (0.6, 1e9, 1e9)]
    children = [
        launch.Child(instance, rank, process, Path())  # type: ignore[arg-type]
        for rank, process in enumerate(processes)
    ]
    for rank in (0, 2):
        parting.leave(board, rank, Ending("", "peer", "another rank left the run"))
    launch._end(children, board, 0.2)
    ends = [process.end - 100.0 for process in processes]
    assert ends == pytest.approx([0.6, 0.2, 2.0], abs=0.1)
    both = [signal.SIGTERM, signal.SIGKILL]
    assert [process.signals for process in processes] == [both[:1], both, both]
