"""Measured operations: what windows took, and a profile that keeps it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from recsim_train.calibration import child, speed
from recsim_train.calibration.measuring import Stages
from recsim_train.calibration.own import measure
from recsim_train.calibration.own.measure import (
    measure_windows,
    measured_operations,
    with_operations,
)
from recsim_train.calibration.speed import Turns
from recsim_train.config.cluster import Calibration, Cluster, Costs
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.config.profiles import load_cluster
from recsim_train.placement.build import build_plan
from recsim_train.results.environment import machine_name
from recsim_train.session.profile import OF_EXPERIMENTS, _with_operations
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import Signature, signature
from tests.calibrate.own_plans import plan_of


class Child:
    """A measuring process whose machine is 1, 2 or 4 times as fast from window to window."""

    prices: ClassVar[dict[str, float]] = {}
    cells: ClassVar[list[tuple[str, Scope]]] = []
    speeds: ClassVar[Iterator[float]] = itertools.cycle(())

    def __init__(self, part: str, *_: object) -> None:
        assert part == "operations"
        self.asked: dict[str, Any] = {}

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def tell(self, message: dict[str, Any]) -> None:
        self.asked = message

    def hear(self) -> Any:
        if not self.asked:
            return "ready"
        fast, seen = next(self.speeds), []
        for name, scope in self.cells:
            work = dict(cost(name, scope))
            took = 3.0 * seconds(work, self.prices)[0] / fast
            seen.append({
                "operation": name, "shape": str(signature(name, scope)), "cpu": took,
                "own": took, "wall": took, "error": 0.0, "jitter": 0.07, "work": work,
            })  # fmt: skip
        return seen


@pytest.fixture
def children(
    profile: Cluster,
    asked: Callable[[str], list[tuple[str, Scope]]],
    monkeypatch: pytest.MonkeyPatch,
) -> type[Child]:
    Child.prices = {name: getattr(profile.costs, name).value for name in Costs.model_fields}
    Child.cells = asked("allreduce")
    Child.speeds = itertools.cycle((1.0, 2.0, 4.0))
    monkeypatch.setattr(child, "MeasuringProcess", Child)
    monkeypatch.setattr(measure.environment, "cores", lambda: 1)
    return Child


def test_what_operations_take_is_what_their_windows_took(
    profile: Cluster, children: type[Child]
) -> None:
    """How far windows are apart is kept as a spread: a run sees one of them."""
    plan, cells, turns = plan_of("allreduce"), children.cells, Turns(lambda: None)
    turns.make(1, 3, lambda _: measure_windows(plan, cells), lambda: None)
    entries = measured_operations(plan, cells, profile, turns.seen(0))
    assert len(entries) == len(cells)
    assert with_operations(profile, entries).jitter == pytest.approx(0.07)
    # a reader decodes many rows at one go, and then none: that is no jitter of others
    lumps = [
        entry.model_copy(update={"jitter": 1.0}) if entry.operation == "reading" else entry
        for entry in entries
    ]
    assert lumps != entries
    assert with_operations(profile, lumps).jitter == pytest.approx(0.07)
    for entry, (name, scope) in zip(entries, cells, strict=True):
        once = 3.0 * seconds(cost(name, scope), children.prices)[0]
        # of a turn's four windows the first and the last are of all cores: they took 1, 1/2 and 1/4
        # of that; those of one process between them 1/2 and 1/4, 1/4 and 1, 1 and 1/2
        assert entry.seconds == pytest.approx(7 / 12 * once, rel=1e-6)
        assert entry.alone == pytest.approx(5 / 4 * 7 / 12 * once, rel=1e-6)
        apart = 0.3818813 / 0.5833333
        assert entry.spread == pytest.approx(apart, rel=1e-6)
        assert entry.uncertainty == pytest.approx(apart / 3**0.5, rel=1e-6)


def test_nothing_is_read_beside_operations_that_are_measured(
    profile: Cluster, children: type[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads the machine's speed would share caches and memory with what is measured, and be
    slowed by it: it does so between turns."""
    alive = set[Child]()
    read: list[int] = []

    class Counted(Child):
        def __enter__(self) -> Child:
            alive.add(self)
            return self

        def __exit__(self, *error: object) -> None:
            alive.remove(self)

    def reading(rounds: int) -> MachineSpeed:
        assert not alive
        read.append(rounds)
        return at

    monkeypatch.setattr(child, "MeasuringProcess", Counted)
    monkeypatch.setattr(speed, "measure_speed", reading)
    at = MachineSpeed(products=0.8, gather=0.8, interpreter=0.8, loopback=0.8)
    told = Calibration(
        date="", machine=machine_name(), machine_speed=MachineSpeeds(before=at, after=at)
    )
    known = profile.model_copy(update={"calibration": told})
    stages = Stages({OF_EXPERIMENTS: 1.0})
    told_of = _with_operations(known, [plan_of("allreduce")], stages, quick=True)
    assert len(read) == 3  # before, between and after two turns
    assert told_of.calibration is not None
    assert told_of.calibration.machine_speed is not None
    assert told_of.calibration.machine_speed.between == (at, at)
    assert told_of.operations is not None
    for entry in told_of.operations:
        own = next(s for n, s in children.cells if str(signature(n, s)) == entry.shape)
        once = 3.0 * seconds(cost(entry.operation, own), children.prices)[0]
        # windows of all cores took 1 and 1/2 of that; those of one process 3/8 and 5/4 of these
        assert entry.seconds == pytest.approx(3 / 4 * once, rel=1e-6)
        assert entry.alone == pytest.approx(13 / 16 * 3 / 4 * once, rel=1e-6)


