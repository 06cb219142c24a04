"""The search finds what trying everything finds."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf

import pytest

from recsim_train.designs import searching
from recsim_train.designs.answer import (
    NoDesignError,
    Recommended,
    answer_document,
    answer_of,
    barriers,
)
from recsim_train.designs.searching import STAGES, Design, Found, Searcher, _reached
from recsim_train.designs.shown import document, headline
from recsim_train.designs.space import Space
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Simulator
from recsim_train.evaluate.levels import BOUND, Level
from recsim_train.results.row import COMPLETE, DOES_NOT_FIT, Row
from recsim_train.session.job import NOBODY, Caller
from recsim_train.sim.host.memory import by_host, memory_uses
from tests.recommend.conftest import CORES, RENT, Spaces
from tests.simulated import simulate

FEW = {
    "embedding_hosts": [1, 2], "dense_hosts": [1], "trainers_per_host": [1, 2],
    "servers_per_host": [1],
}  # fmt: skip

FEW_PROCESSES = {
    "embedding_hosts": [0, 1], "dense_hosts": [0, 1], "trainers_per_host": [1],
    "servers_per_host": [1],
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> dict[str, float]:
    """By design, examples per second of whole predictions: they are dear."""
    return {}


def everything(space: Space, known: dict[str, float]) -> dict[int, float]:
    """Examples per second of every design, by whole predictions."""
    found = {}
    for number, candidate in enumerate(space.candidates):
        job = candidate.job
        if job.identity not in known:
            outcome = simulate(job.plan, job.profile)  # asks no what-if, which changes nothing
            speed = outcome.speed
            assert speed is not None
            assert speed.examples_per_second is not None
            known[job.identity] = speed.examples_per_second
        found[number] = known[job.identity]
    return found


def searched(space: Space, wanted: Demand) -> Recommended:
    return answer_of(Searcher(space, wanted, 1, NOBODY).run())


def test_the_fastest_of_all_is_found_or_cannot_be_told_from_it(
    spaces: Spaces, known: dict[str, float]
) -> None:
    space = spaces("strategy=[flat_ps, allreduce, shadowsync]", hosts=[2, 3, 4, 5], **FEW)
    assert len(space.candidates) >= 30
    every = everything(space, known)
    best = max(every, key=every.__getitem__)
    answer = searched(space, Demand())
    group = [answer.chosen, *answer.tied]
    # or a design that the space has not, of settings that nobody has chosen
    assert best in [d.number for d in group] or (answer.chosen.eps or 0.0) > every[best]
    for design in group:
        assert design.eps == pytest.approx(every.get(design.number, design.eps), rel=1e-9)
    assert len(group) <= 6
    assert answer.met is None


def test_a_strategy_whose_quickest_bounds_take_too_long_is_left_out(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounds(self: Simulator, case: Case, level: Level, keep: None) -> Row:
        if case.choice.kind == "allreduce":
            end = time.process_time() + 5.0
            while time.process_time() < end:
                pass
        return quick(self, case, level, keep)

    quick = Simulator._bounds
    monkeypatch.setattr(Simulator, "_bounds", bounds)
    monkeypatch.setattr(searching, "BOUND", replace(BOUND, seconds=1.0))
    space = spaces("strategy=[flat_ps, allreduce]", hosts=[2, 3], **FEW)
    many = sum(c.job.plan.strategy.kind == "allreduce" for c in space.candidates)
    assert many > 2
    found = Searcher(space, Demand(), 1, NOBODY).run()
    assert found.failures == {
        "took more than 1 s of CPU": 2,
        "allreduce: bounds of its quickest designs took too long": many - 2,
    }
    assert {design.kind.partition(" ")[0] for design in found.simulated} == {"flat_ps"}


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_smallest_that_is_enough(spaces: Spaces, known: dict[str, float], share: float) -> None:
    space = spaces("strategy=[flat_ps, allreduce, shadowsync]", hosts=[2, 3, 4], **FEW)
    every = everything(space, known)
    target = share * max(every.values())
    answer = searched(space, Demand(target=target, by="hosts", likely=True))
    fewest = min(space.candidates[n].hosts for n, eps in every.items() if eps >= target)
    assert answer.met is True
    assert answer.chosen.candidate.hosts == fewest
    assert answer.chosen.eps is not None
    assert answer.chosen.eps >= target
    assert answer.headroom == pytest.approx(answer.chosen.eps / target - 1.0)


def test_what_no_bound_allows_is_not_simulated_long_and_is_said(spaces: Spaces) -> None:
    space = spaces("strategy=[flat_ps, allreduce]", hosts=[2, 3, 4], **FEW)
    answer = searched(space, Demand(target=1e9, by="hosts"))
    assert answer.met is False
    assert answer.found.barred == len(answer.found.designs) >= len(space.candidates)
    found = barriers(answer.chosen, 1e9)
    assert found
    for barrier in found:
        assert barrier.allows < 1e9
        assert barrier.says
    cores = next(b for b in found if b.what == "trainer: cores")
    job = answer.chosen.candidate.job
    hosts = job.plan.experiment.roles.trainers // job.profile.together("trainer")
    assert f"there are {CORES * hosts:,}" in cores.says


def test_an_interval_that_reaches_below_the_target_is_not_enough(spaces: Spaces) -> None:
    space = spaces("strategy=allreduce", strategies="false", hosts=[2, 3], **FEW)
    best = searched(space, Demand())
    assert best.chosen.interval is not None
    low, high = best.chosen.interval
    assert low < high
    between = (low + (best.chosen.eps or 0.0)) / 2
    assert searched(space, Demand(target=between, by="throughput", likely=True)).met is True
    surely = searched(space, Demand(target=between, by="throughput"))
    assert surely.met is (max(d.surely(surely.wanted) for d in surely.found.whole) >= between)
    assert searched(space, Demand(target=0.5 * low, by="hosts")).met is True


def test_a_budget_is_hard(spaces: Spaces) -> None:
    space = spaces("strategy=allreduce", RENT, strategies="false", hosts=[2, 3, 4], **FEW)
    prices = sorted({c.per_hour for c in space.candidates if c.per_hour is not None})
    answer = searched(space, Demand(budget=prices[0]))
    assert answer.chosen.candidate.per_hour == prices[0]
    assert answer.found.beyond_budget > 0
    with pytest.raises(NoDesignError, match=r"costs at most 1\.00 EUR an hour; the cheapest costs"):
        searched(space, Demand(budget=1.0))


def test_by_cost_is_what_an_example_costs(spaces: Spaces, known: dict[str, float]) -> None:
    space = spaces("strategy=[allreduce, flat_ps]", RENT, hosts=[2, 3, 4, 5], **FEW)
    every = everything(space, known)
    answer = searched(space, Demand(by="cost"))
    cheapest = min(
        ((space.candidates[n].per_hour or inf) / eps for n, eps in every.items()), default=inf
    )
    found = (answer.chosen.candidate.per_hour or inf) / (answer.chosen.eps or 1.0)
    assert found <= 1.02 * cheapest


def test_where_nothing_fits_it_is_said_what(spaces: Spaces) -> None:
    small = "cluster.hosts.default.memory=1 MiB"
    space = spaces("strategy=allreduce", small, strategies="false", hosts=[2, 3], **FEW)
    with pytest.raises(NoDesignError, match=r"fits into the hosts.*GiB"):
        searched(space, Demand())


def test_a_table_that_fits_nowhere_is_named(spaces: Spaces) -> None:
    sets = ["model.tables=[100, 3G, 50]", "cluster.hosts.default.memory=8 GiB"]
    space = spaces("strategy=[flat_ps, allreduce]", *sets, hosts=[2, 3], **FEW)
    with pytest.raises(NoDesignError, match=r"model\.tables\[1\] alone, of 3,000,000,000 rows"):
        searched(space, Demand())


def test_a_tenth_of_the_memory_is_kept(spaces: Spaces) -> None:
    space = spaces("strategy=allreduce", strategies="false", hosts=[3], **FEW)
    (job, *_) = (candidate.job for candidate in space.candidates)
    fullest = max(
        by_host(memory_uses(job.plan, job.profile), job.profile), key=lambda host: host.filled
    )
    for share, fits in ((0.89, True), (0.91, False)):
        memory = f"cluster.hosts.default.memory={fullest.needed / share:.0f} B"
        tight = spaces("strategy=allreduce", memory, strategies="false", hosts=[3], **FEW)
        plan = next(c.job for c in tight.candidates if c.split == space.candidates[0].split)
        row = Simulator().row(plan.case, BOUND)
        assert row.status == (COMPLETE if fits else DOES_NOT_FIT)
        assert fits or "a tenth of each host's memory is kept" in row.message


def test_a_target_below_one_hosts_takes_one(spaces: Spaces) -> None:
    space = spaces("strategy=flat_ps", strategies="false", most=8, **FEW_PROCESSES)
    answer = searched(space, Demand(target=1.0, by="hosts"))
    assert answer.met is True
    assert answer.chosen.candidate.hosts == 1


def simulated(space: Space, places: dict[int, tuple[float, float]]) -> list[Design]:
    """Its designs, some of which are known in a round: by place (examples per second, bound)."""
    designs = [Design(n, candidate) for n, candidate in enumerate(space.candidates)]
    for design in designs:
        eps, bound = places.get(design.number, (0.0, 100.0))
        design.known = {"loops": bound}
        if eps:
            design.row, design.rounds = Row(examples_per_second=eps), 1
    return designs


def test_a_design_is_thought_to_reach_what_those_like_it_do(spaces: Spaces) -> None:
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5], dense_hosts=[1],
                   embedding_hosts=[1, 2], trainers_per_host=[1, 2], servers_per_host=[1],
                   threads=[1])  # fmt: skip
    names = ("hosts", "embedding_hosts", "trainers_per_host")
    place = {
        tuple(c.job.settings[name] for name in names): number
        for number, c in enumerate(space.candidates)
    }
    known = {place[4, 1, 1]: (90.0, 100.0), place[4, 2, 2]: (20.0, 100.0)}
    designs = simulated(space, known)
    reached = _reached(designs)
    assert reached(designs[place[5, 1, 1]]) == 0.9  # whatever the hosts
    assert reached(designs[place[5, 2, 2]]) == 0.2
    assert reached(designs[place[5, 1, 2]]) == pytest.approx(0.55)  # as like the one as the other
    # how loose a bound is says nothing of another strategy's
    (other, *_) = spaces("strategy=allreduce", strategies="false", hosts=[4], **FEW).candidates
    assert reached(Design(99, other)) == 1.0


def following(designs: list[Design], space: Space, wanted: Demand) -> Design:
    """Which of them is simulated next."""
    search = Searcher(space, wanted, 1, NOBODY)
    search._there = designs
    return search._next()[0]


def test_what_is_just_below_the_target_at_first_gets_a_longer_simulation(spaces: Spaces) -> None:
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5, 6], **FEW)
    fewest = {c.hosts: number for number, c in reversed(list(enumerate(space.candidates)))}
    for eps, first in ((90.0, 4), (80.0, 5)):
        designs = simulated(space, {fewest[4]: (eps, 200.0), fewest[5]: (110.0, 200.0)})
        designs = [d for d in designs if d.rounds]
        assert following(designs, space, Demand(target=100.0, by="hosts")).candidate.hosts == first


def test_a_short_simulation_counts_for_no_more_than_its_bound(spaces: Spaces) -> None:
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5], **FEW)
    designs = simulated(space, {0: (150.0, 100.0), 1: (120.0, 130.0)})[:2]
    assert following(designs, space, Demand()) is designs[1]
    designs[0].rounds = STAGES
    assert designs[0].eps == 150.0  # that one is as any prediction
    assert Searcher(space, Demand(), 1, NOBODY)._place(designs[0]) == (-150.0, 4.0)


@pytest.mark.parametrize(("likely", "first"), [(False, 5), (True, 4)])
def test_what_can_just_reach_the_target_does_not_surely_meet_it(
    likely: bool, first: int, spaces: Spaces
) -> None:
    """Whatever a short simulation says: the lower end of an interval is below the bound."""
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5], **FEW)
    fewest = {c.hosts: number for number, c in reversed(list(enumerate(space.candidates)))}
    designs = simulated(space, {fewest[4]: (130.0, 102.0), fewest[5]: (110.0, 200.0)})
    designs = [d for d in designs if d.rounds]
    wanted = Demand(target=100.0, by="hosts", likely=likely)
    assert following(designs, space, wanted).candidate.hosts == first


def test_it_ends_where_no_other_promises_more_and_says_what_was_left_out(spaces: Spaces) -> None:
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5, 6], **FEW)
    # one as any prediction, one that was simulated shortly, others with bounds alone
    for bound, left in ((104.0, 0), (150.0, len(space.candidates) - 2)):
        known = dict.fromkeys(range(len(space.candidates)), (0.0, bound))
        designs = simulated(space, known | {0: (110.0, 115.0), 1: (90.0, 200.0)})
        designs[0].rounds = STAGES
        search = Searcher(space, Demand(), 1, NOBODY)
        search._there = designs
        assert len(search._left_out()) == left
        assert all(d.bound == 150.0 for d in search._left_out())
        assert bool([d for d in search._next() if d.rounds == 0]) is bool(left)


def test_no_more_than_a_level_may_get_there(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = spaces("strategy=flat_ps", strategies="false", hosts=[4, 5, 6], **FEW)
    few = [rung._replace(most=most) for rung, most in zip(searching.RUNGS, (8, 5, 2), strict=True)]
    monkeypatch.setattr(searching, "RUNGS", few)
    search = Searcher(space, Demand(), 1, NOBODY)

    def bounded(designs: list[Design]) -> None:
        for design in designs:
            design.known = {"loops": 100.0}

    def simulated(designs: list[Design], stage: int) -> None:
        for design in designs:  # each falls at every level
            figure = 90.0 - 30.0 * stage
            design.row, design.rounds = Row(examples_per_second=figure), stage + 1

    monkeypatch.setattr(search, "_find_bounds", bounded)
    monkeypatch.setattr(search, "_simulate", simulated)
    found = search.run()
    assert len(space.candidates) > 8
    reached = [sum(d.rounds > stage for d in found.designs) for stage in range(STAGES)]
    assert reached == [8, 5, 2]
    assert found.left_out


def test_an_answer_by_bounds_is_labelled(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted before anything was simulated."""
    space = spaces("strategy=[flat_ps, allreduce]", hosts=[2, 3], **FEW)
    said: list[str] = []
    search = Searcher(space, Demand(), 1, Caller(said.append))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "_simulate", interrupted)
    found = search.run()
    assert said[0].startswith("by bounds alone, nothing simulated: ")
    answer = answer_of(found)
    assert answer.chosen.bound == max(d.bound for d in found.designs)
    assert "by its bound alone" in headline(answer)
    kept = answer_document(answer)
    assert kept["chosen"]["examples_per_second"] is None
    assert kept["evaluated"]["simulated"] == 0
    assert any("Nothing was simulated yet" in str(item) for item in document(answer).items)
    beyond = answer_of(replace(found, wanted=Demand(target=2 * answer.chosen.bound)))
    assert beyond.met is False  # which no bound allows
    assert answer_of(replace(found, wanted=Demand(target=1.0))).met is None


