"""How far a calibration is, and what a quick one says of what it cannot see."""

from __future__ import annotations

from math import hypot

import pytest

from recsim_train.calibration.measuring import Stages, seconds_of
from recsim_train.calibration.profile import UNSEEN
from recsim_train.calibration.runs import talks
from recsim_train.config.cluster import Calibration
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.session import profile


def test_a_stage_counts_by_the_seconds_that_it_usually_takes() -> None:
    told: list[tuple[float, float, str]] = []
    stages = Stages(
        {"one": 10.0, "two": 30.0},
        lambda done, total, stage="", _="": told.append((done, total, stage)),
    )
    step = stages.begin("one", 2)
    step()
    step()
    step()  # one more than was said is no step further
    step = stages.begin("two", 3)
    step()
    assert told == [
        (0.0, 40.0, "one"), (5.0, 40.0, "one"), (10.0, 40.0, "one"), (10.0, 40.0, "one"),
        (10.0, 40.0, "two"), (20.0, 40.0, "two"),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        stages.begin("one")
    with pytest.raises(KeyError):
        stages.begin("three")


def test_a_quick_calibration_is_planned_for_a_fifth_of_the_time() -> None:
    full, quick = (sum(profile._seconds([], quick=q, add=False).values()) for q in (False, True))
    assert quick <= full / 5
    assert list(seconds_of(quick=True)) == list(seconds_of(quick=False))


def test_runs_of_a_quick_calibration_tell_how_prices_scatter() -> None:
    """Of each price that users' requests have there are more runs than parameters of its fit."""
    quick = talks(quick=True)
    own = [run.asks for run in quick if run.travels_as_usual]
    assert own.count("dense") > 2
    assert {(run.execution.shared_memory, run.readers) for run in quick} == {
        (True, 0), (False, 0), (True, 1)
    }  # fmt: skip


def test_what_was_not_seen_of_the_machines_speed_is_added() -> None:
    def speed(products: float) -> MachineSpeed:
        return MachineSpeed(products=products, gather=1.0, interpreter=1.0, loopback=1.0)

    speeds = MachineSpeeds(before=speed(1.0), after=speed(1.1))
    known = Calibration(date="", machine="", machine_speed=speeds)
    seen = known.speed_spread
    assert seen is not None
    quick = known.model_copy(update={"unseen": UNSEEN})
    assert quick.speed_spread == pytest.approx(hypot(UNSEEN, seen))
    alone = Calibration(date="", machine="").model_copy(update={"unseen": UNSEEN})
    assert alone.speed_spread == UNSEEN