def test_operations_are_brought_to_the_machines_mean_speed(
    profile: Cluster, children: type[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three turns on a machine that is as fast as its readings say: 1, 4 and 1/4 of the mean. With
    that they agree, and their level is that of the mean speed."""
    fast = (2.0, 8.0, 0.5)
    monkeypatch.setattr(Child, "speeds", iter([each for one in fast for each in [one] * 4]))
    # each turn between two readings whose mean it is: 1 and 4, 4 and 16, 16 and 1/64
    readings = iter([1.0, 4.0, 16.0, 1 / 64])

    def reading(rounds: int) -> MachineSpeed:
        now = next(readings)
        return MachineSpeed(products=now, gather=now, interpreter=now, loopback=now)

    monkeypatch.setattr(speed, "measure_speed", reading)
    stages = Stages({OF_EXPERIMENTS: 1.0})
    told_of = _with_operations(profile, [plan_of("allreduce")], stages, quick=False)
    assert told_of.operations is not None
    assert next(readings, None) is None
    for entry in told_of.operations:
        own = next(s for n, s in children.cells if str(signature(n, s)) == entry.shape)
        once = 3.0 * seconds(cost(entry.operation, own), children.prices)[0]
        assert entry.seconds == pytest.approx(once / 2.0, rel=1e-3)
        assert entry.alone == pytest.approx(once / 2.0, rel=1e-3)
        assert entry.spread == pytest.approx(0.0, abs=1e-3)


@pytest.mark.slow
def test_measured_operations_are_a_profile(
    profile: Cluster, asked: Callable[[str], list[tuple[str, Scope]]], tmp_path: Any
) -> None:
    from recsim_train.config.dump import dump_cluster

    plan, cells = plan_of("allreduce"), asked("allreduce")
    plan = build_plan(
        plan.experiment.model_copy(
            update={"training": plan.experiment.training.model_copy(update={"threads": 2})}
        ),
        plan.strategy,
    )
    seen = measure_windows(plan, cells, quick=True)
    entries = measured_operations(plan, cells, profile, seen)
    assert [(e.operation, Signature.parse(e.shape)) for e in entries] == [
        (name, signature(name, scope)) for name, scope in cells
    ]
    for entry in entries:
        assert entry.pooled is not None
        assert entry.pooled.threads == 2
        assert entry.pooled.cpu <= 2.001 * entry.pooled.seconds
        assert 1e-7 < entry.alone < 10 * entry.seconds < 1.0
        assert 0.02 <= entry.uncertainty <= 1.0
    prices = {name: getattr(profile.costs, name).value for name in type(profile.costs).model_fields}
    net = next(e for e in entries if e.operation == "forward_backward")
    assert 0.1 < net.seconds / seconds(net.work, prices)[0] < 10
    once = entries[0].model_copy(update={"pooled": None}).times(2.0)
    whole = with_operations(with_operations(profile, entries), [once])
    assert whole.operations is not None
    assert len(whole.operations) == len(entries)
    assert whole.operations[0] == entries[0].times(2.0)
    whole = with_operations(whole, entries[:1])
    target = tmp_path / "here.yaml"
    target.write_text(dump_cluster(whole), encoding="utf-8")
    loaded = load_cluster(str(target)).operations
    assert loaded is not None
    for here, there in zip(entries, loaded, strict=True):
        assert (here.operation, here.shape) == (there.operation, there.shape)
        assert there.seconds == pytest.approx(here.seconds, rel=1e-4)
        assert there.work == pytest.approx(here.work)
