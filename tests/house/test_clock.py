"""What is tried anew, and what is not: `tests.clock`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clock import OfTheClockError, by_the_clock, tried_anew, until


def test_what_a_clock_showed_once_is_enough(tmp_path: Path) -> None:
    folders: list[Path] = []

    @tried_anew(times=3)
    def measured(tmp_path: Path) -> None:
        folders.append(tmp_path)
        assert not list(tmp_path.iterdir())
        (tmp_path / "left").touch()
        with by_the_clock():
            assert len(folders) == 2

    measured(tmp_path=tmp_path)
    assert [folder.name for folder in folders] == ["try 1", "try 2"]


def test_a_fault_that_stays_fails_and_tells_what_each_try_saw() -> None:
    seen = iter([0.5, 0.7, 0.6, 0.1])

    @tried_anew(times=3)
    def measured() -> None:
        share = next(seen)
        with by_the_clock():
            assert share < 0.2, f"a share of {share}"

    with pytest.raises(AssertionError, match="none of 3 tries passed") as failure:
        measured()
    for number, share in enumerate((0.5, 0.7, 0.6), 1):
        assert f"try {number}: a share of {share}" in str(failure.value)
    assert next(seen) == 0.1


@pytest.mark.parametrize("error", [AssertionError("3 bytes"), ValueError("3 bytes")])
def test_what_no_clock_judges_is_tried_once(error: Exception) -> None:
    tries: list[int] = []

    @tried_anew(times=3)
    def counted() -> None:
        tries.append(1)
        raise error

    with pytest.raises(type(error), match="3 bytes"):
        counted()
    assert len(tries) == 1


def test_an_error_is_none_of_the_clock() -> None:
    with pytest.raises(ValueError, match="fault"), by_the_clock():
        raise ValueError("fault")
    with pytest.raises(OfTheClockError, match="late"), by_the_clock():
        raise AssertionError("late")


def test_what_does_not_come_is_given_up() -> None:
    looks = iter([False, False, True])
    until(lambda: next(looks))
    with pytest.raises(AssertionError, match=r"not come within 0\.05 s"):
        until(lambda: False, 0.05)
