"""What unit prices are fitted to: which operations are timed, on which numbers, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from recsim_train.calibration.own import unit
from recsim_train.calibration.own.rounds import PlanRounds
from recsim_train.config.measured import MachineSpeed
from recsim_train.executor.values import RealDense
from recsim_train.placement.plan import Plan
from recsim_train.strategy.values import Gradients
from recsim_train.workload.operations import OPS
from recsim_train.workload.scope import Cell


def test_every_operation_is_timed_for_unit_prices() -> None:
    """Reading apart, whose prices are those of runs."""
    timed = set()

    def done(operation: str, call: Callable[[], Any], **_: Any) -> Any:
        timed.add(operation)
        return call()

    for planned in unit.plans(quick=True):
        PlanRounds(planned.plan, planned.cells).once(done)
    assert timed == set(OPS) - {"reading"}


def test_the_whole_grid_varies_what_the_quick_one_does() -> None:
    whole, quick = unit.plans(quick=False), unit.plans(quick=True)
    assert {name for p in quick for name, _ in p.cells} == {n for p in whole for n, _ in p.cells}
    assert {p.law for p in whole} == {"", "fit", "check"}
    rules = {
        (p.plan.experiment.training.dense_optimizer, p.plan.experiment.training.sparse_optimizer)
        for p in whole
    }
    assert len(rules) == 4
    served = [p.plan.embedding for p in whole]
    assert {e.service.pooling for e in served if e is not None} == {"server", "worker"}
    assert {len(e.shards) for e in served if e is not None} == {1, 2}


def test_passes_work_on_numbers_as_large_as_a_runs_however_often_a_round_is_done() -> None:
    """Denormal numbers take some processors a hundred cycles each: passes took thirty times as
    long after weights had been overwritten with a gradient's."""
    planned = unit.plans(quick=True)[0]
    rounds, passes = PlanRounds(planned.plan, planned.cells), list[Any]()

    def done(operation: str, call: Callable[[], Any], **_: Any) -> Any:
        answer = call()
        if operation == "forward_backward":
            passes.append(answer)
        return answer

    for _ in range(40):
        rounds.once(done)
    assert len(passes) == 40
    found = passes[-1]
    assert isinstance(found, Gradients)
    assert isinstance(found.dense, RealDense)
    numbers = found.dense.tensor.abs()
    tiny = torch.finfo(torch.float32).tiny
    assert ((numbers > 0.0) & (numbers < 1e6 * tiny)).sum() == 0
    assert numbers.median() > 1e-6


def figures(shape: str, cpu: float, wall: float, **more: float) -> dict[str, Any]:
    return {
        "operation": "forward_backward", "shape": shape, "cpu": cpu, "wall": wall, "own": cpu / 2,
        "work": {"gemm_flop": 100.0}, "divided": {"gemm_flop": 80.0}, "wakes": 3.0, **more,
    }  # fmt: skip


def test_turns_become_one_observation_at_the_mean_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second turn is on a machine four times as slow: each is brought to half the speed."""
    planned = [
        unit.plans(quick=True)[0]._replace(law=law)
        for law in ("", "fit", "check")  # type: ignore[arg-type]
    ]
    speeds = iter([1.0] * 4 + [0.25] * 10)
    turns: list[int] = []

    @contextmanager
    def started(plan: Plan, cells: Sequence[Cell], processes: int) -> Iterator[int]:
        assert processes == 1
        turns.append(len(turns) // 3)
        yield turns[-1]

    def window(turn: int, seconds: float, threads: int = 1) -> list[dict[str, Any]]:
        took = (1.0, 4.0)[turn] / (threads * 0.8 if threads > 1 else 1.0)
        seen = figures("server; batch 32", took * threads, took)
        quiet = figures("worker; batch 32", took, took, wakes=0.0)
        return [seen, quiet]

    def read() -> MachineSpeed:
        speed = next(speeds)
        return MachineSpeed(products=speed, gather=speed, interpreter=speed, loopback=speed)

    monkeypatch.setattr(unit, "plans", lambda quick: planned)
    monkeypatch.setattr(unit, "started", started)
    monkeypatch.setattr(unit, "window", window)
    monkeypatch.setattr(unit, "short_reading", read)
    ticks: list[int] = []
    found = unit.measure(4, lambda: ticks.append(1), quick=False)
    assert len(ticks) == 6
    # two shapes of each plan; the first plan's second turn began at full speed
    assert [seen.group for seen in found.observations] == ["forward_backward"] * 6
    assert all(seen.work == {"gemm_flop": 100.0} for seen in found.observations)
    later = found.observations[2:]
    assert [seen.seconds for seen in later] == pytest.approx([later[0].seconds] * 4)
    # times are of one thread; what wakes nobody does not show how operations scale
    took = later[0].seconds
    assert [entry["check"] for entry in found.threaded] == [False, True]
    for entry in found.threaded:
        assert entry["one"] == pytest.approx([took, took, took / 2.0])
        assert entry["many"] == pytest.approx([took / 3.2, took / 0.8, took / 1.6])
        assert entry["divided"] == {"gemm_flop": 80.0}
        assert entry["wakes"] == 3.0
