"""A whole training: how long it takes, and what its hosts cost."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.report import text
from recsim_train.report.cost import whole_of, whole_said, whole_training
from recsim_train.trace.facts import Facts, Rented


def test_time_and_cost(factory: Any) -> None:
    # an interval of calibration alone, which is 1.645 / 1.96 of its 95 % one
    facts = Facts(
        calibration_ci95=(1000.0 - 196.0, 1000.0 + 392.0), rented=Rented(4, 7.2, "EUR", ("x, y",))
    )
    summary = factory.summary(examples_per_second=1000.0, ci95=None, facts=facts)
    found = whole_training(summary, 3.6e6)
    assert found is not None
    assert found.seconds == 3600.0
    ends = (3.6e6 / (1000.0 + 329.0), 3.6e6 / (1000.0 - 164.5))
    assert found.seconds90 == pytest.approx(ends)
    assert (found.cost, found.currency) == (pytest.approx(7.2), "EUR")
    assert found.cost90 == pytest.approx(tuple(7.2 * end / 3600.0 for end in ends))
    assert whole_said(summary, 3.6e6) == (
        "Training on 3.60M examples takes 60.0 min (45.1 min to 71.8 min); "
        "it costs 7.20 EUR (5.42 EUR to 8.62 EUR)"
    )


def test_what_is_not_known_is_not_said(factory: Any) -> None:
    assert whole_training(factory.summary(examples_per_second=None), 5.0) is None
    assert whole_said(factory.summary(examples_per_second=None), 5.0) == ""
    summary = factory.summary(examples_per_second=10.0, ci95=None)
    found = whole_training(summary, 5.0)
    assert found is not None
    assert (found.seconds, found.seconds90, found.cost, found.cost90) == (0.5, None, None, None)
    assert "what it costs is not known, because not every host has a price" in whole_said(
        summary, 5.0
    )


def test_an_interval_that_begins_at_nothing_has_no_longest_time() -> None:
    found = whole_of(5.0, 10.0, (0.0, 20.0), Rented(1, 36.0, "EUR", ()))
    assert (found.seconds, found.seconds90, found.cost90) == (0.5, None, None)
    assert found.cost == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5, "500 ms"), (119.0, "119 s"), (121.0, "2.02 min"), (7199.0, "120 min"),
        (14_500.0, "4.03 h"), (86_400.0, "24.0 h"), (864_000.0, "10.0 days"),
    ],
)  # fmt: skip
def test_long_times(seconds: float, said: str) -> None:
    assert text.duration(seconds) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [(0.001, "0.001 X"), (0.5, "0.500 X"), (13.94, "13.9 X"), (1_234.5, "1,230 X")],
)
def test_money(amount: float, said: str) -> None:
    assert text.money(amount, "X") == said
