"""What a process has measured survives signals that come while it is written."""

from __future__ import annotations

import pickle
import queue
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
from recsim_train.executor.part import ProcessPart
from recsim_train.executor.process import launch
from recsim_train.executor.process.entry import write_spec
from recsim_train.executor.process.merge import merge
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from tests.clock import LIMIT

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


@pytest.mark.parametrize(
    ("steps", "first"),
    [(10**6, '"progress": '), (50, "writing")],
    ids=["in training", "at the end"],
)
@pytest.mark.parametrize("more", [1, 5])
def test_a_part_is_written_whole_under_repeated_signals(
    tmp_path: Path, steps: int, first: str, more: int
) -> None:
    plan = plan_of(steps)
    write_spec(tmp_path, plan)
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if first in line and '"iterations": 0' not in line:
                break
        process.send_signal(signal.SIGTERM)
        if first != "writing":
            assert any(line == "writing\n" for line in process.stdout)
        for _ in range(more):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        assert process.wait(LIMIT) == 1
    part = pickle.loads((tmp_path / "part-0.pickle").read_bytes())
    assert isinstance(part, ProcessPart)
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


def test_who_writes_is_given_more_time_than_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.2)
    monkeypatch.setattr(launch, "LEAVING", 2.0)
    now = [100.0]
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    instance = plan_of(5).instances[0]
    names = {"writes": 0.6, "hangs": 1e9, "writes for ever": 1e9}
    processes = {name: Writes(seconds, now) for name, seconds in names.items()}
    messages: queue.Queue[tuple[launch.Child, dict[str, object]]] = queue.Queue()
    children = {
        name: launch.Child(instance, process, Path())  # type: ignore[arg-type]
        for name, process in processes.items()
    }
    for name in ("writes", "writes for ever"):
        messages.put((children[name], {"leaving": True}))
    launch._end([*children.values()], messages)
    ends = {name: process.end - 100.0 for name, process in processes.items()}
    assert ends == pytest.approx({"writes": 0.6, "hangs": 0.2, "writes for ever": 2.0}, abs=0.1)
    both = [signal.SIGTERM, signal.SIGKILL]
    assert {name: process.signals for name, process in processes.items()} == {
        "writes": both[:1],
        "hangs": both,
        "writes for ever": both,
    }
