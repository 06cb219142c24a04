"""benchmarks/paired.py: ratios within rounds, the sign test's interval, verdicts."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from tests.modules import loaded

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "paired.py"


@pytest.fixture(scope="module")
def paired() -> ModuleType:
    return loaded(SCRIPT)


def test_only_what_one_round_measured_is_divided(paired: ModuleType) -> None:
    of = {1: 30.0, 2: 10.0, 3: None, 5: 7.0}
    over = {1: 20.0, 2: 5.0, 3: 4.0, 4: 1.0, 5: None}
    assert paired.ratios(of, over) == {1: 1.5, 2: 2.0}


def test_drift_that_both_sides_share_leaves_no_trace(paired: ModuleType) -> None:
    speed = {number: 1.0 + 0.3 * math.sin(number) for number in range(12)}
    of = {number: 120.0 * each for number, each in speed.items()}
    over = {number: 100.0 * each for number, each in speed.items()}
    middle = paired.median_of(list(paired.ratios(of, over).values()))
    assert (middle.value, middle.low, middle.high) == pytest.approx((1.2, 1.2, 1.2))


@pytest.mark.parametrize(
    ("count", "place", "coverage"),
    # tables of the sign test: which value from either end, and the confidence it really has
    [(6, 1, 0.96875), (8, 1, 0.9921875), (9, 2, 0.9609375), (12, 3, 0.9614258), (20, 6, 0.9586105)],
)
def test_the_interval_is_the_sign_tests(
    paired: ModuleType, count: int, place: int, coverage: float
) -> None:
    values = [float(number) for number in range(1, count + 1)]
    random.Random(1).shuffle(values)
    middle = paired.median_of(values)
    assert middle.value == statistics.median(values)
    assert (middle.low, middle.high) == (place, count + 1 - place)
    assert middle.coverage == pytest.approx(coverage, abs=1e-6)
    assert middle.sure


def test_five_rounds_are_too_few(paired: ModuleType) -> None:
    middle = paired.median_of([1.0, 5.0, 2.0, 4.0, 3.0])
    assert (middle.low, middle.high, middle.coverage) == (1.0, 5.0, 0.9375)
    assert not middle.sure
    assert paired.verdict(middle, 1.0) == "too few rounds (5)"
    assert paired.median_of([]) is None


def test_the_interval_holds_the_true_median_as_often_as_it_says(paired: ModuleType) -> None:
    dice = random.Random(7)
    intervals = [
        paired.median_of([dice.lognormvariate(0.0, 0.2) for _ in range(12)]) for _ in range(2000)
    ]
    share = statistics.mean(each.low <= 1.0 <= each.high for each in intervals)
    assert share == pytest.approx(intervals[0].coverage, abs=0.015)


@pytest.mark.parametrize(
    ("lowest", "middle", "said"),
    [
        (1.0, 1.1, "met"),
        (0.96, 1.0, "met"),
        (0.94, 1.0, "**missed**"),  # the interval reaches too far below
        (0.96, 0.99, "**missed**"),  # the median does not reach the bar
    ],
)
def test_a_bar_needs_the_median_and_the_lower_end(
    paired: ModuleType, lowest: float, middle: float, said: str
) -> None:
    values = [lowest, middle, middle, middle, middle, 2.0]
    assert paired.verdict(paired.median_of(values), 1.0) == said


def test_without_a_bar_there_is_no_verdict(paired: ModuleType) -> None:
    assert paired.verdict(paired.median_of([1.0] * 6), None) == ""
    assert paired.verdict(None, 1.0) == "not measured"
