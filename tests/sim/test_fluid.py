"""Max-min fairness: laws that hold for every input, and an obviously right reference."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.sim.fluid import layout as lay
from recsim_train.sim.fluid.solver import Activity, Fluid, Resource
from tests.sim.fluids import advance, next_completion, rate_of


@dataclass(frozen=True)
class Case:
    capacities: tuple[float, ...]
    activities: tuple[tuple[tuple[tuple[int, float], ...], float | None, float, float, float], ...]
    """(uses, cap, weight, work, start)"""


sizes = st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 7.0, 10.0]) | st.floats(0.01, 100.0)


@st.composite
def cases(draw: st.DrawFn, *, starts: bool = True) -> Case:
    capacities = tuple(draw(st.lists(sizes, min_size=1, max_size=5)))
    resource = st.integers(0, len(capacities) - 1)
    uses = st.lists(st.tuples(resource, sizes), min_size=1, max_size=3, unique_by=lambda u: u[0])
    start = st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.25]) if starts else st.just(0.0)
    activity = st.tuples(uses.map(tuple), st.none() | sizes, sizes, sizes, start)
    some = draw(st.lists(activity, min_size=1, max_size=8))
    copies = draw(st.lists(st.sampled_from(some), max_size=4))
    return Case(capacities, tuple(some + copies))


def start_all(case: Case) -> tuple[Fluid, list[Resource], list[Activity]]:
    fluid = Fluid()
    resources = [fluid.resource(f"r{i}", c) for i, c in enumerate(case.capacities)]
    running = [
        fluid.add(fluid.kind([(resources[r], c) for r, c in uses], cap, weight), work, tag)
        for tag, (uses, cap, weight, work, _) in enumerate(case.activities)
    ]
    return fluid, resources, running


def reference(case: Case, alive: list[int]) -> dict[int, float]:
    """Progressive filling, one activity at a time, without any cleverness."""
    rates = dict.fromkeys(alive, 0.0)
    rising = list(alive)
    level = 0.0
    while rising:
        limits = {}
        for a in rising:
            uses, cap, weight, _, _ = case.activities[a]
            limits[a] = float("inf") if cap is None else cap / weight
            for r, _ in uses:
                frozen = pull = 0.0
                for b in alive:
                    for q, c in case.activities[b][0]:
                        if q == r and b in rising:
                            pull += c * case.activities[b][2]
                        elif q == r:
                            frozen += c * rates[b]
                limits[a] = min(limits[a], max(level, (case.capacities[r] - frozen) / pull))
        level = min(limits.values())
        stopped = [a for a in rising if limits[a] <= level * (1 + 1e-12)]
        for a in stopped:
            rates[a] = level * case.activities[a][2]
        rising = [a for a in rising if a not in stopped]
    return rates


@given(cases(starts=False))
@settings(max_examples=150)
def test_rates_equal_the_reference_and_are_max_min_fair(case: Case) -> None:
    fluid, resources, running = start_all(case)
    rates = [rate_of(fluid, a) for a in running]
    expected = reference(case, list(range(len(running))))
    assert rates == pytest.approx([expected[i] for i in range(len(rates))], rel=1e-6)
    load = [0.0] * len(resources)
    for (uses, *_), rate in zip(case.activities, rates, strict=True):
        for r, c in uses:
            load[r] += c * rate
    assert all(x <= c * (1 + 1e-6) for x, c in zip(load, case.capacities, strict=True))
    # certificate: at its cap, or on a full resource where nobody has more per weight
    for i, (uses, cap, weight, _, _) in enumerate(case.activities):
        at_cap = cap is not None and rates[i] >= cap * (1 - 1e-6)
        held = any(
            load[r] >= case.capacities[r] * (1 - 1e-6)
            and all(
                rates[j] / other[2] <= rates[i] / weight * (1 + 1e-6)
                for j, other in enumerate(case.activities)
                if r in dict(other[0])
            )
            for r, _ in uses
        )
        assert at_cap or held


def run_case(case: Case) -> tuple[list[tuple[float, int]], Fluid]:
    """(completion, activity) in order, through the public interface."""
    fluid = Fluid()
    resources = [fluid.resource(f"r{i}", c) for i, c in enumerate(case.capacities)]
    ends: list[tuple[float, int]] = []

    def move_on(time: float) -> None:
        while (due := next_completion(fluid)) is not None and due <= time:
            ends.extend((due, int(str(tag))) for tag in advance(fluid, due))
        ends.extend((time, int(str(tag))) for tag in advance(fluid, max(time, fluid.now)))

    starting = sorted(range(len(case.activities)), key=lambda i: case.activities[i][4])
    for i in starting:
        uses, cap, weight, work, start = case.activities[i]
        move_on(start)
        fluid.add(fluid.kind([(resources[r], c) for r, c in uses], cap, weight), work, i)
    while (due := next_completion(fluid)) is not None:
        ends.extend((due, int(str(tag))) for tag in advance(fluid, due))
    return ends, fluid


def slow_run(case: Case) -> dict[int, float]:
    """Completion of each activity: the reference's rates, from event to event."""
    left = {i: a[3] for i, a in enumerate(case.activities)}
    starts = {i: a[4] for i, a in enumerate(case.activities)}
    now, ends = 0.0, {}
    while left:
        alive = [i for i in left if starts[i] <= now]
        rates = reference(case, alive)
        coming = [starts[i] for i in left if starts[i] > now]
        finishing = [now + left[i] / rates[i] for i in alive]
        then = min(coming + finishing)
        for i in alive:
            left[i] -= rates[i] * (then - now)
            if left[i] <= 1e-9 * case.activities[i][3]:
                ends[i] = then
                del left[i]
        now = then
    return ends


