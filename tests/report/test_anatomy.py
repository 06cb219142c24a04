"""Figures and sentences on why a prediction is what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recsim_train.report.anatomy import bounds, largest, pictures, reliability, sentences
from recsim_train.results.summary import Summary
from recsim_train.trace.facts import (
    Busiest,
    CriticalPath,
    Facts,
    OverTime,
    Reliability,
    ServersNeeded,
)


@pytest.fixture
def summary(factory: Any) -> Summary:
    facts = Facts(
        class_bounds={"loops": 4000.0, "dense server: NIC receive": 1000.0},
        servers_needed={
            "dense_server": ServersNeeded(present=2, needed=8, allow=1000.0, others_allow=4000.0),
            "embedding_server": ServersNeeded(4, needed=1, allow=9000.0, others_allow=1000.0),
        },
        critical_path=CriticalPath(
            seconds=0.01,
            effects={
                "compute": {"compute": 0.006, "queueing": 0.001, "transfer": 0.0, "waiting": 0.0},
                "pull": {"compute": 0.0, "queueing": 0.001, "transfer": 0.002, "waiting": 0.0},
            },
            hidden={"exchange": 0.004},
        ),
        over_time=OverTime(
            start=0.0,
            seconds=(1.0, 2.0, 3.0),
            busy={"trainer: cores": (0.1, 0.2, 0.2)},
            busiest={"trainer: cores": Busiest("trainer[1].cores", (0.1, 0.3, 0.2))},
        ),
    )
    found: Summary = factory.summary(examples_per_second=800.0, facts=facts)
    return found


def test_a_prediction_has_three_pictures(summary: Summary) -> None:
    drawn = pictures(summary, "1", "flat PS")
    assert [p.name for p in drawn if p is not None] == [
        "critical-path-1",
        "bounds-1",
        "over-time-1",
    ]
    assert drawn == pictures(summary, "1", "flat PS")  # the same bytes every time


def test_what_is_not_known_is_not_drawn(factory: Any) -> None:
    nothing = factory.summary(examples_per_second=800.0)
    assert pictures(nothing, "1", "x") == [None, None, None]
    assert sentences(nothing) == []


def test_bounds_come_in_order_and_in_words(summary: Summary) -> None:
    assert bounds(summary) == [
        ("dense server: network card, receiving", 1000.0),
        ("loops on their own", 4000.0),
    ]
    assert sentences(summary) == [
        "Of an iteration's 10.0 ms, compute takes 70.0 %; pull takes 30.0 %, mostly bytes on "
        "their way",
        "The tightest bound is 1.00k examples/s (dense server: network card, receiving); "
        "the prediction reaches 80.0 % of it",
        "Servers would bind no longer with 8 dense servers instead of 2",
        "If the load divides evenly, 1 embedding server instead of 4 would not bind either, "
        "memory aside",
    ]


def test_small_effects_and_runs_without_a_path_are_not_named(factory: Any) -> None:
    assert largest(factory.summary()) == []
    parts = {"compute": 0.0, "queueing": 0.0, "transfer": 0.0005, "waiting": 0.0004}
    path = CriticalPath(effects={"pull": parts}, hidden={}, seconds=0.01)
    assert largest(factory.summary(facts=Facts(critical_path=path))) == []


def test_what_failures_cost(summary: Summary, factory: Any) -> None:
    assert reliability(summary) == []
    found = Reliability(
        policy="restart", failures=1, first_failures=(), checkpoints=2,
        standstill_seconds=0.3, lost_examples=1200.0, goodput=700.0,
    )  # fmt: skip
    (said,) = reliability(factory.summary(facts=Facts(reliability=found)))
    assert said.startswith(
        "1 failure and 2 checkpoints: all stood still for 300 ms, 1,200 examples"
    )
    assert said.endswith("700 examples/s (goodput)")
    priced = replace(found, checkpoint_seconds=3.1, between_failures=36000.0, best_interval=472.0)
    _, best = reliability(factory.summary(facts=Facts(reliability=priced)))
    assert best == (
        "To first order (Young 1974, Daly 2006) checkpoints and lost work cost least with one "
        "every 7.87 min: it takes 3.10 s of training, and one of all hosts fails every 10.0 h"
    )
