"""Figures and sentences on why a prediction is what it is."""

from __future__ import annotations

from typing import Any

from recsim_train.report.anatomy import bounds, largest, pictures, reliability, sentences

SUMMARY: dict[str, Any] = {
    "examples_per_second": 800.0,
    "facts": {
        "class_bounds": {"loops": 4000.0, "dense server: NIC receive": 1000.0},
        "servers_needed": {
            "dense_server": {"present": 2, "needed": 8},
            "embedding_server": {"present": 4, "needed": 1},
        },
        "critical_path": {
            "seconds": 0.01,
            "effects": {
                "compute": {"compute": 0.006, "queueing": 0.001, "transfer": 0.0, "waiting": 0.0},
                "pull": {"compute": 0.0, "queueing": 0.001, "transfer": 0.002, "waiting": 0.0},
            },
            "hidden": {"exchange": 0.004},
        },
        "over_time": {
            "start": 0.0,
            "seconds": [1.0, 2.0, 3.0],
            "busy": {"trainer: cores": [0.1, 0.2, 0.2]},
            "busiest": {
                "trainer: cores": {"resource": "trainer[1].cores", "busy": [0.1, 0.3, 0.2]}
            },
        },
    },
}


def test_a_prediction_has_three_pictures() -> None:
    drawn = pictures(SUMMARY, "1", "flat PS")
    assert [p.name for p in drawn if p is not None] == [
        "critical-path-1",
        "bounds-1",
        "over-time-1",
    ]
    assert drawn == pictures(SUMMARY, "1", "flat PS")  # the same bytes every time


def test_what_is_not_known_is_not_drawn() -> None:
    assert pictures({"examples_per_second": 800.0}, "1", "x") == [None, None, None]
    assert sentences({"examples_per_second": 800.0}) == []


def test_bounds_come_in_order_and_in_words() -> None:
    assert bounds(SUMMARY) == [
        ("dense server: NIC receive", 1000.0),
        ("training loops that share nothing", 4000.0),
    ]
    assert sentences(SUMMARY) == [
        "Of an iteration's 10.0 ms, compute takes 70.0 %; pull takes 30.0 %, mostly transfer",
        "The tightest bound is 1.00k examples/s (dense server: NIC receive); "
        "the prediction reaches 80.0 % of it",
        "Servers would bind no longer with 8 dense servers instead of 2",
        "If the load divides evenly, 1 embedding server instead of 4 would not bind either, "
        "memory aside",
    ]


def test_small_effects_and_runs_without_a_path_are_not_named() -> None:
    assert largest({}) == []
    parts = {"compute": 0.0, "queueing": 0.0, "transfer": 0.0005, "waiting": 0.0004}
    assert (
        largest({"facts": {"critical_path": {"seconds": 0.01, "effects": {"pull": parts}}}}) == []
    )


def test_what_failures_cost() -> None:
    assert reliability(SUMMARY) == []
    found = {"failures": 1, "checkpoints": 2, "standstill_seconds": 0.3, "lost_examples": 1200}
    (said,) = reliability({"facts": {"reliability": {**found, "goodput": 700.0}}})
    assert said.startswith(
        "1 failure and 2 checkpoints: all stood still for 300 ms, 1,200 examples"
    )
    assert said.endswith("700 examples/s (goodput)")