@given(cases())
@settings(max_examples=200)
def test_completions_equal_the_reference(case: Case) -> None:
    ends, fluid = run_case(case)
    expected = slow_run(case)
    assert sorted(i for _, i in ends) == sorted(expected)
    for time, i in ends:
        assert time == pytest.approx(expected[i], rel=1e-6)
    # work is conserved: each activity has consumed exactly its share of each resource
    for resource, used in zip(fluid.resources, fluid.used(), strict=True):
        wanted = sum(
            c * work
            for uses, _, _, work, _ in case.activities
            for r, c in uses
            if r == resource.index
        )
        assert used == pytest.approx(wanted, rel=1e-9)
        assert used <= resource.capacity * fluid.now * (1 + 1e-6)


@given(cases())
@settings(max_examples=50)
def test_equal_calls_give_equal_bits(case: Case) -> None:
    first, second = run_case(case), run_case(case)
    assert first[0] == second[0]
    assert first[1].used() == second[1].used()


def test_flows_that_start_together_cost_one_solve() -> None:
    fluid = Fluid()
    link = fluid.resource("link", 100.0)
    kind = fluid.kind([(link, 1.0)])
    for tag in range(100):
        fluid.add(kind, 5.0, tag)
    assert next_completion(fluid) == pytest.approx(5.0)
    assert fluid.solves == 1
    assert advance(fluid, 5.0) == list(range(100))
    assert next_completion(fluid) is None


def test_only_the_touched_component_is_solved() -> None:
    fluid = Fluid()
    left, right = fluid.resource("left", 1.0), fluid.resource("right", 1.0)
    near, far = fluid.kind([(left, 1.0)], weight=1.0), fluid.kind([(right, 1.0)], weight=2.0)
    fluid.add(near, 1.0)
    watched = [fluid.add(far, 1.0), fluid.add(far, 1.0)]
    assert rate_of(fluid, watched[0]) == 0.5
    before = fluid.block.ints[far.address + lay.K_FROZEN]
    fluid.add(near, 1.0)
    assert next_completion(fluid) == 2.0
    assert fluid.block.ints[near.address + lay.K_FROZEN] > before
    assert fluid.block.ints[far.address + lay.K_FROZEN] == before


def test_removing_gives_back_what_was_left_and_the_capacity() -> None:
    fluid = Fluid()
    link = fluid.resource("link", 2.0)
    kind = fluid.kind([(link, 1.0)])
    stays, goes = fluid.add(kind, 4.0, "stays"), fluid.add(kind, 4.0, "goes")
    advance(fluid, 1.0)
    assert fluid.remove(goes) == pytest.approx(3.0)
    assert rate_of(fluid, stays) == 2.0
    assert next_completion(fluid) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="not running"):
        fluid.remove(goes)


def test_nonsense_is_refused() -> None:
    fluid = Fluid()
    link = fluid.resource("link", 1.0)
    with pytest.raises(ValueError, match="capacity"):
        fluid.resource("nothing", 0.0)
    with pytest.raises(ValueError, match="negative use"):
        fluid.kind([(link, -1.0)])
    with pytest.raises(ValueError, match="needs a positive"):
        fluid.kind([(link, 0.0)])
    with pytest.raises(ValueError, match="work"):
        fluid.add(fluid.kind([(link, 1.0)]), 0.0)


def test_long_runs_do_not_lose_digits() -> None:
    fluid = Fluid()
    link = fluid.resource("link", 3.0)
    kinds = [fluid.kind([(link, 1.0)], cap=1.0), fluid.kind([(link, 0.7)], cap=2.0)]
    total = 0.0
    for turn, kind in zip(range(5000), itertools.cycle(kinds)):
        fluid.add(kind, 1.0 + turn % 7)
        total += (1.0 + turn % 7) * kind.uses[0][1]
        if turn >= 6:
            due = next_completion(fluid)
            assert due is not None
            advance(fluid, due)
    while (due := next_completion(fluid)) is not None:
        advance(fluid, due)
    assert fluid.used()[0] == pytest.approx(total, rel=1e-9)
    assert fluid.block.floats[link.address + lay.R_DEMAND] == 0.0
