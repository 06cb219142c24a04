"""benchmarks/close_clusters.py: what is close, and what is said of the picks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.modules import loaded

close: Any = loaded(Path(__file__).parents[2] / "benchmarks" / "close_clusters.py")


def points(*kinds: str) -> list[dict[str, Any]]:
    return [{"strategy": {"kind": kind}, "number": n} for n, kind in enumerate(kinds)]


def test_three_kinds_within_a_quarter_are_close() -> None:
    kinds = points("flat_ps", "flat_ps", "des", "allreduce", "localsgd")
    found = close.close(kinds, [100.0, 99.0, 80.0, 76.0, 74.0])
    assert [point["number"] for point in found] == [0, 2, 3, 1]  # one of each kind first
    assert close.close(kinds, [100.0, 99.0, 80.0, 74.0, 74.0]) == []
    assert close.close(kinds, [0.0, 0.0, 80.0, 74.0, 74.0])


def test_a_pick_is_held_to_the_best_measured() -> None:
    rows = [
        {"model": "close-0", "label": "des, close-0, 2 x 1", "predicted": 9.0, "measured": 90.0},
        {"model": "close-0", "label": "flat_ps, close-0, 2", "predicted": 8.0, "measured": 100.0},
        {"model": "close-0", "label": "localsgd, close-0", "predicted": 7.0, "measured": 70.0},
        {"model": "close-1", "label": "des, close-1, 2", "predicted": 9.0, "measured": 5.0},
        {"model": "close-1", "label": "flat_ps, close-1", "predicted": 8.0, "measured": None},
    ]
    assert list(close.judged({"rows": rows})) == [
        ["close-0", "3", "2", "des", "flat_ps", "10.0%"],
        ["close-1", "1", "1", "des", "des", "0.0%"],
    ]


def test_all_strategies_of_a_setting_have_the_same_cluster_and_net() -> None:
    from random import Random

    for number in range(len(close.TURNS)):
        made = close.candidates(Random(number), number)
        assert len({str(point["cluster"]) for point in made}) == 1
        assert {point["model"]["name"] for point in made} == {f"close-{number}"}
        for point in made:
            period = close.drawn.period_of(point["strategy"])
            assert point["training"]["steps"] % period == 0
