"""Free-running loops that share a server: a prediction carries both throughputs, in step or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.experiment import Table
from recsim_train.placement.plan import Plan
from recsim_train.sim.run import simulate
from recsim_train.trace.record import Outcome

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

SAID = re.compile(
    r"share (?P<busiest>.+) \(the busiest resource\).* a jitter of (?P<jitter>[\d.]+) % it is "
    r"(?P<here>[\d,]+) examples/s, with (?P<other_jitter>[\d.]+) % it is (?P<other>[\d,]+) "
    r"\((?P<steps>\d+) steps"
)


def shared(plans: Plans, kind: str = "flat_ps", trainers: int = 8, **changes: Any) -> Plan:
    """Lookups of many ids, from one server of each kind."""
    return plans(
        kind,
        roles={"trainers": trainers, "embedding_servers": 1, "dense_servers": 1},
        model={"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))},
        training={"steps": 150},
        simulation={"what_if_steps": 0, **changes},
    )


def said(outcome: Outcome) -> list[re.Match[str]]:
    return [match for text in outcome.facts.warnings if (match := SAID.search(text))]


def rate(outcome: Outcome) -> float:
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    return outcome.speed.examples_per_second


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("changes", "busiest"),
    [
        ({}, "cores of embedding_server[0]"),
        ({"nic": "200 Mbit/s"}, "NIC receive of embedding_server[0]"),
        ({"prices": {"request": "600 us"}}, "interpreter lock of dense_server[0]"),
    ],
    ids=["cores", "NIC", "lock"],
)
def test_both_throughputs_are_said(
    plans: Plans, clusters: Clusters, changes: dict[str, Any], busiest: str
) -> None:
    """Each prediction says what the other one comes to."""
    outcomes = {
        jitter: simulate(shared(plans), clusters(jitter=jitter, **changes)) for jitter in (0.0, 0.1)
    }
    for jitter, outcome in outcomes.items():
        (match,) = said(outcome)
        other = 0.1 - jitter
        assert outcome.facts.met_otherwise == pytest.approx(number(match["other"]), abs=0.5)
        assert match["busiest"] == busiest
        assert number(match["jitter"]) == pytest.approx(100 * jitter)
        assert number(match["other_jitter"]) == pytest.approx(100 * other)
        assert number(match["here"]) == pytest.approx(rate(outcome), abs=0.5)
        assert number(match["other"]) == pytest.approx(rate(outcomes[other]), rel=0.04)
        assert match["steps"] == "100"
    assert rate(outcomes[0.1]) > 1.05 * rate(outcomes[0.0])


def test_the_profiles_own_jitter_is_one_of_both(plans: Plans, clusters: Clusters) -> None:
    (match,) = said(simulate(shared(plans), clusters(jitter=0.03)))
    assert (match["jitter"], match["other_jitter"]) == ("3", "0")
    # which the experiment leaves out: then there is none
    left_out = shared(plans, stragglers=False)
    (match,) = said(simulate(left_out, clusters(jitter=0.03)))
    assert (match["jitter"], match["other_jitter"]) == ("0", "10")
    assert number(match["other"]) > 1.05 * number(match["here"])


def test_nobody_else_is_warned(plans: Plans, clusters: Clusters) -> None:
    """Who waits for all others each step, who is alone, whose servers are not the busiest."""
    slow = clusters(nic="200 Mbit/s")
    assert said(simulate(shared(plans), slow))
    for plan, cluster in (
        (shared(plans, "allreduce"), slow),
        (shared(plans, trainers=1), slow),
        (shared(plans), clusters(prices={"gemm_flop": "20 ns"})),
    ):
        assert not said(simulate(plan, cluster))


def test_threads_of_one_trainer_run_freely_too(plans: Plans, clusters: Clusters) -> None:
    plan = plans(
        roles={"trainers": 1, "embedding_servers": 1},
        model={"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))},
        training={"threads": 4, "steps": 50},
        simulation={"what_if_steps": 0},
        data={"path": "file.tsv"},
    )
    server = Host.model_validate({"cores": 1, "memory": "64 GiB", "nic": "100 Mbit/s"})
    (match,) = said(simulate(plan, clusters(hosts={"embedding_server": server})))
    assert "embedding_server[0]" in match["busiest"]
