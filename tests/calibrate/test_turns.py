"""Turns on a machine that is slow now and then, and waits for one that is as fast as it was."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.calibration import speed
from recsim_train.calibration.speed import Seen, Turns
from recsim_train.config.errors import RunFailed
from recsim_train.config.measured import MachineSpeed


def of(value: float) -> MachineSpeed:
    return MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)


def made(
    speeds: list[MachineSpeed | None], plans: int, rounds: int
) -> tuple[Turns, list[int], list[int]]:
    """The turns on a machine with these readings, whose they were, and the progress told."""
    readings = iter(speeds)
    whose: list[int] = []
    told: list[int] = []
    turns = Turns(lambda: next(readings))

    def measure(plan: int) -> Seen:
        whose.append(plan)
        figures = dict.fromkeys(("cpu", "own", "wall"), 1.0)
        return {"alone": [{**figures, "count": 7}]}

    turns.make(plans, rounds, measure, lambda: told.append(len(whose)))
    assert next(readings, "all are read") == "all are read"
    return turns, whose, told


def test_each_has_its_turns_with_those_of_all_others_between() -> None:
    turns, whose, told = made([of(2.0)] * 7, 2, 3)
    assert whose == [0, 1, 0, 1, 0, 1]
    assert told == [1, 2, 3, 4, 5, 6]
    assert turns.factors(0) == turns.factors(1) == pytest.approx([1.0] * 3)


def test_what_a_turn_took_is_brought_to_the_mean_speed() -> None:
    """Read 2, 2, 1/2, 1/2 and 2: the turns are at 2, 1, 1/2 and 1, of which the mean is 1."""
    turns, _, _ = made([of(2.0), of(2.0), of(0.5), of(0.5), of(2.0)], 2, 2)
    # a machine twice as fast as on the mean has taken half of what it takes on the mean
    assert turns.factors(0) == pytest.approx([2.0, 0.5])
    assert turns.factors(1) == pytest.approx([1.0, 1.0])
    first, second = turns.seen(0)["alone"]
    assert first == {"cpu": 2.0, "own": 2.0, "wall": 2.0, "count": 7, "turn": 0}
    assert second == {"cpu": 0.5, "own": 0.5, "wall": 0.5, "count": 7, "turn": 1}
    assert turns.speeds == (of(2.0), of(1.0), of(0.5), of(1.0))


@given(st.lists(st.floats(0.3, 3.0), min_size=13, max_size=13))
def test_all_turns_together_keep_their_level(values: list[float]) -> None:
    turns, _, _ = made([of(value) for value in values], 4, 3)
    whole = [factor for plan in range(4) for factor in turns.factors(plan)]
    assert prod(whole) == pytest.approx(1.0, rel=1e-2)  # speeds are kept with four digits


def test_a_reading_that_fails_changes_nothing_but_itself() -> None:
    turns, _, _ = made([of(2.0), None, of(0.5), None, None], 2, 2)
    # one end of a turn is better than none; where both are missing it stays as it was
    assert turns.speeds == (of(2.0), of(0.5), of(0.5))
    mean = (2.0 * 0.5 * 0.5) ** (1 / 3)
    assert turns.factors(0) == pytest.approx([2.0 / mean, 0.5 / mean])
    assert turns.factors(1) == pytest.approx([0.5 / mean, 1.0])
    nothing, _, _ = made([None, None, None], 1, 2)
    assert nothing.factors(0) == [1.0, 1.0]
    assert nothing.speeds == ()


def test_a_profile_keeps_few_speeds_evenly_over_the_turns() -> None:
    turns, _, _ = made([of(1.0 + k / 100) for k in range(61)], 20, 3)
    kept = [one.overall for one in turns.speeds]
    assert 12 <= len(kept) <= 24
    assert kept[0] == pytest.approx(1.005, abs=1e-3)
    assert kept[-1] > 1.5
    assert kept == sorted(kept)


def clock(monkeypatch: pytest.MonkeyPatch, speeds: Iterator[float]) -> list[float]:
    """The seconds slept so far, on a machine with these readings."""
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    monkeypatch.setattr(speed.time, "sleep", sleep)
    monkeypatch.setattr(speed, "measure_speed", lambda: of(next(speeds)))
    return slept


def test_nobody_waits_for_a_machine_that_is_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = clock(monkeypatch, iter([2.08]))
    assert speed.until_as_fast(2.0, 60.0, pytest.fail) == 0.0
    assert slept == [0.0]


@pytest.mark.parametrize("off", [0.8, 1.3])
def test_who_waits_goes_on_when_the_machine_is_back(
    off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = clock(monkeypatch, iter([2 * off, 2 * off, 2.02]))
    told: list[str] = []
    waited = speed.until_as_fast(2.0, 60.0, lambda: told.append("waiting"))
    assert waited == slept[0] == pytest.approx(6.0)
    assert told == ["waiting"]


def test_no_wait_is_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = clock(monkeypatch, iter([0.5] * 100))
    waited = speed.until_as_fast(2.0, 20.0, lambda: None)
    assert waited == slept[0] == pytest.approx(20.0)
    slept = clock(monkeypatch, iter([0.5] * 2))
    assert speed.until_as_fast(2.0, 1.0, lambda: None) == slept[0] == pytest.approx(1.0)


def test_a_speed_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> MachineSpeed:
        raise RunFailed("no process")

    monkeypatch.setattr(speed, "measure_speed", fail)
    with pytest.raises(RunFailed, match="no process"):
        speed.until_as_fast(1.0, 60.0, lambda: None)
