"""What a host and its link have at the moment, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from recsim_train.config.topology import Traffic
from recsim_train.sim.cluster.faults import HostCondition, LinkCondition, constant_share


class Capacities:
    """Keeps what it is told, as the fluid does."""

    def __init__(self) -> None:
        self.now: dict[int, float] = {}
        self.paces: dict[int, float] = {}

    def set_capacity(self, resource: Any, capacity: float) -> None:
        self.now[id(resource)] = capacity

    def set_pace(self, resource: Any, pace: float) -> None:
        self.paces[id(resource)] = pace


def resource(capacity: float, pace: float = 1.0) -> Any:
    return SimpleNamespace(capacity=capacity, pace=pace)


def test_reasons_to_be_slow_multiply_and_end_one_by_one() -> None:
    fluid, cores, lock = Capacities(), resource(8.0, 2.0), resource(1.0)
    ways = resource(100.0), resource(100.0)
    nic = LinkCondition(cast("Any", fluid), ways)
    host = HostCondition(cast("Any", fluid), cores, [lock], nic)

    def found() -> list[float]:
        return [*(fluid.now[id(one)] for one in (cores, lock, *ways)), fluid.paces[id(cores)]]

    host.slow(2.0)
    assert found() == pytest.approx([4.0, 0.5, 100.0, 100.0, 1.0])
    host.slow(4.0)
    assert found() == pytest.approx([1.0, 0.125, 100.0, 100.0, 0.25])
    host.recover(2.0)
    assert found() == pytest.approx([2.0, 0.25, 100.0, 100.0, 0.5])
    host.hold()
    host.hold()
    host.release()  # another reason is left
    assert found()[:4] == [0.0, 0.0, 0.0, 0.0]
    host.release()
    assert found() == pytest.approx([2.0, 0.25, 100.0, 100.0, 0.5])


def test_what_others_take_of_a_link_adds_up() -> None:
    fluid, way = Capacities(), resource(100.0)
    link = LinkCondition(cast("Any", fluid), [way])
    link.take(0.2)
    link.take(0.3)
    assert fluid.now[id(way)] == pytest.approx(50.0)
    link.stop(True)
    assert fluid.now[id(way)] == 0.0
    link.stop(False)
    link.give_back(0.2)
    assert fluid.now[id(way)] == pytest.approx(70.0)


def test_only_what_is_always_there_is_constant() -> None:
    always = [Traffic.model_validate({"link": "nic", "share": share}) for share in ("10 %", "20 %")]
    some = {"link": "nic", "share": "30 %", "burst": "1 s", "pause": "2 s"}
    now_and_then = Traffic.model_validate(some)
    assert constant_share([*always, now_and_then]) == pytest.approx(0.3)
