"""benchmarks/quick.py: who is calibrated when, and what all of them come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.modules import loaded

quick: Any = loaded(Path(__file__).parents[2] / "benchmarks" / "quick.py")


def run(name: str, eps: float, low: float, high: float, seconds: float) -> dict[str, Any]:
    return {
        "name": name, "examples_per_second": eps, "interval": [low, high], "seconds": seconds,
    }  # fmt: skip


def test_full_calibrations_lie_among_the_quick_ones() -> None:
    names = quick.order(20, 5)
    assert len(set(names)) == 25
    places = [place for place, name in enumerate(names) if name.startswith("full")]
    gaps = {after - before for before, after in zip(places, places[1:], strict=False)}
    assert gaps == {5}


def test_an_interval_holds_the_median_of_the_full_ones() -> None:
    runs = [
        run("full-00", 90.0, 0.0, 1.0, 300.0), run("full-01", 100.0, 0.0, 1.0, 300.0),
        run("full-02", 500.0, 0.0, 1.0, 300.0),
        run("quick-00", 80.0, 70.0, 100.0, 50.0), run("quick-01", 120.0, 101.0, 140.0, 40.0),
    ]  # fmt: skip
    found = quick.summary(runs)
    assert (found["median_of_full"], found["held"], found["of"]) == (100.0, 1, 2)
    assert found["share_of_time"] == pytest.approx(0.15)
    assert found["off"] == pytest.approx([-0.2, 0.2])
