"""Turns on a machine that is slow now and then: who has another one, and which of them count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from recsim_train.calibration import speed
from recsim_train.calibration.own.turns import Turns
from recsim_train.config.errors import RunFailed
from recsim_train.config.speed import MachineSpeed


def of(value: float) -> MachineSpeed:
    return MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)


class Machine:
    """Whose readings these are, the last one from then on."""

    def __init__(self, *speeds: float) -> None:
        self._speeds = iter(speeds)
        self._now = 0.0

    def read(self) -> MachineSpeed:
        self._now = next(self._speeds, self._now)
        return of(self._now)


def made(machine: Machine, plans: int, rounds: int) -> tuple[Turns, list[int], list[str]]:
    """The turns, whose they were, and what was told of progress."""
    whose: list[int] = []
    told: list[str] = []
    turns = Turns(machine.read)
    turns.make(plans, rounds, whose.append, lambda done, all_: told.append(f"{done}/{all_}"))
    return turns, whose, told


def test_on_a_steady_machine_each_has_its_turns_and_all_of_them_count() -> None:
    # 4 % between two turns is no spell
    turns, whose, told = made(Machine(1.0, 1.04, 1.0, 1.02, 1.04, 1.0, 1.0), 2, 3)
    assert whose == [0, 1, 0, 1, 0, 1]
    assert told == ["1/6", "2/6", "3/6", "4/6", "5/6", "6/6"]
    assert turns.counting(0, 3) == turns.counting(1, 3) == [0, 1, 2]


def test_who_had_its_turn_in_a_slow_spell_has_another_which_counts_instead() -> None:
    """The spell covers the second turn of the second plan, and half of those beside it."""
    turns, whose, _ = made(Machine(1.0, 1.0, 1.0, 1.0, 0.8, 0.8, 1.0, 1.0), 2, 3)
    assert whose[:6] == [0, 1, 0, 1, 0, 1]
    # the worst first: between 0.8 and 0.8, then those with one end in the spell, plan 1's and so on
    assert Counter(whose[6:]) == {0: 1, 1: 2}
    assert turns.counting(0, 3) == [0, 1, 3]
    assert turns.counting(1, 3) == [0, 3, 4]


def test_a_fast_spell_is_none_of_the_machine_either() -> None:
    turns, whose, told = made(Machine(1.0, 1.0, 1.0, 1.3, 1.3, 1.0, 1.0, 1.0, 1.0), 1, 6)
    assert len(whose) == 9
    assert told[5:] == ["6/6", "7/9", "8/9", "9/9"]
    assert turns.counting(0, 6) == [0, 1, 5, 6, 7, 8]


def test_a_machine_that_never_comes_to_rest_is_measured_as_it_is() -> None:
    speeds = [1.0, 2.0] * 20
    turns, whose, _ = made(Machine(*speeds), 2, 3)
    assert turns.counting(0, 3) == [0, 1, 2]
    restless = [2.0 ** (k % 5) for k in range(40)]
    turns, whose, _ = made(Machine(*restless), 4, 3)
    assert len(whose) <= 18  # half as many again
    for plan in range(4):
        assert len(turns.counting(plan, 3)) == 3


def test_what_is_kept_of_the_readings_is_how_the_machine_was() -> None:
    speeds = [1.0 + k / 100 for k in range(100)]
    kept = made(Machine(*speeds), 20, 3)[0].readings()
    assert 8 <= len(kept) <= 24
    assert kept[0] == of(1.0)
    assert list(kept) == sorted(kept, key=lambda one: one.overall)
    few = made(Machine(1.0, 0.5, 1.0), 1, 2)[0].readings()
    assert few == (of(1.0), of(0.5), of(1.0), of(1.0))  # the spell is not left out


def clock(monkeypatch: pytest.MonkeyPatch, speeds: Iterator[float]) -> list[float]:
    """The seconds slept so far, on a machine with these readings."""
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    monkeypatch.setattr(speed.time, "sleep", sleep)
    monkeypatch.setattr(speed.time, "monotonic", lambda: slept[0])
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
    assert 15.0 <= waited == slept[0] < 20.0
    slept = clock(monkeypatch, iter([0.5]))
    assert speed.until_as_fast(2.0, 1.0, pytest.fail) == 0.0
    assert slept == [0.0]


def test_a_speed_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> MachineSpeed:
        raise RunFailed("no process")

    monkeypatch.setattr(speed, "measure_speed", fail)
    with pytest.raises(RunFailed, match="no process"):
        speed.until_as_fast(1.0, 60.0, lambda: None)
