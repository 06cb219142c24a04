"""What would lift a design above a target."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from recsim_train.designs.answer import Change, Changes
from recsim_train.designs.changes import changes
from recsim_train.designs.searching import Design
from recsim_train.evaluate.asymptotic import asymptotic_bounds
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Simulator
from recsim_train.placement.hosts import hosts_of
from recsim_train.results.row import Row
from tests.recommend.conftest import Spaces

DIVIDED = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "hosts": [4],
}  # fmt: skip


RACKS = "cluster.topology={racks: 2, hosts_per_rack: [3, 1], uplink: 100 Gbit/s}"
"""Of which no bound tells anything."""


def kinds(change: Change) -> int:
    """Of how many kinds it is."""
    marks = ("bfloat16", "network cards", "threads", "hosts instead of")
    return sum(mark in change.says for mark in marks)


@pytest.mark.parametrize("nic", ["2 Mbit/s", "2 Gbit/s"])
def test_each_change_is_enough_and_single_ones_go_before_pairs(spaces: Spaces, nic: str) -> None:
    (candidate,) = spaces(
        "strategy=flat_ps",
        f"cluster.hosts.default.nic={nic}",
        "training.batch_size=65_536",
        strategies="false",
        **DIVIDED,
    ).candidates
    design = Design(0, candidate)
    bound = asymptotic_bounds(candidate.job.case).bound
    assert bound is not None
    for times in (1.1, 3.0, 10.0):
        would = changes(design, times * bound)
        found = would.enough
        assert would.all_tried
        assert all(change.bound >= times * bound for change in found)
        assert len(set(map(kinds, found))) <= 1
        if times < 8.0:  # so much of everything is tried
            assert found
            assert kinds(found[0]) == 1
        elif "Mbit" in nic:  # more hosts whose cards are faster, too
            assert found
            assert kinds(found[0]) == 2
    assert replace(changes(design, 1e4 * bound), more_hosts="") == Changes()


def test_what_does_not_bind_lifts_nothing(spaces: Spaces) -> None:
    """On slow links another division of the cores changes no bound; a faster card does."""
    (candidate,) = spaces(
        "strategy=flat_ps", "cluster.hosts.default.nic=2 Mbit/s", strategies="false", **DIVIDED
    ).candidates
    bound = asymptotic_bounds(candidate.job.case).bound
    assert bound is not None
    said = [change.says for change in changes(Design(0, candidate), 1.2 * bound).enough]
    assert "1.25 times as fast network cards and uplinks" in said
    assert "5 hosts instead of 4, divided alike" not in said  # servers of 1.25 hosts are one
    assert not any("per_host" in one for one in said)


@pytest.mark.parametrize("sets", [[], ["cluster.most_hosts=4"], [RACKS]], ids=["", "all", "racks"])
def test_more_hosts_are_divided_alike_with_as_many_processes_on_each(
    spaces: Spaces, sets: list[str]
) -> None:
    """Also where there are no more: these would have to be bought."""
    shared = {**DIVIDED, "trainers_per_host": [2]}
    sets = [*sets, "training.batch_size=1000"]
    (candidate,) = spaces("strategy=flat_ps", *sets, strategies="false", **shared).candidates
    bound = asymptotic_bounds(candidate.job.case).bound
    assert bound is not None
    found = changes(Design(0, candidate), 1.6 * bound, seconds=600.0).enough
    said = {change.says: change.bound for change in found}
    (more,) = (says for says in said if "hosts instead of 4, divided alike" in says)
    times = int(more.split()[0]) // 4
    assert times == 3  # the least that is enough, wherever they stand
    larger = shared | {name: [times] for name in ("embedding_hosts", "dense_hosts")}
    (as_many,) = spaces(
        "strategy=flat_ps",
        "training.batch_size=1000",
        strategies="false",
        **{**larger, "hosts": [4 * times]},
    ).candidates
    wanted = asymptotic_bounds(as_many.job.case).bound
    assert said[more] == pytest.approx(wanted, rel=1e-9)


def test_changes_leave_the_examples_of_a_step(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def seen(self: Simulator, case: Case, *rest: Any) -> Row:
        asked.append(case.plan)
        return bounds(self, case, *rest)

    bounds = Simulator._bounds
    monkeypatch.setattr(Simulator, "_bounds", seen)
    sets = ("strategy=flat_ps", "training.batch_size=1000", "roles.trainers=2")
    (candidate,) = spaces(*sets, strategies="false", **DIVIDED).candidates
    changes(Design(0, candidate), 1e9)
    trainers = {plan.experiment.roles.trainers for plan in asked}
    assert max(trainers) >= 16
    for plan in asked:
        training = plan.experiment.training
        whole = plan.experiment.roles.trainers * training.threads * training.batch_size
        assert abs(whole - 4000) <= 0.02 * 4000


def test_more_hosts_have_as_many_processes_each(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def seen(self: Simulator, case: Case, *rest: Any) -> Row:
        asked.append((case.experiment.roles, len(hosts_of(case.plan.instances, case.cluster))))
        return bounds(self, case, *rest)

    bounds = Simulator._bounds
    monkeypatch.setattr(Simulator, "_bounds", seen)
    few = {**DIVIDED, "trainers_per_host": [2], "servers_per_host": [2]}
    sets = ("strategy=flat_ps", "training.batch_size=1000")
    (candidate,) = spaces(*sets, strategies="false", **few).candidates
    changes(Design(0, candidate), 1e9)
    twice = [roles for roles, hosts in asked if hosts == 8]
    assert twice
    for roles in twice:  # of 2 x 2 trainers, 1 x 2 embedding servers and 1 dense server
        assert (roles.trainers, roles.embedding_servers, roles.dense_servers) == (8, 4, 2)


def test_what_there_is_no_time_for_is_said(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    (candidate,) = spaces("strategy=flat_ps", strategies="false", **DIVIDED).candidates
    asked = 0

    def endless(*_: object) -> Row:
        nonlocal asked
        asked += 1
        while True:
            pass

    monkeypatch.setattr(Simulator, "_bounds", endless)
    started = time.process_time()
    found = changes(Design(0, candidate), 1.0, seconds=0.02)
    assert not found.all_tried
    assert found.enough == ()  # a bound that was not worked out in time is none
    assert 10 < asked < 20  # no pairs of what takes too long
    assert time.process_time() - started < 5.0


def test_an_interrupt_leaves_the_answer(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    (candidate,) = spaces("strategy=flat_ps", strategies="false", **DIVIDED).candidates
    asked = 0

    def interrupted(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulator, "_bounds", interrupted)
    assert changes(Design(0, candidate), 1.0) == Changes(all_tried=False)
    assert asked == 1
