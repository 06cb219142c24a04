"""Designs on hosts of several types: who gets the large ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsim_train import load
from recsim_train.config.sweep import written
from recsim_train.designs.answer import answer_of
from recsim_train.designs.changes import changes
from recsim_train.designs.measured import write_folders
from recsim_train.designs.searching import Design, Searcher
from recsim_train.designs.shown import divided
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.asymptotic import asymptotic_bounds
from recsim_train.placement.hosts import hosts_of, kinds_of
from recsim_train.session.job import NOBODY
from tests.recommend.conftest import CORES, RENT, Spaces
from tests.simulated import simulate

ONE_EACH: dict[str, Any] = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "strategies": "false", "threads": [2],
}  # fmt: skip
SERVERS = ("embedding_server", "dense_server", "reader")
CHEAP = {"per_hour": 0.5, "currency": "EUR", "source": "a contract", "date": "2026-11-27"}


def types(large: int, small: int | None, **other: Any) -> str:
    entries = [{"count": large}, {"count": small, **other}]
    said = [{k: v for k, v in entry.items() if v is not None} for entry in entries]
    return f"cluster.mixed={written({'default': said})}"


def test_no_design_has_more_of_a_type_than_there_are_and_none_is_there_twice(
    spaces: Spaces,
) -> None:
    found = spaces(
        "strategy=flat_ps", types(3, 3, cores=1), hosts=[6, 5, 3], **{**ONE_EACH, "threads": [1]}
    )
    assert found.most_hosts == 6
    ways: dict[int, list[str]] = {}
    for candidate in found.candidates:
        hosts = hosts_of(candidate.job.plan.instances, candidate.job.profile)
        assert max(Counter(host.kind.cores for host in hosts).values()) <= 3
        ways.setdefault(len(hosts), []).append(
            str([(host.instances[0].role, host.kind.cores) for host in hosts])
        )
    # of all hosts, trainers have what servers do not take; of three, all may be of one type
    assert {count: len(known) for count, known in ways.items()} == {6: 2, 5: 4, 3: 4}
    assert all(len(known) == len(set(known)) for known in ways.values())
    said = spaces(
        "strategy=flat_ps", types(3, 3, cores=1), "cluster.mixed_from_last=[trainer]",
        hosts=[5], **{**ONE_EACH, "threads": [1]},
    )  # fmt: skip
    (alone,) = said.candidates
    assert alone.job.settings["mixed_from_last"] == ["trainer"]


def test_threads_are_those_of_the_hosts_that_trainers_have(spaces: Spaces) -> None:
    few = {key: value for key, value in ONE_EACH.items() if key != "threads"}
    found = spaces("strategy=flat_ps", types(2, 2, cores=8), hosts=[4], **few)
    threads = {
        tuple(c.job.settings["mixed_from_last"]): c.job.plan.experiment.training.threads
        for c in found.candidates
    }
    assert threads == {(): 8, SERVERS: CORES}


@pytest.mark.parametrize("slow", [{"speed": 0.25}, {"nic": "2 Mbit/s"}], ids=["cores", "cards"])
def test_the_best_way_is_found(spaces: Spaces, slow: dict[str, Any]) -> None:
    """Compared with a simulation of each by hand: trainers bind, or servers do."""
    pinned = "strategy=flat_ps", "search.settings={strategy.pooling: [server]}"
    found = spaces(
        *pinned, "placement.split_rows_above=1", types(2, 2, **slow), hosts=[4], **ONE_EACH
    )
    rates = {}
    for candidate in found.candidates:
        plan = candidate.job.plan
        alone = plan.experiment.simulation.model_copy(update={"what_if_steps": 0})
        spec = plan.experiment.model_copy(update={"simulation": alone})
        outcome = simulate(replace(plan, experiment=spec), candidate.job.profile)
        assert outcome.speed is not None
        assert outcome.speed.examples_per_second is not None
        rates[candidate.split.last] = outcome.speed.examples_per_second
    best = max(rates, key=rates.__getitem__)
    assert rates.keys() == {(), SERVERS}
    assert best == (SERVERS if "speed" in slow else ())
    assert rates[best] > 1.05 * min(rates.values())
    chosen = answer_of(Searcher(found, Demand(), 1, NOBODY).run()).chosen
    assert chosen.candidate.split.last == best
    assert chosen.eps == pytest.approx(rates[best], rel=0.05)
    if "speed" in slow:
        assert "2 trainers of 2 threads with batches of 128 on 2 of cores of speed 1.0" in divided(
            chosen
        )


def test_each_type_has_its_rent_and_a_folder_keeps_who_stands_where(
    spaces: Spaces, tmp_path: Path
) -> None:
    found = spaces("strategy=flat_ps", types(3, 3, rent=CHEAP), RENT, hosts=[3], **ONE_EACH)
    assert sorted(c.per_hour or 0.0 for c in found.candidates) == [1.5, 3.0, 4.5, 6.0]
    cheapest = min(found.candidates, key=lambda c: c.per_hour or 0.0)
    assert cheapest.split.last == ("trainer", *SERVERS)
    for number, candidate in enumerate(found.candidates):
        (place,) = write_folders(tmp_path / str(number), [Design(number, candidate)])
        (job,) = load(place / "experiment.yaml").jobs()
        assert kinds_of(job.plan.instances, job.profile) == kinds_of(
            candidate.job.plan.instances, candidate.job.profile
        )


def test_changes_reach_every_type(spaces: Spaces) -> None:
    """Faster cards are those of all types, more hosts as many of each."""
    types_of = types(3, 1, nic="2 Mbit/s")
    last = "cluster.mixed_from_last=[embedding_server]"
    (candidate,) = spaces(
        "strategy=flat_ps", types_of, last, hosts=[4], **ONE_EACH
    ).candidates  # its server has the slow card
    bound = asymptotic_bounds(candidate.job.case).bound
    assert bound is not None
    found = changes(Design(0, candidate), 1.4 * bound)
    assert found.all_tried
    said = [change.says for change in found.enough]
    assert any("times as fast network cards" in one for one in said), said
    assert any("hosts instead of 4, divided alike" in one for one in said), said
