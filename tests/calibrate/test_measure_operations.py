"""Measured operations: one speed for all, and a profile that keeps them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.calibration.own import measure
from recsim_train.calibration.own.measure import (
    Seen,
    measure_windows,
    measured_operations,
    with_operations,
)
from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.load import load_cluster
from recsim_train.placement.build import build_plan
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import Signature, signature
from tests.calibrate.own_plans import plan_of


@pytest.mark.parametrize("known", [False, True])
def test_what_operations_take_is_given_for_one_speed(
    profile: Cluster,
    asked: Callable[[str], list[tuple[str, Scope]]],
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    """A machine that is 1, 2 or 4 times as fast from window to window: where its speed is
    known, nothing is seen of that."""
    plan, cells = plan_of("allreduce"), asked("allreduce")
    fast = [1.0]
    speeds = itertools.cycle((1.0, 2.0, 4.0))

    class Child:
        def __init__(self, part: str, request: object, limit: float) -> None:
            self.asked: dict[str, Any] = {}

        def __enter__(self) -> Child:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def tell(self, message: dict[str, Any]) -> None:
            self.asked = message

        def hear(self) -> dict[str, Any]:
            if not self.asked:
                return {"tick": True}
            fast[0] = next(speeds)
            prices = {name: getattr(profile.costs, name).value for name in Costs.model_fields}
            seen = []
            for name, scope in cells:
                work = dict(cost(name, scope))
                took = 3.0 * seconds(work, prices)[0] / fast[0]
                shape = str(signature(name, scope))
                seen.append({
                    "operation": name, "shape": shape, "cpu": took, "wall": took, "error": 0.0,
                    "jitter": 0.07,
                    "work": work,
                })  # fmt: skip
            return {"seen": seen}

    monkeypatch.setattr(measure, "MeasuringProcess", Child)
    monkeypatch.setattr(measure.environment, "cores", lambda: 1)
    seen = Seen()
    for _ in range(3):
        measure_windows(plan, cells, seen, lambda: fast[0] / 0.8 if known else 1.0)
    entries = measured_operations(plan, cells, profile, seen)
    assert len(entries) == len(cells)
    assert with_operations(profile, entries).jitter == pytest.approx(0.07)
    prices = {name: getattr(profile.costs, name).value for name in Costs.model_fields}
    for entry, (name, scope) in zip(entries, cells, strict=True):
        once = 3.0 * seconds(cost(name, scope), prices)[0]
        assert entry.spread is not None
        if not known:  # windows of all cores took 1, 1/4 and 1/2 of that: a run sees one of them
            apart = 0.3818813 / 0.5833333
            assert entry.spread == pytest.approx(apart, rel=1e-6)
            assert entry.uncertainty == pytest.approx(apart / 3**0.5, rel=1e-6)
        else:
            assert entry.seconds == pytest.approx(once / 0.8, rel=1e-6)
            assert entry.alone == pytest.approx(once / 0.8, rel=1e-6)
            assert entry.spread < 1e-6


@pytest.mark.slow
@pytest.mark.timeout(180)
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
    seen = Seen()
    measure_windows(plan, cells, seen, lambda: 1.0, quick=True)
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
