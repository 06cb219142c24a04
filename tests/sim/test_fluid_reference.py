"""The compiled solver against a slow one that is obviously right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.sim.engine import Engine, Steps
from recsim_train.sim.fluid.solver import Fluid, Resource
from recsim_train.sim.queues import Countdown
from tests.sim.fluids import advance, next_completion, rate_of

# ---------------------------------------------------------------- the reference


@dataclass(frozen=True)
class Flow:
    """One activity: resources by index with coefficients, and the rest by value."""

    uses: tuple[tuple[int, float], ...]
    cap: float
    weight: float
    work: float
    start: float
    paced: float = inf
    """A cap in units of the lowest pace of the resources."""


@dataclass(frozen=True)
class Change:
    """A resource's capacity or pace from some time on."""

    time: float
    resource: int
    what: str
    value: float


def fair_rates(capacities: list[float], flows: list[Flow]) -> list[float]:
    """Max-min fair rates, one flow and one resource at a time."""
    level: dict[int, float] = {}  # of those that have stopped
    while len(level) < len(flows):
        offers = {}
        for r, capacity in enumerate(capacities):
            pull = given_away = 0.0
            for n, flow in enumerate(flows):
                for q, c in flow.uses:
                    if q == r and n in level:
                        given_away += c * flow.weight * level[n]
                    elif q == r:
                        pull += c * flow.weight
            offers[r] = (capacity - given_away) / pull if pull else inf
        limits = {
            n: min([flow.cap / flow.weight, *(offers[r] for r, _ in flow.uses)])
            for n, flow in enumerate(flows)
            if n not in level
        }
        lowest = min(limits.values())
        level |= {n: lowest for n, limit in limits.items() if limit <= lowest * (1 + 1e-13)}
    return [level[n] * flow.weight for n, flow in enumerate(flows)]


def paced_flow(flow: Flow, paces: list[float]) -> Flow:
    """The flow with the cap that its resources' paces leave it."""
    return replace(flow, cap=min(flow.cap, flow.paced * min(paces[r] for r, _ in flow.uses)))


def completions(
    capacities: list[float], flows: list[Flow], changes: Sequence[Change] = ()
) -> list[float]:
    """When each flow is done."""
    state = {"capacity": list(capacities), "pace": [1.0] * len(capacities)}
    left = {n: flow.work for n, flow in enumerate(flows)}
    to_come = sorted(changes, key=lambda c: c.time)
    ends = [0.0] * len(flows)
    now = 0.0
    while left:
        while to_come and to_come[0].time <= now:
            change = to_come.pop(0)
            state[change.what][change.resource] = change.value
        running = [n for n in left if flows[n].start <= now]
        paced = [paced_flow(flows[n], state["pace"]) for n in running]
        rates = dict(zip(running, fair_rates(state["capacity"], paced), strict=True))
        dues = {n: now + left[n] / rates[n] if rates[n] else inf for n in running}
        coming = [flows[n].start for n in left if flows[n].start > now]
        coming += [c.time for c in to_come]
        then = min([*dues.values(), *coming])
        for n in running:
            left[n] -= rates[n] * (then - now)
            if dues[n] <= then * (1 + 1e-13):
                ends[n] = then
                del left[n]
        now = then
    return ends


# ---------------------------------------------------------------- instances

sizes = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0]) | st.floats(0.1, 10.0)
starts = st.sampled_from([0.0, 0.0, 0.5, 1.0]) | st.floats(0.0, 3.0)


@dataclass(frozen=True)
class Case:
    capacities: list[float]
    flows: list[Flow]


