"""Trainers that stand for others: as close as the prediction says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log1p
from typing import Any

import numpy as np
import pytest

from recsim_train.config.cluster import Cluster, Host, Network
from recsim_train.config.experiment import Table
from recsim_train.config.profiles import load_cluster
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import SHORT, at
from recsim_train.evaluate.simulations import representatives, settling
from recsim_train.placement.plan import Plan
from recsim_train.results.row import interval
from recsim_train.results.statistics import Z95
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.simulated_run import SimulatedRun, after
from recsim_train.trace.record import Outcome
from tests.simulated import folding_of, simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

EQUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "downpour": ("flat_ps", {}),
    "easgd": ("flat_ps", {"mode": "easgd", "every": 3}),
    "allreduce": ("allreduce", {}),
    "local": ("localsgd", {"every": 3, "switch": 4}),
    "s-easgd": ("shadowsync", {}),
    "s-ma": ("shadowsync", {"algorithm": "ma"}),
    "fr-bmuf": ("shadowsync", {"algorithm": "bmuf", "sync": "foreground"}),
    "hierarchical": ("hierarchical", {"hosts": 2, "tags": "top.0=1", "outer": "easgd"}),
    "dct": ("allreduce", {"compression": {"kind": "dct", "mode": "both"}}),
}
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("flat_ps", {"pooling": "worker"}),
    "allreduce": ("allreduce", {}),
    "s-easgd": ("shadowsync", {}),
    "des": ("des", {"partition": "hash"}),
    "hierarchical": ("hierarchical", {"hosts": 4, "tags": "top.0=1", "outer": "ma", "gap": 0}),
    "cache": ("scalefreectr", {"cache_share": 1.0}),
}
TABLES = tuple(Table(rows=rows) for rows in (900, 300, 70, 20))
WHOLE = tuple(Table(rows=rows) for rows in (600, 550, 70, 20))
"""None has more than one of two servers' share, so that none is split: what a batch's ids are then
does not matter."""


def predicted(
    plans: Plans,
    cluster: Cluster,
    chosen: tuple[str, dict[str, Any]],
    trainers: int,
    fold_above: int,
    steps: int = 12,
    tables: tuple[Table, ...] = TABLES,
) -> Outcome:
    plan = plans(
        chosen[0],
        chosen[1],
        model={"tables": tables},
        training={"batch_size": 16, "steps": steps, "warmup_steps": 2},
        roles={"trainers": trainers, "embedding_servers": 2, "dense_servers": 1},
        data={"eval_rows": 0},
        simulation={"fold_above": fold_above},
    )
    return simulate(plan, cluster)


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("nic", ["200 Mbit/s", "25 Gbit/s"])
def test_one_that_shares_equally_does_what_those_do_that_it_stands_for(
    name: str, nic: str, plans: Plans, clusters: Clusters
) -> None:
    cluster = clusters(jitter=0.0, nic=nic)
    every = predicted(plans, cluster, EQUAL[name], 20, fold_above=0, tables=WHOLE)
    folded = predicted(plans, cluster, EQUAL[name], 20, fold_above=2, tables=WHOLE)
    assert every.facts.folding is None
    facts = folded.facts.folding
    assert facts is not None
    assert facts.simulated == 2
    assert folded.totals.keys() == every.totals.keys()
    for key, total in every.totals.items():
        assert folded.totals[key].count == total.count, key
        assert folded.totals[key].bytes == total.bytes, key
        assert folded.totals[key].seconds == pytest.approx(total.seconds, rel=1e-9), key
    assert {(i.loop, i.iteration) for i in folded.iterations} == {
        (i.loop, i.iteration) for i in every.iterations
    }
    assert folded.speed is not None
    assert every.speed is not None
    assert folded.speed.examples_per_second == pytest.approx(
        every.speed.examples_per_second, rel=1e-9
    )
    assert folded.bound_eps == pytest.approx(every.bound_eps, rel=1e-9)
    assert folded.binding is not None


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("oversubscription", [1.0, 6.0])
def test_in_racks_those_of_one_rack_stand_for_each_other(
    name: str, oversubscription: float, plans: Plans, clusters: Clusters
) -> None:
    topology = {"racks": 2, "oversubscription": oversubscription, "latency": "20 us"}
    cluster = clusters(jitter=0.0, nic="1 Gbit/s", topology=topology)
    every = predicted(plans, cluster, EQUAL[name], 20, fold_above=0, tables=WHOLE)
    folded = predicted(plans, cluster, EQUAL[name], 20, fold_above=2, tables=WHOLE)
    facts = folded.facts.folding
    assert facts is not None
    assert facts.simulated == 2
    for key, total in every.totals.items():
        found = folded.totals[key]
        assert (found.count, found.bytes) == (total.count, total.bytes), key
    assert folded.speed is not None
    assert every.speed is not None
    # trainers of two racks come to a server one after the other, which only numbers round; a ring
    # that goes hop by hop beside that takes 20 hops around, or two ten times
    within = 1e-2 if name in ("s-ma", "fr-bmuf") else 1e-3
    assert folded.speed.examples_per_second == pytest.approx(
        every.speed.examples_per_second, rel=within
    )
    assert folded.bound_eps == pytest.approx(every.bound_eps, rel=within)
    links = [link for link in every.facts.bounds if link.startswith("rack")]
    assert len(links) == 4
    for link in links:
        assert folded.facts.bounds[link] == pytest.approx(every.facts.bounds[link], rel=within)


@pytest.mark.parametrize(
    ("topology", "simulated"),
    [
        ({"racks": 2, "oversubscription": 2.0}, 2),
        ({"racks": 3, "oversubscription": 2.0}, 3),
        ({"racks": 2, "oversubscription": 2.0, "arrange": "fill"}, 20),
    ],
)
def test_who_is_in_another_rack_stands_for_nobody(
    topology: dict[str, Any], simulated: int, plans: Plans, clusters: Clusters
) -> None:
    plan = plans("flat_ps", roles={"trainers": 20, "embedding_servers": 2, "dense_servers": 2})
    cluster = clusters(jitter=0.0, topology=topology)
    found = folding_of(plan, cluster, most=1)
    assert found.simulated == simulated


@pytest.mark.parametrize(
    ("trainers", "threads", "servers", "simulated"),
    [
        (12, 16, 6, 4),  # 192 loops, 1,344 requests; 4 have 64 loops
        (12, 16, 1, 12),  # 384 of them
        (8, 32, 6, 4),  # two have 64 loops
        (7, 32, 6, 7),  # 4 are more than half of them
        (120, 4, 6, 15),  # 16 have 64 loops, and 15 divide 120
        (120, 1, 2, 60),  # no more than 400 requests
    ],
)
def test_many_loops_are_folded_further(
    trainers: int, threads: int, servers: int, simulated: int, plans: Plans, clusters: Clusters
) -> None:
    roles = {"trainers": trainers, "embedding_servers": servers, "dense_servers": 1}
    training = {"threads": threads}
    plan = plans("flat_ps", roles=roles, training=training, model={"tables": TABLES * 2})
    assert len(plan.training) == trainers * threads
    found = folding_of(plan, clusters(jitter=0.1))
    assert found.simulated == simulated
    case = Case.of(plan, clusters(jitter=0.1))
    short = representatives(at(case, SHORT, found))  # no dearer than it is itself
    assert short.simulated == min(simulated, 15 if trainers == 120 else trainers)
    assert folding_of(plan, clusters(jitter=0.1), most=0).simulated == trainers


@pytest.mark.parametrize("trainers", [24, 27])
def test_a_folded_estimate_that_settles_early_is_of_all_trainers(
    trainers: int, plans: Plans, clusters: Clusters
) -> None:
    plan = plans(
        "flat_ps",
        {"pooling": "worker"},
        model={"tables": TABLES},
        training={"batch_size": 16, "steps": 400, "warmup_steps": 2},
        roles={"trainers": trainers, "embedding_servers": 2, "dense_servers": 1},
        data={"eval_rows": 0},
        simulation={"precision": "3 %", "minimum_steps": 40, "fold_above": 0},
    )
    cluster = clusters(jitter=0.2, nic="2 Gbit/s")
    rates = []
    for most in (0, 8, 12):
        settings = plan.experiment.simulation.model_copy(update={"fold_above": most})
        spec = plan.experiment.model_copy(update={"simulation": settings})
        outcome = simulate(replace(plan, experiment=spec), cluster)
        assert outcome.steps < 400
        assert outcome.facts.stopped == "estimate settled"
        assert outcome.speed is not None
        rates.append(outcome.speed.examples_per_second)
    # as close as folding is; of the simulated trainers alone it would be a third or a half
    assert rates[1:] == pytest.approx([rates[0]] * 2, rel=0.15)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "rows" else pytest.mark.thorough) for name in VARIED],
)
def test_trainers_that_vary_are_folded_closely(name: str, plans: Plans, clusters: Clusters) -> None:
    # as many steps as readers make batches at a time, which are as dear as they are
    cluster = clusters(jitter=0.2, nic="2 Gbit/s")
    every = predicted(plans, cluster, VARIED[name], 64, fold_above=0, steps=64)
    folded = predicted(plans, cluster, VARIED[name], 64, fold_above=32, steps=64)
    assert every.speed is not None
    assert folded.speed is not None
    facts = folded.facts.folding
    assert facts is not None
    assert facts.simulated == 32
    assert facts.error is not None
    assert facts.error >= 0.0
    assert any("stand" in note for note in folded.facts.warnings)
    # where rounds in the background queue for servers it may be no closer than it says itself
    within = max(0.04, facts.error) if name == "hierarchical" else 0.04
    assert folded.speed.examples_per_second == pytest.approx(
        every.speed.examples_per_second, rel=within
    )


def on_own_hosts(queue: str) -> Cluster:
    """Measured prices, on hosts of their own where nothing but messages parts trainers."""
    network = {"latency": "30 us", "efficiency": 0.9564, "queue": queue, "passes_at_once": "0 B"}
    update = {
        "colocate": False,
        "jitter": 0.0,
        "hosts": {"default": Host(cores=8, memory="16 GiB", nic="1 Gbit/s")},
        "network": Network.model_validate(network),
    }
    return load_cluster("tests/frozen-2core.yaml").model_copy(update=update)


def rate(outcome: Outcome) -> float:
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    return outcome.speed.examples_per_second


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        *((name, "fifo") for name in ("downpour", "easgd", "allreduce", "s-easgd", "s-ma")),
        *((name, "fair") for name in ("downpour", "s-ma")),
    ],
)
def test_where_messages_part_trainers_the_interval_holds_each_of_them(
    name: str, queue: str, plans: Plans
) -> None:
    """Half of the trainers are simulated, then all."""
    plan = plans(
        *EQUAL[name],
        model={"tables": (Table(rows=1000),) * 4},
        training={"batch_size": 128, "steps": 24, "warmup_steps": 4},
        roles={"trainers": 12, "embedding_servers": 2, "dense_servers": 1},
        data={"eval_rows": 0},
        simulation={"fold_above": 6, "what_if_steps": 2, "what_if_trainers": 4},
    )
    cluster = on_own_hosts(queue)
    folded = simulate(plan, cluster)
    assert folded.facts.folding is not None
    assert folded.facts.calibration_ci95 is not None
    assert folded.speed is not None
    known = interval(rate(folded), folded.speed.ci95, folded.facts.calibration_ci95)
    assert known is not None
    assert folded.facts.folding.error is not None
    errors = folded.facts.calibration_errors or {}
    # what half as many change is the end of an interval, and no standard error
    end = log1p(folded.facts.folding.error)
    assert Z95 * errors["folding"] == pytest.approx(end, rel=1e-3, abs=1e-5)
    every = {"fold_above": 0, "what_if_steps": 0}
    settings = plan.experiment.simulation.model_copy(update=every)
    spec = plan.experiment.model_copy(update={"simulation": settings})
    assert known[0] < rate(simulate(replace(plan, experiment=spec), cluster)) < known[1]


def test_one_trainer_more_is_a_little_faster(plans: Plans) -> None:
    """17 that nothing distinguishes were one that stood for all, and could only be in step."""
    found = []
    for trainers in (16, 17):
        plan = plans(
            "flat_ps",
            model={"tables": (Table(rows=1000),) * 8},
            training={"batch_size": 128, "steps": 40, "warmup_steps": 10},
            roles={"trainers": trainers, "embedding_servers": 2, "dense_servers": 1},
            data={"eval_rows": 0},
            simulation={"what_if_steps": 0},
        )
        found.append(rate(simulate(plan, on_own_hosts("fifo"))))
    assert 0.9 < found[1] / found[0] < 1.2


def held(outcome: Outcome) -> float:
    """How much longer the second iteration of one loop is than that of another, of the first."""
    first, second = (
        [i.end - i.start for i in outcome.iterations if i.iteration == n] for n in (0, 1)
    )
    return (max(second) - min(second)) / max(first)


@pytest.mark.parametrize(
    ("name", "fold_above", "warmup_steps", "busy", "apart"),
    [
        ("rows", 8, 2, 10, True),
        ("rows", 8, 1, 10, False),  # it would be counted
        ("rows", 0, 2, 10, False),  # as they are in truth
        ("rows", 8, 2, 1000, False),  # few may stay in step
        ("allreduce", 8, 2, 10, False),  # they wait for each other
    ],
)
def test_many_free_loops_that_stand_for_others_are_parted(
    name: str,
    fold_above: int,
    warmup_steps: int,
    busy: int,
    apart: bool,
    plans: Plans,
    clusters: Clusters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recsim_train.evaluate.simulations.BUSY", busy)
    plan = plans(
        *VARIED[name],
        model={"tables": TABLES},
        training={"batch_size": 16, "steps": 4, "warmup_steps": warmup_steps},
        roles={"trainers": 24, "embedding_servers": 2, "dense_servers": 1},
        data={"eval_rows": 0},
        simulation={"fold_above": fold_above},
    )
    outcome = simulate(plan, clusters(jitter=0.02, nic="25 Gbit/s"))
    assert (held(outcome) > 0.6) == apart


def test_few_steps_of_parted_loops_say_what_many_of_all_do(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At slow servers loops that begin together queue behind each other at one after the other."""
    monkeypatch.setattr("recsim_train.evaluate.simulations.BUSY", 100)
    cluster = clusters(jitter=0.05, nic="25 Gbit/s", prices={"request": "100 us"})

    def rate(fold_above: int, steps: int) -> float:
        plan = plans(
            *VARIED["rows"],
            model={"tables": TABLES},
            training={"batch_size": 64, "steps": steps, "warmup_steps": 2, "threads": 4},
            roles={"trainers": 24, "embedding_servers": 3, "dense_servers": 1},
            data={"eval_rows": 0},
            simulation={"fold_above": fold_above, "precision": "0 %", "what_if_steps": 0},
        )
        speed = simulate(plan, cluster).speed
        assert speed is not None
        assert speed.examples_per_second is not None
        return speed.examples_per_second

    every, parted = rate(0, 40), rate(12, 10)
    monkeypatch.setattr("recsim_train.sim.runtime._GOLDEN", 0.0)
    together = rate(12, 10)
    assert abs(parted / every - 1.0) < 0.03
    assert abs(parted / every - 1.0) < 0.5 * abs(together / every - 1.0)


