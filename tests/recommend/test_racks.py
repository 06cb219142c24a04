"""Hosts in racks: what is recommended where uplinks bind, and where they do not."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from recsim_train.designs.answer import answer_of
from recsim_train.designs.searching import Design, Searcher
from recsim_train.designs.space import Space
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.asymptotic import asymptotic_bounds
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Simulator
from recsim_train.evaluate.levels import BOUND, BOUND_IN_RACKS, FINAL, INTERVAL, RUNGS, Level
from recsim_train.results.row import Row
from recsim_train.session.job import NOBODY
from tests.recommend.conftest import Spaces
from tests.simulated import simulate

KINDS = ("allreduce", "flat_ps", "localsgd", "shadowsync")
FASTEST = 10e9
"""Bit/s of an uplink that does not bind."""
RACK = {
    "hosts": [4], "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1],
    "servers_per_host": [1], "threads": [1],
}  # fmt: skip


def in_racks(racks: int, each: int, uplink: float, arrange: str = "fill") -> str:
    return (
        f"cluster.topology={{racks: {racks}, hosts_per_rack: {each}, uplink: {uplink:.0f} bit/s, "
        f"arrange: {arrange}}}"
    )


def eps_of(space: Space) -> list[float]:
    """Of every design, by whole predictions."""
    found = []
    for candidate in space.candidates:
        speed = simulate(candidate.job.plan, candidate.job.profile).speed
        assert speed is not None
        assert speed.examples_per_second is not None
        found.append(speed.examples_per_second)
    return found


def drawn(seed: int, spaces: Spaces, *, large: bool) -> Space:
    """A space whose uplinks are a fifth to five times as fast as what binds its largest design
    otherwise."""
    draw = Random(seed)
    racks, each = (draw.choice((2, 3)), draw.choice((3, 4))) if large else (2, draw.choice((2, 3)))
    hosts = racks * each
    kinds = draw.sample(KINDS, 3 if large else 2)
    nic = draw.choice(("50 Mbit/s", "200 Mbit/s", "1 Gbit/s"))
    arrange = draw.choice(("fill", "spread"))
    times = math.exp(draw.uniform(math.log(0.2), math.log(5.0)))
    search = {
        **RACK,
        "hosts": list(range(2, hosts + 1) if large else range(each, hosts + 1)),
        "embedding_hosts": [1, 2],
        "threads": [1, 2] if large else [1],
    }
    sets = [
        f"strategy=[{', '.join(kinds)}]", f"cluster.hosts.default.nic={nic}",
        f"training.batch_size={draw.choice((128, 512))}", "training.threads=1",
        f"model.embedding_dim={draw.choice((8, 32))}", "training.steps=16",
    ]  # fmt: skip

    def made(uplink: float) -> Space:
        return spaces(*sets, in_racks(racks, each, uplink, arrange), **search)

    free = made(FASTEST)
    largest = max(free.candidates, key=lambda c: (c.hosts, -c.split.embedding))
    bounds = asymptotic_bounds(largest.job.case).bounds
    uplink = min(bound for name, bound in bounds.items() if name.startswith("rack"))
    otherwise = min(bound for name, bound in bounds.items() if not name.startswith("rack"))
    return made(times * FASTEST * otherwise / uplink)


def without_interval(self: Simulator, case: Case, level: Level, keep: object) -> Row:
    """A whole prediction, but for what is dear and says nothing of how fast it is."""
    return self.row(case.with_({"simulation.what_if_steps": 0}), FINAL)


@pytest.mark.parametrize("seed", range(4, 12))
def test_what_is_recommended_in_racks_is_nearly_the_best(
    spaces: Spaces, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "_interval", without_interval)
    # so few go on that it matters which
    few = [rung._replace(most=most) for rung, most in zip(RUNGS, (48, 6, 2), strict=True)]
    monkeypatch.setattr("recsim_train.designs.searching.RUNGS", few)
    space = drawn(seed, spaces, large=False)
    assert 5 <= len(space.candidates) <= 16
    answer = answer_of(Searcher(space, Demand(), 1, NOBODY).run())
    every = eps_of(space)
    assert (answer.chosen.eps or 0.0) >= 0.95 * max(every)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 106))
def test_the_same_of_larger_spaces(spaces: Spaces, seed: int) -> None:
    space = drawn(seed, spaces, large=True)
    assert len(space.candidates) >= 30
    answer = answer_of(Searcher(space, Demand(), 2, NOBODY).run())
    every = eps_of(space)
    assert (answer.chosen.eps or 0.0) >= 0.95 * max(every)


def test_a_bound_knows_what_uplinks_allow(spaces: Spaces) -> None:
    sets = ("strategy=allreduce", in_racks(2, 2, 4e6))
    (candidate,) = spaces(*sets, strategies="false", **RACK).candidates
    case, simulator = candidate.job.case, Simulator()
    known = simulator.row(case, BOUND).bounds
    assert known
    assert next(iter(known)).startswith("rack")
    assert known == simulator.row(case, BOUND_IN_RACKS).bounds
    # of many that ask each other it would take too long
    less = simulator.row(case, replace(BOUND, racks=1)).bounds
    assert less
    assert not any(name.startswith("rack") for name in less)


def test_an_interval_in_racks_is_as_wide_as_without_them_around_its_own_prediction(
    spaces: Spaces,
) -> None:
    """Uplinks make it a tenth as fast: how far errors carry is asked without them."""
    sets = ("strategy=allreduce", in_racks(2, 2, 2e6))
    (candidate,) = spaces(*sets, strategies="false", **RACK).candidates
    row = Simulator().row(candidate.job.case, INTERVAL)
    eps = row.examples_per_second
    (free,) = spaces("strategy=allreduce", strategies="false", **RACK).candidates
    alone = Simulator().row(free.job.case, INTERVAL)
    assert eps < 0.5 * alone.examples_per_second
    for end in ("calibration_low", "calibration_high"):
        share = getattr(alone, end) / alone.examples_per_second
        assert getattr(row, end) / eps == pytest.approx(share, rel=0.1)
        assert abs(share - 1.0) > 0.02


def test_designs_that_fall_make_room_for_others(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve are thought to be the best, and fall as soon as racks are there."""
    search = {**RACK, "hosts": [3, 4, 5, 6, 7, 8], "embedding_hosts": [1, 2], "threads": [1, 2]}
    space = spaces("strategy=allreduce", strategies="false", **search)
    assert len(space.candidates) >= 20
    searcher = Searcher(space, Demand(), 1, NOBODY)
    asked = []

    def look(designs: list[Design]) -> None:
        for design in designs:
            design.known = {"loops": 1000.0}

    def simulated(designs: list[Design], stage: int) -> None:
        for design in designs:
            asked.append((design.number, stage))
            falls = design.number < 12
            eps = 500.0 - design.number if stage == 0 or not falls else 20.0
            eps = eps if falls else 100.0 + design.number
            design.row, design.rounds = Row(examples_per_second=eps), stage + 1

    monkeypatch.setattr(searcher, "_find_bounds", look)
    monkeypatch.setattr(searcher, "_simulate", simulated)
    found = searcher.run()
    best = answer_of(found).chosen
    assert best.number == len(space.candidates) - 1
    assert len(asked) == len(set(asked))  # none twice
    assert found.in_full <= 8