def test_an_interrupt_leaves_what_is_known(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    space = spaces("strategy=allreduce", strategies="false", hosts=[2, 3, 4], **FEW)
    search = Searcher(space, Demand(), 1, NOBODY)
    whole = search._simulate

    def interrupted(designs: list[Design], stage: int) -> None:
        if stage:
            raise KeyboardInterrupt
        whole(designs, stage)

    monkeypatch.setattr(search, "_simulate", interrupted)
    found: Found = search.run()
    assert found.stopped
    assert found.simulated
    assert answer_of(found).chosen.eps


def test_what_is_left_open_is_refined_about_the_best(spaces: Spaces) -> None:
    open_ends = {"strategies": "false", "hosts": [5]}
    coarse = spaces("strategy=allreduce", **open_ends)
    answer = searched(coarse, Demand())
    assert len(answer.found.designs) > len(coarse.candidates)
    assert {design.candidate.hosts for design in answer.found.designs} == {5}  # which is declared
    fine = spaces(
        "strategy=allreduce", **open_ends, embedding_hosts=[0, 1, 2, 3],
        trainers_per_host=[1, 2], servers_per_host=[1, 2],
    )  # fmt: skip
    best = searched(fine, Demand()).chosen.eps
    assert best is not None
    assert answer.chosen.eps is not None
    assert answer.chosen.eps >= 0.95 * best
