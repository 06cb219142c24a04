"""Free-running loops that share a server: a prediction carries both throughputs, in step or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import pytest

from recsim_train.config.cluster import Calibration, Cluster, Host
from recsim_train.config.experiment import Table
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import Z95
from recsim_train.sim.folding import Folding
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.trace.record import Outcome
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

SAID = re.compile(
    r"share (?P<busiest>.+) \(the busiest resource\).* With (?P<this>.+) it is "
    r"(?P<here>[\d,]+) examples/s, with (?P<that>.+) it is (?P<other>[\d,]+) "
    r"\((?P<steps>\d+) steps"
)


def shared(
    plans: Plans, kind: str = "flat_ps", trainers: int = 8, batch: int = 64, **changes: Any
) -> Plan:
    """Lookups of many ids, from one server of each kind."""
    return plans(
        kind,
        roles={"trainers": trainers, "embedding_servers": 1, "dense_servers": 1},
        model={"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))},
        training={"steps": 150, "batch_size": batch},
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
        ({"cores": 2}, "cores of embedding_server[0]"),
        ({"nic": "200 Mbit/s"}, "NIC receive of embedding_server[0]"),
        ({"prices": {"request": "600 us"}}, "interpreter lock of dense_server[0]"),
    ],
    ids=["cores", "NIC", "lock"],
)
def test_both_queues_are_said(
    plans: Plans, clusters: Clusters, changes: dict[str, Any], busiest: str
) -> None:
    """Each prediction says what the other one comes to."""
    outcomes = {
        queue: simulate(shared(plans), clusters(network={"queue": queue}, jitter=0.0, **changes))
        for queue in ("fifo", "fair")
    }
    for queue, outcome in outcomes.items():
        (match,) = said(outcome)
        other = {"fifo": "fair", "fair": "fifo"}[queue]
        assert outcome.facts.met_otherwise == pytest.approx(number(match["other"]), abs=0.5)
        assert match["busiest"] == busiest
        assert (match["this"], match["that"]) == (
            f"network.queue: {queue}",
            f"network.queue: {other}",
        )
        assert number(match["here"]) == pytest.approx(rate(outcome), abs=0.5)
        assert number(match["other"]) == pytest.approx(rate(outcomes[other]), rel=0.04)
        assert match["steps"] == "100"


def test_the_interval_holds_both_where_the_profile_does_not_say(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_links = {"fifo": 0.0, "fair": 0.0}  # so that it is the queue alone
    monkeypatch.setattr("recsim_train.evaluate.elasticity.UNSURE", no_links)
    known = Calibration(date="2026-11-01", machine="", own_error="0.1 %")
    found = {}
    for said_queue in (None, "fifo"):
        network = {} if said_queue is None else {"queue": said_queue}
        cluster = clusters(network=network, nic="200 Mbit/s", jitter=0.0, calibration=known)
        # of large messages a burst is a small part
        plan = shared(plans, trainers=2, batch=2048, what_if_steps=10)
        found[said_queue] = simulate(plan, cluster)
    (match,) = said(found[None])
    here, other = number(match["here"]), number(match["other"])
    assert abs(other / here - 1.0) > 0.05
    low, high = found[None].facts.calibration_ci95
    assert low <= min(here, other) * 1.001
    assert high >= max(here, other) * 0.999
    assert found[None].facts.calibration_errors["queue"] > 0.02
    error = found[None].facts.calibration_errors["queue"]
    assert Z95 * error == pytest.approx(abs(log(other / here)), rel=0.02)  # of rounded figures
    assert "queue" not in found["fifo"].facts.calibration_errors
    low, high = found["fifo"].facts.calibration_ci95
    assert not low < other < high


def test_the_interval_holds_what_passes_at_once_where_the_profile_does_not_say(
    plans: Plans, clusters: Clusters
) -> None:
    known = Calibration(date="2026-11-01", machine="", own_error="0.1 %")
    found = {}
    for at_once in (None, "0 B", "2896 B"):
        network = {"queue": "fifo", "passes_at_once": at_once}
        cluster = clusters(network=network, nic="200 Mbit/s", jitter=0.0, calibration=known)
        found[at_once] = simulate(shared(plans, trainers=1, what_if_steps=10), cluster)
    rates = {at_once: rate(outcome) for at_once, outcome in found.items()}
    assert rates[None] == rates["0 B"]
    error = found[None].facts.calibration_errors.pop("at_once")
    apart = abs(log(rates["2896 B"] / rates["0 B"]))
    assert apart > 0.01
    assert Z95 * error == pytest.approx(apart, rel=0.1)  # which fewer steps say
    for outcome in found.values():
        assert "at_once" not in outcome.facts.calibration_errors


def test_on_one_machine_jitter_parts_them(plans: Plans, clusters: Clusters) -> None:
    one = clusters(jitter=0.03, colocate=True, cores=16, prices={"request": "600 us"})
    (match,) = said(simulate(shared(plans), one))
    assert (match["this"], match["that"]) == ("a jitter of 3 %", "0 %")
    # which the experiment leaves out: then there is none
    (match,) = said(simulate(shared(plans, stragglers=False), one))
    assert (match["this"], match["that"]) == ("a jitter of 0 %", "10 %")
    with_jitter = simulate(shared(plans), one.model_copy(update={"jitter": 0.1}))
    assert number(match["other"]) != number(match["here"])
    assert number(match["other"]) == pytest.approx(rate(with_jitter), rel=0.03)


def test_of_folded_trainers_half_as_many_show_it(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Watched(SimulatedRun):
        def __init__(self, plan: Plan, cluster: Cluster, folding: Folding, *more: Any) -> None:
            seen.append(folding.simulated)
            super().__init__(plan, cluster, folding, *more)

    cluster = clusters(network={"queue": "fifo"}, nic="200 Mbit/s", jitter=0.1)
    other = clusters(network={"queue": "fair"}, nic="200 Mbit/s", jitter=0.1)
    monkeypatch.setattr("recsim_train.evaluate.simulations.SimulatedRun", Watched)
    outcome = simulate(shared(plans, trainers=24, fold_above=8), cluster)
    assert seen == [8, 4, 4]  # of those the last one waits otherwise
    expected = rate(outcome) * (
        rate(simulate(shared(plans, trainers=24, fold_above=4), other))
        / rate(simulate(shared(plans, trainers=24, fold_above=4), cluster))
    )
    assert outcome.facts.met_otherwise == pytest.approx(expected, rel=0.02)


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


@pytest.mark.parametrize(
    ("hosts", "options", "warned"),
    [
        (1, {}, True),
        (2, {}, True),
        (8, {}, False),  # one group
        (1, {"sync": "foreground"}, True),  # each meets a copy on servers
        (1, {"sync": "foreground", "outer": "ma"}, False),  # all meet every few steps
    ],
)
def test_groups_of_hosts_go_at_their_own_pace(
    hosts: int, options: dict[str, Any], warned: bool, plans: Plans, clusters: Clusters
) -> None:
    choice = {"hosts": hosts, "outer": "easgd" if hosts < 8 else "none", **options}
    plan = plans(
        "hierarchical",
        choice,
        roles={
            "trainers": 8,
            "embedding_servers": 1,
            "dense_servers": int(choice["outer"] == "easgd"),
        },
        model={"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))},
        training={"steps": 40, "batch_size": 64},
        simulation={"what_if_steps": 0},
    )
    assert plan.apart == (8 // hosts if warned else 1)
    assert bool(said(simulate(plan, clusters(nic="200 Mbit/s")))) == warned


def test_trainers_whose_gradients_make_one_step_wait_for_each_other(plans: Plans) -> None:
    plan = plans("hierarchical", {"hosts": 4, "outer": "easgd"},
                 roles={"trainers": 8, "embedding_servers": 1, "dense_servers": 1})  # fmt: skip
    assert plan.apart == 2
    topology = replace(plan.topology, groups=())
    assert replace(plan, topology=topology).apart == 2


def test_threads_of_one_trainer_run_freely_too(plans: Plans, clusters: Clusters) -> None:
    plan = plans(
        roles={"trainers": 1, "embedding_servers": 1},
        model={"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))},
        training={"threads": 4, "steps": 50},
        simulation={"what_if_steps": 0},
        data={"path": ("file.tsv",), "generate": True},
    )
    server = Host.model_validate({"cores": 1, "memory": "64 GiB", "nic": "100 Mbit/s"})
    (match,) = said(simulate(plan, clusters(hosts={"embedding_server": server})))
    assert "embedding_server[0]" in match["busiest"]