@st.composite
def racks(draw: st.DrawFn) -> Case:
    """Hosts in racks with narrow uplinks, transfers between them, and computations."""
    hosts, per_rack = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    nic, uplink, cores = draw(sizes), draw(sizes), draw(sizes)
    some = draw(sizes)  # a host with another NIC than the rest
    ups = [some, *[nic] * (hosts - 1)]
    count = -(-hosts // per_rack)
    # per host: send, receive, cores; then per rack: up, down
    capacities = [*ups, *ups, *[cores] * hosts, *[uplink] * (2 * count)]
    flows = []
    for _ in range(draw(st.integers(1, 10))):
        a, b = draw(st.integers(0, hosts - 1)), draw(st.integers(0, hosts - 1))
        if a == b:
            uses = [(2 * hosts + a, 1.0)]
        else:
            price = draw(st.sampled_from([0.0, 0.1, 1.0]))
            uses = [(a, 1.0), (hosts + b, 1.0)]
            if price:
                uses += [(2 * hosts + a, price), (2 * hosts + b, price)]
            if a // per_rack != b // per_rack:
                uses += [(3 * hosts + a // per_rack, 1.0)]
                uses += [(3 * hosts + count + b // per_rack, 1.0)]
        cap = draw(st.sampled_from([inf, inf, 1.0]) | sizes)
        flows.append(Flow(tuple(uses), cap, draw(sizes), draw(sizes), draw(starts)))
    return Case(capacities, flows)


def begin(case: Case) -> tuple[Fluid, list[Resource]]:
    fluid = Fluid()
    return fluid, [fluid.resource(f"r{n}", c) for n, c in enumerate(case.capacities)]


def start(fluid: Fluid, resources: list[Resource], flow: Flow, tag: int) -> None:
    cap = None if flow.cap == inf else flow.cap
    kind = fluid.kind([(resources[r], c) for r, c in flow.uses], cap, flow.weight, flow.paced)
    fluid.add(kind, flow.work, tag)


def ends_of(case: Case, changes: Sequence[Change] = ()) -> tuple[list[float], Fluid]:
    """When each flow is done, by the compiled solver."""
    fluid, resources = begin(case)
    ends = [0.0] * len(case.flows)

    def move_on(time: float) -> None:
        for tag in advance(fluid, time):
            assert isinstance(tag, int)
            ends[tag] = time

    def until(time: float) -> None:
        while (due := next_completion(fluid)) is not None and due <= time:
            move_on(due)

    steps: list[tuple[float, int | Change]] = [(c.time, c) for c in changes]
    steps += [(flow.start, n) for n, flow in enumerate(case.flows)]
    for time, step in sorted(steps, key=lambda s: s[0]):
        until(time)
        move_on(max(fluid.now, time))
        if isinstance(step, int):
            start(fluid, resources, case.flows[step], step)
        elif step.what == "capacity":
            fluid.set_capacity(resources[step.resource], step.value)
        else:
            fluid.set_pace(resources[step.resource], step.value)
    until(inf)
    return ends, fluid


# ---------------------------------------------------------------- laws


@given(racks())
@settings(max_examples=200)
def test_completions_are_those_of_the_reference(case: Case) -> None:
    ends, fluid = ends_of(case)
    assert ends == pytest.approx(completions(case.capacities, case.flows), rel=1e-9)
    for r, used in enumerate(fluid.used()):
        work = sum(c * flow.work for flow in case.flows for q, c in flow.uses if q == r)
        assert used == pytest.approx(work, rel=1e-9)
        assert used <= case.capacities[r] * fluid.now * (1 + 1e-9)


@pytest.mark.parametrize("length", [4, 15, 80])
def test_a_change_that_moves_every_link_of_a_chain(length: int) -> None:
    # flow n fills link n with what flow n - 1 leaves of it: each change moves all that follow
    flows = [Flow(((n, 1.0), (n + 1, 1.0)), inf, 1.0, 3.0 * (n + 1), 0.0) for n in range(length)]
    flows += [Flow(((0, 1.0),), inf, 1.0, 3.0, 0.0)]  # as slow as flow 0
    flows += [Flow(((0, 1.0),), inf, 0.02, 0.001 * (n + 1), 0.2 * n) for n in range(3)]
    case = Case([2.0, *(2.0 * n + 1.0 for n in range(1, length)), 1e9], flows)
    ends, _ = ends_of(case)
    assert ends == pytest.approx(completions(case.capacities, case.flows), rel=1e-9)


@st.composite
def changing(draw: st.DrawFn) -> tuple[Case, list[Change]]:
    """Capacities go down, to 0 as well, and up again; so do paces, up to twice the first one."""
    case = draw(racks())
    flows = [replace(f, paced=draw(st.sampled_from([inf, 0.5, 1.0]))) for f in case.flows]
    changes = []
    for _ in range(draw(st.integers(0, 8))):
        resource = draw(st.integers(0, len(case.capacities) - 1))
        time = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]) | st.floats(0.0, 20.0))
        if draw(st.booleans()):
            share = draw(st.sampled_from([0.0, 0.0, 0.5, 1.0]))
            changes.append(Change(time, resource, "capacity", share * case.capacities[resource]))
        else:
            changes.append(Change(time, resource, "pace", draw(st.sampled_from([0.2, 0.5, 2.0]))))
    changes.sort(key=lambda c: c.time)
    back = [Change(21.0, r, "capacity", c) for r, c in enumerate(case.capacities)]
    return Case(case.capacities, flows), changes + back


@given(changing())
@settings(max_examples=300)
def test_changing_capacities_and_paces_as_the_reference(
    found: tuple[Case, list[Change]],
) -> None:
    case, changes = found
    # pace 1 is what the reference starts from
    ones = [Change(0.0, r, "pace", 1.0) for r in range(len(case.capacities))]
    ends, fluid = ends_of(case, [*ones, *changes])
    assert ends == pytest.approx(completions(case.capacities, case.flows, changes), rel=1e-9)
    for r, used in enumerate(fluid.used()):
        work = sum(c * flow.work for flow in case.flows for q, c in flow.uses if q == r)
        assert used == pytest.approx(work, rel=1e-9)
        offered = fluid.resources[r].mean_capacity(0.0, fluid.now) * fluid.now
        assert used <= offered * (1 + 1e-9)


@given(racks())
@settings(max_examples=200)
def test_rates_use_what_there_is_and_nobody_gains_by_anothers_loss(case: Case) -> None:
    fluid, resources = begin(case)
    kinds = [
        fluid.kind(
            [(resources[r], c) for r, c in flow.uses],
            None if flow.cap == inf else flow.cap,
            flow.weight,
        )
        for flow in case.flows
    ]
    running = [fluid.add(k, f.work) for k, f in zip(kinds, case.flows, strict=True)]
    rates = [rate_of(fluid, activity) for activity in running]
    assert rates == pytest.approx(fair_rates(case.capacities, case.flows), rel=1e-9)
    load = [0.0] * len(case.capacities)
    for flow, rate in zip(case.flows, rates, strict=True):
        for r, c in flow.uses:
            load[r] += c * rate
    full = [x >= c * (1 - 1e-9) for x, c in zip(load, case.capacities, strict=True)]
    assert all(x <= c * (1 + 1e-9) for x, c in zip(load, case.capacities, strict=True))
    highest = [
        max((w / f.weight for f, w in zip(case.flows, rates, strict=True) if r in dict(f.uses)))
        if load[r]
        else 0.0
        for r in range(len(load))
    ]
    for flow, rate in zip(case.flows, rates, strict=True):
        at_cap = rate >= flow.cap * (1 - 1e-9)
        held = any(full[r] and rate / flow.weight >= highest[r] * (1 - 1e-9) for r, _ in flow.uses)
        assert at_cap or held


@given(racks())
@settings(max_examples=50)
def test_equal_calls_give_equal_bits(case: Case) -> None:
    (first, one), (second, other) = ends_of(case), ends_of(case)
    assert first == second
    assert one.used() == other.used()


@given(racks(), st.floats(0.01, 3.0), st.integers(0, 9))
@settings(max_examples=100)
def test_removing_one_is_as_if_it_had_less_work(case: Case, when: float, which: int) -> None:
    flows = [Flow(f.uses, f.cap, f.weight, f.work, 0.0) for f in case.flows]
    which %= len(flows)
    fluid, resources = begin(case)
    running = []
    for n, flow in enumerate(flows):
        cap = None if flow.cap == inf else flow.cap
        kind = fluid.kind([(resources[r], c) for r, c in flow.uses], cap, flow.weight)
        running.append(fluid.add(kind, flow.work, n))
    ends: dict[object, float] = {}
    while (due := next_completion(fluid)) is not None and due <= when:
        ends |= dict.fromkeys(advance(fluid, due), due)
    ends |= dict.fromkeys(advance(fluid, when), when)  # an end in this very instant
    if which in ends:
        with pytest.raises(ValueError, match="not running"):
            fluid.remove(running[which])
    else:
        left = fluid.remove(running[which])
        old = flows[which]
        assert 0.0 < left < old.work
        flows[which] = Flow(old.uses, old.cap, old.weight, old.work - left, 0.0)
        ends[which] = when
    while (due := next_completion(fluid)) is not None:
        ends |= dict.fromkeys(advance(fluid, due), due)
    wanted = completions(case.capacities, flows)
    assert [ends[n] for n in range(len(flows))] == pytest.approx(wanted, rel=1e-9)


# ---------------------------------------------------------------- flows side by side


@dataclass(frozen=True)
class Volley:
    """Flows from one near end to all far ends; or, with one work, a flow to one far end only."""

    near: int
    works: tuple[float, ...]
    only: int
    cap: float
    weight: float
    start: float


@st.composite
def volleys(draw: st.DrawFn) -> tuple[list[float], list[float], list[Volley]]:
    """(near capacities, far capacities, what starts)"""
    near = draw(st.lists(sizes, min_size=1, max_size=4))
    pair = draw(st.tuples(sizes, sizes))
    far = draw(st.lists(st.sampled_from([pair[0], pair[0], pair[1]]), min_size=2, max_size=5))
    some = []
    for _ in range(draw(st.integers(1, 6))):
        same = draw(st.booleans()) or draw(st.booleans())
        work = draw(sizes)
        works = (work,) * len(far) if same else tuple(draw(sizes) for _ in far)
        only = draw(st.sampled_from([-1, -1, -1, 0, 1]))
        place = draw(st.integers(0, len(near) - 1))
        cap = draw(st.sampled_from([inf, inf, 0.3]))
        some.append(Volley(place, works, only, cap, draw(sizes), draw(starts)))
    return near, far, sorted(some, key=lambda v: v.start)


@given(volleys())
@settings(max_examples=200)
def test_flows_side_by_side_end_as_if_each_were_alone(
    case: tuple[list[float], list[float], list[Volley]],
) -> None:
    near, far, some = case
    engine = Engine()
    fluid = engine.fluid
    nears = [fluid.resource(f"near{n}", c) for n, c in enumerate(near)]
    fars = [fluid.resource(f"far{n}", c) for n, c in enumerate(far)]
    done = [0.0] * len(some)

    def send(n: int, volley: Volley) -> Steps:
        yield engine.timeout(volley.start)
        cap = None if volley.cap == inf else volley.cap
        ends = fars if volley.only < 0 else [fars[volley.only]]
        left = Countdown(engine, len(ends))
        for far_end, work in zip(ends, volley.works, strict=False):
            uses = ((nears[volley.near], 1.0), (far_end, 1.0))
            flow = engine.activity(fluid.kind(uses, cap, volley.weight), work)
            flow.callbacks.append(left.arrive)
        yield left.done
        done[n] = engine.now

    for n, volley in enumerate(some):
        engine.process(send(n, volley))
    engine.run()
    flows, owner = [], []
    for n, v in enumerate(some):
        for place in range(len(far)) if v.only < 0 else [v.only]:
            work = v.works[place] if v.only < 0 else v.works[0]
            uses = ((v.near, 1.0), (len(near) + place, 1.0))
            flows.append(Flow(uses, v.cap, v.weight, work, v.start))
            owner.append(n)
    wanted = [0.0] * len(some)
    for n, end in zip(owner, completions(near + far, flows), strict=True):
        wanted[n] = max(wanted[n], end)
    assert done == pytest.approx(wanted, rel=1e-9)
    assert fluid.added == len(flows)
    for r, used in enumerate(fluid.used()):
        work = sum(f.work for f in flows if r in dict(f.uses))
        assert used == pytest.approx(work, rel=1e-9)


def test_equal_ends_are_equally_used_until_one_is_used_besides() -> None:
    engine = Engine()
    fluid = engine.fluid
    near, fars = fluid.resource("near", 1.0), [fluid.resource(f"far{n}", 1.0) for n in range(9)]
    for far in fars:
        engine.activity(fluid.kind([(near, 1.0), (far, 1.0)]), 2.0)
    assert advance(fluid, 9.0) == []
    assert fluid.used() == pytest.approx([9.0, *[1.0] * 9])
    fluid.kind([(fars[4], 1.0)])
    assert next_completion(fluid) == pytest.approx(18.0)
    assert fluid.used() == pytest.approx([9.0, *[1.0] * 9])


def test_no_capacity_no_progress_until_it_is_back() -> None:
    fluid = Fluid()
    link, core = fluid.resource("link", 2.0), fluid.resource("core", 4.0, pace=1.0)
    fluid.add(fluid.kind([(link, 1.0)]), 6.0, "flow")
    fluid.add(fluid.kind([(core, 1.0)], paced=1.0), 3.0, "work")
    advance(fluid, 1.0)
    fluid.set_capacity(link, 0.0)
    fluid.set_pace(core, 0.25)
    assert next_completion(fluid) == pytest.approx(9.0)  # 2 of 3 are left, at a quarter
    assert advance(fluid, 9.0) == ["work"]
    assert next_completion(fluid) is None
    assert not fluid.idle
    advance(fluid, 11.0)
    fluid.set_capacity(link, 1.0)
    assert next_completion(fluid) == pytest.approx(15.0)
    assert advance(fluid, 15.0) == ["flow"]
    assert fluid.idle
    assert link.mean_capacity(0.0, 15.0) == pytest.approx((2.0 + 4.0) / 15)
    assert link.mean_capacity(5.0, 12.0) == pytest.approx(1 / 7)
    with pytest.raises(ValueError, match="must lie between 0 and 2"):
        fluid.set_capacity(link, 2.5)
    with pytest.raises(ValueError, match="pace of core must be positive"):
        fluid.set_pace(core, 0.0)


def test_an_end_that_changes_is_slower_than_its_equals() -> None:
    fluid = Fluid()
    fars = [fluid.resource(f"far{n}", 1.0) for n in range(3)]
    near = fluid.resource("near", 9.0)
    for n, far in enumerate(fars):
        fluid.start(fluid.kind([(near, 1.0), (far, 1.0)]), 2.0, n)
    advance(fluid, 1.0)
    fluid.set_capacity(fars[1], 0.5)
    assert next_completion(fluid) == pytest.approx(2.0)
    assert advance(fluid, 2.5) == [0, 2]
    assert fluid.used() == pytest.approx([2.0, 1.75, 2.0, 5.75])
    assert advance(fluid, 3.0) == [1]


def test_what_comes_from_outside_keeps_no_run_alive() -> None:
    engine = Engine()
    link = engine.fluid.resource("link", 1.0)
    ends: list[float] = []

    def outside() -> None:
        engine.fluid.set_capacity(link, 1.0 - link.mean_capacity(engine.now, engine.now + 1.0))
        engine.meanwhile(1.0, outside)

    def send() -> Steps:
        yield engine.activity(engine.fluid.kind([(link, 1.0)]), 2.5)
        ends.append(engine.now)

    engine.meanwhile(1.0, outside)
    engine.process(send())
    engine.run()
    assert ends == [pytest.approx(4.5)]  # it stands still from 1 to 2 and from 3 to 4
    assert engine.now == pytest.approx(4.5)
