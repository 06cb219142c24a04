"""What operations on modelled hosts take, on a clock of the test's own; a net's stand-in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recsim_train.executor import modelled
from recsim_train.executor.modelled import ModelledCompute, StandIn
from recsim_train.executor.net.model import Pass
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.strategy.values import NetGradients
from recsim_train.trace.facts import Slept
from recsim_train.workload.operations import OperationTime, ProcessTimes


class Clock:
    """Time that passes where somebody sleeps, and ``late`` seconds longer."""

    def __init__(self) -> None:
        self.now, self.late = 100.0, 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + self.late


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(modelled, "time", found)
    return found


def made(cores: int = 4, **seconds: float | tuple[float, float]) -> ModelledCompute:
    pairs = {n: s if isinstance(s, tuple) else (s, 0.0) for n, s in seconds.items()}
    times = {name: OperationTime(*pair) for name, pair in pairs.items()}
    return ModelledCompute(ProcessTimes(cores, times))


def do(pace: ModelledCompute, operation: str, work: Callable[[], None] = lambda: None) -> None:
    began = pace.begin(operation)
    assert began is not None
    work()
    pace.end(operation, began)


def test_it_sleeps_for_what_work_leaves(clock: Clock) -> None:
    def work() -> None:
        clock.now += 2e-3

    pace = made(apply=5e-3)
    do(pace, "apply", work)
    assert clock.now == pytest.approx(100.0 + 5e-3)
    assert clock.slept == [pytest.approx(3e-3)]
    assert (Slept(*pace.slept).asked, Slept(*pace.slept).taken) == (5e-3, pytest.approx(5e-3))


def test_short_ones_are_slept_together(clock: Clock) -> None:
    pace = made(apply=30e-6)
    for _ in range(100):
        do(pace, "apply")
    assert clock.now == pytest.approx(100.0 + 3e-3, abs=1e-4)
    assert len(clock.slept) < 30
    assert Slept(*pace.slept).taken == pytest.approx(Slept(*pace.slept).asked, abs=1e-4)


def test_what_was_overslept_is_slept_less_next_time(clock: Clock) -> None:
    clock.late = 60e-6
    pace = made(apply=1e-3)
    for _ in range(1000):
        do(pace, "apply")
    assert Slept(*pace.slept).taken == pytest.approx(1.0, rel=1e-3)
    assert (Slept(*pace.slept).wakes, Slept(*pace.slept).late) == (1000, 0)
    clock.late = 2e-3
    do(made(apply=1e-3), "apply")
    late = made(apply=1e-3)
    do(late, "apply")
    assert Slept(*late.slept).late == 1


def test_work_that_takes_longer_is_made_up_for(clock: Clock) -> None:
    def work() -> None:
        clock.now += 3e-3

    pace = made(apply=1e-3, drain=10e-3)
    for _ in range(10):
        do(pace, "apply", work)
        do(pace, "drain")
    assert clock.now == pytest.approx(100.0 + 10 * 11e-3)
    assert Slept(*pace.slept).taken == pytest.approx(Slept(*pace.slept).asked)


def test_work_that_always_takes_longer_shows(clock: Clock) -> None:
    def work() -> None:
        clock.now += 3e-3

    pace = made(apply=1e-3)
    for _ in range(10):
        do(pace, "apply", work)
    assert Slept(*pace.slept).taken == pytest.approx(3 * Slept(*pace.slept).asked)


def test_what_is_not_modelled_takes_what_it_takes() -> None:
    pace = made(apply=1e-3, reading=1.0, narrow=1.0)
    assert [pace.begin(what) for what in ("reading", "narrow", "runtime", "drain")] == [None] * 4


def test_sleepers_share_the_hosts_cores() -> None:
    pace = made(cores=1, apply=1e-6)
    first = pace.begin("apply")
    second = threading.Thread(target=pace.begin, args=["apply"])
    second.start()
    second.join(0.2)
    assert second.is_alive()
    assert first is not None
    pace.end("apply", first)
    second.join(10.0)
    assert not second.is_alive()


def test_one_at_a_time_holds_the_interpreter_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three threads that sleep for 50 ms, 40 of them locked: the locked parts follow each
    other, and waiting for them is not taken for work."""
    pace = made(cores=4, apply=(50e-3, 40e-3))
    inside: list[int] = []
    most: list[int] = []
    real = modelled.time.sleep

    def sleep(seconds: float) -> None:
        if seconds > 20e-3:  # the locked part
            inside.append(1)
            most.append(len(inside))
        real(seconds)
        if seconds > 20e-3:
            inside.pop()

    clock = SimpleNamespace(sleep=sleep, monotonic=modelled.time.monotonic)
    monkeypatch.setattr(modelled, "time", clock)
    threads = [threading.Thread(target=do, args=[pace, "apply"]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert most == [1, 1, 1]
    assert Slept(*pace.slept).taken < 0.3  # with the waits it would be 0.27 and 0.12 more


def test_a_stand_ins_gradients_have_the_shapes_and_come_again_with_the_seed() -> None:
    def gradients(seed: int, room: torch.Tensor | None = None) -> list[torch.Tensor]:
        stand_in = StandIn(seed)
        worker = SimpleNamespace(
            replica=SimpleNamespace(parameters=torch.zeros(3700)), room=lambda: room, loss=1.0
        )
        found = []
        for examples in (5, 9):
            rows = SimpleNamespace(tensor=torch.zeros(3, examples, 4), ids=None)
            made = stand_in(worker, None, rows)  # type: ignore[arg-type]
            found += [made.dense.tensor.clone(), made.rows.tensor]  # type: ignore[attr-defined]
        assert worker.loss is None
        return found

    first = gradients(1)
    assert [tuple(g.shape) for g in first] == [(3700,), (3, 5, 4), (3700,), (3, 9, 4)]
    assert not torch.equal(first[0], first[2])
    assert all(torch.equal(a, b) for a, b in zip(first, gradients(1), strict=True))
    assert not torch.equal(first[0], gradients(2)[0])
    assert 0.5e-3 < float(first[3].std()) < 2e-3
    room = torch.empty(3700)
    last = gradients(1, room)
    assert torch.equal(room, last[2])


class First(Pass):
    """A pass that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.block = RealBlock(torch.arange(6.0).view(2, 3))
        self.parts = RealParts((torch.ones(2), torch.ones(1)))
        own, shared = RealDense(torch.ones(5), start=7), RealDense(torch.ones(2), start=3)
        self.found = NetGradients(own, shared, RealRows(torch.full((4, 2), 9.0), IDS))

    def forward(self, cut: int) -> RealParts | RealBlock:
        self.asked.append(f"forward {cut}")
        return self.block if cut else self.parts

    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        self.asked.append(f"receive {cut}")

    def backward(self, cut: int) -> RealParts | RealBlock:
        self.asked.append(f"backward {cut}")
        return self.block

    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        self.asked.append(f"take back {cut}")

    def gradients(self) -> NetGradients:
        self.asked.append("gradients")
        return self.found


IDS: Any = SimpleNamespace()


def through(tape: Pass) -> list[torch.Tensor]:
    """What a pass over two cuts gives, rows' gradients last."""
    given: list[Any] = [tape.forward(0), tape.forward(1), tape.backward(1)]
    tape.receive(0, given[0])
    tape.take_back(1, given[1])
    found: Any = tape.gradients()
    assert (found.own.start, found.shared.start) == (7, 3)
    assert found.rows.ids is IDS
    tensors = [*given[0].tensors, given[1].tensor, given[2].tensor]
    return [*tensors, found.own.tensor, found.shared.tensor, found.rows.tensor]


def test_only_a_loops_first_pass_through_a_cut_net_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[First] = []

    def net_open(*_: object) -> First:
        passes.append(First())
        return passes[-1]

    monkeypatch.setattr(modelled, "net_open", net_open)
    stand_in, loops = StandIn(1), (Loop(), Loop())
    seen = []
    for unique in (4, 6, 3):
        for loop in loops:
            rows = RealRows(torch.zeros(unique, 2), IDS)
            tape = stand_in.open(loop, None, rows)  # type: ignore[arg-type]
            seen.append([tensor.clone() for tensor in through(tape)])
            for tensor in through(tape):
                tensor.mul_(2.0)  # as a sum over a group does
    assert len(passes) == 2
    asked = ["forward 0", "forward 1", "backward 1", "receive 0", "take back 1", "gradients"]
    assert passes[0].asked == 2 * asked
    assert [tuple(t[-1].shape) for t in seen] == [(4, 2), (4, 2), (6, 2), (6, 2), (3, 2), (3, 2)]
    for first, later in zip(seen[0][:-1], seen[4][:-1], strict=True):
        assert torch.equal(first, later)
    assert not seen[4][-1].eq(9.0).any()


class Loop:
    """One that trains."""