def test_what_folding_changes_is_seen_over_the_same_steps(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of parted loops over half of them."""
    monkeypatch.setattr("recsim_train.evaluate.simulations.BUSY", 10)
    cluster = clusters(jitter=0.05, nic="2 Gbit/s")
    plan = plans(
        *VARIED["rows"],
        model={"tables": TABLES},
        training={"batch_size": 16, "steps": 40, "warmup_steps": 2},
        roles={"trainers": 24, "embedding_servers": 2, "dense_servers": 1},
        data={"eval_rows": 0},
        simulation={"fold_above": 8, "what_if_steps": 0},
    )
    outcome = simulate(plan, cluster)
    found = outcome.facts.folding
    assert found is not None
    assert found.half is not None
    steps = outcome.steps // 2 + 1
    assert steps < outcome.steps
    rates, counts = [], None
    for trainers in (found.simulated, found.half.simulated):
        run = SimulatedRun(plan, cluster, Folding(24, trainers, parted=True), counts)
        run.run(after(steps) if rates else settling(plan, run.folding))
        counts = run.counts
        rates.append(run.within(steps).examples_per_second or 0.0)
    assert found.error == pytest.approx(abs(rates[1] / rates[0] - 1.0), rel=1e-9)
    assert outcome.speed is not None
    whole = outcome.speed.examples_per_second or 0.0
    assert whole != rates[0]
    assert found.half.examples_per_second == pytest.approx(whole * rates[1] / rates[0], rel=1e-9)


@pytest.mark.parametrize(("least", "advised"), [(-1.0, True), (10.0, False)])
def test_a_coarse_folding_says_what_to_do(
    plans: Plans,
    clusters: Clusters,
    monkeypatch: pytest.MonkeyPatch,
    least: float,
    advised: bool,
) -> None:
    monkeypatch.setattr("recsim_train.evaluate.prediction._COARSE", least)
    folded = predicted(plans, clusters(jitter=0.1), VARIED["s-easgd"], 24, 8)
    (note,) = (text for text in folded.facts.warnings if "stand" in text)
    assert ("raise simulation.fold_above" in note) == advised


def test_those_who_wait_meet_all_stragglers(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(jitter=0.5, nic="25 Gbit/s")
    chosen = ("allreduce", {})
    rates = [predicted(plans, cluster, chosen, 96, fold_above=f, steps=150).speed for f in (0, 12)]
    monkeypatch.setattr(Lateness, "latest", lambda self: 0.0)
    rates.append(predicted(plans, cluster, chosen, 96, fold_above=12, steps=150).speed)
    every, folded, careless = (r.examples_per_second for r in rates if r is not None)
    assert every
    assert folded
    assert careless
    assert folded == pytest.approx(every, rel=0.03)
    assert careless > 1.05 * every  # the slowest of 12 is not as slow as the slowest of 96


def test_lateness_is_that_of_the_slowest() -> None:
    def draw(trainers: int, pieces: int) -> np.ndarray:
        return np.arange(1.0, trainers + 1)[:, None] * np.ones(pieces)

    lateness = Lateness(draw, others=3)
    assert lateness.latest() == 0.0
    lateness.add(1.0, 1.5)
    lateness.add(2.0, 2.0)
    assert lateness.latest() == pytest.approx(3 * (1.0 + 2.0) - 3.5)
    assert lateness.latest() == 0.0  # begun anew
    lateness.add(1.0, 10.0)
    assert lateness.latest() == 0.0  # nobody is later than the loop itself


def test_every_trainer_has_a_stand_in() -> None:
    folding = Folding(10, 4)
    assert [folding.standing(t) for t in range(4)] == [3, 3, 2, 2]
    assert sorted(t for s in range(4) for t in folding.like(s)) == list(range(10))
    assert {folding.stand_in(t) for t in folding.like(1)} == {1}


def test_trainers_that_hold_shards_are_not_folded(plans: Plans, clusters: Clusters) -> None:
    plan = plans("flat_ps", roles={"trainers": 40}, training={"batch_size": 8, "steps": 2})
    folding = folding_of(plan, clusters(jitter=0.0))
    assert folding.simulated == folding.trainers == 40


def test_hosts_of_one_net_stay_together(plans: Plans, clusters: Clusters) -> None:
    plan = plans(
        "hierarchical",
        {"hosts": 6, "outer": "ma"},
        roles={"trainers": 120, "embedding_servers": 1},
        training={"batch_size": 8, "steps": 2},
        simulation={"fold_above": 32},
    )
    folding = folding_of(plan, clusters(jitter=0.1))
    assert folding.simulated == 30
    assert not folding.exact
