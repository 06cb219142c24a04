"""Threads stay on cores: laws, examples by hand, and what groups that meet pay for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.solver import Kind, Resource
from recsim_train.sim.host import cores as cores_module
from recsim_train.sim.host.cores import Cores
from recsim_train.trace.record import Outcome
from tests.sim.fluids import rate_of

TURN = 4e-3


class Machine:
    """Cores on which a thread works at most at rate 1."""

    def __init__(self, count: int) -> None:
        self.engine = Engine()
        self.together = self.engine.fluid.resource("machine.cores", float(count), pace=1.0)
        self.cores = Cores(self.engine, count, self.together, TURN, seed=3)
        self.starts: list[tuple[str, str]] = []
        """(thread, core) whenever one starts or goes on."""

    def _on(self, core: Resource) -> Kind:
        return self.engine.fluid.kind([(self.together, 1.0), (core, 1.0)], paced=1.0)

    def work(self, thread: str, seconds: float, **how: Any) -> Event:
        def on(core: Resource) -> Kind:
            self.starts.append((thread, core.name))
            return self._on(core)

        return self.cores.run(thread, on, seconds, **how)

    def start(self, steps: Iterator[Event]) -> None:
        self.engine.process(steps)  # type: ignore[arg-type]


Pieces = list[tuple[float, float]]
"""By piece of a thread's work: seconds of sleep before it, seconds that it takes alone."""


def ends(threads: list[Pieces], count: int, look: Callable[[Machine], None] | None) -> list[float]:
    """When the threads are through; ``look``: at the machine, every half millisecond."""
    machine = Machine(count)
    found = [0.0] * len(threads)

    def live(number: int, pieces: Pieces) -> Iterator[Event]:
        for sleep, seconds in pieces:
            if sleep:
                yield machine.engine.timeout(sleep)
            yield machine.work(f"thread {number}", seconds)
        found[number] = machine.engine.now

    def again() -> None:
        assert look is not None
        look(machine)
        machine.engine.meanwhile(5e-4, again)

    for number, pieces in enumerate(threads):
        machine.start(live(number, pieces))
    if look is not None:
        machine.engine.meanwhile(2.4142e-4, again)  # not as anything ends
    machine.engine.run()
    whole = sum(seconds for pieces in threads for _, seconds in pieces)
    assert machine.engine.fluid.used()[0] == pytest.approx(whole)
    return found


SLEEPS = st.sampled_from([0.0, 0.0, 1e-3, 3e-3, 7.3e-3])
WORKS = st.floats(1e-4, 2e-2)
THREADS = st.lists(st.lists(st.tuples(SLEEPS, WORKS), min_size=1, max_size=4), max_size=9)


@given(THREADS, st.integers(1, 4))
def test_what_is_busy_works_and_two_threads_leave_a_full_core_at_the_next_turn(
    threads: list[Pieces], count: int
) -> None:
    looked, even = 0, 0.0

    def look(machine: Machine) -> None:
        nonlocal looked, even
        loads = [core.load for core in machine.cores._cores]
        working = [core.running for core in machine.cores._cores if core.running is not None]
        rates = [rate_of(machine.engine.fluid, w.activity) for w in working if w.activity]
        assert sum(rates) == pytest.approx(sum(load > 0 for load in loads))
        if max(loads) < min(loads) + 2:
            even = machine.engine.now
        # looked at every half millisecond; it may be another two cores a turn later
        assert machine.engine.now - even <= 3 * TURN
        looked += 1

    found = ends(threads, count, look)
    assert looked > 0 or sum(sum(map(sum, pieces)) for pieces in threads) < 5e-4
    assert found == ends(threads, count, None)  # whoever looks changes nothing
    for end, pieces in zip(found, threads, strict=True):
        assert end >= sum(map(sum, pieces)) * (1.0 - 1e-9)


@given(st.lists(st.tuples(SLEEPS, WORKS), min_size=1, max_size=4), st.integers(1, 4))
def test_one_thread_goes_at_its_own_pace(pieces: Pieces, count: int) -> None:
    assert ends([pieces], count, None) == [pytest.approx(sum(map(sum, pieces)))]


@pytest.mark.parametrize(
    ("beside", "through"),
    [
        (0.0, [21.0, 21.0]),
        # the third has a core for all its work: whoever wants that core ends so much later, where
        # equal shares of both cores would end both by half of it later
        (4.0, [25.0, 21.0]),
        # at 21 ms a core is free, and 3 ms later takes the third with the 4 ms that it has left
        (16.0, [33.0, 21.0]),
    ],
)
@pytest.mark.usefixtures("unpulled")
def test_a_third_thread_slows_one_of_two(beside: float, through: list[float]) -> None:
    threads: list[Pieces] = [[(0.0, 21e-3)], [(0.0, 21e-3)]]
    if beside:
        threads.append([(0.0, beside * 1e-3)])
    assert ends(threads, 2, None)[:2] == pytest.approx([t * 1e-3 for t in through])


def test_whoever_goes_on_at_once_keeps_its_core() -> None:
    """At 10 ms the first goes on, the second ends, and the third comes: to the free core."""
    first: Pieces = [(0.0, 10e-3), (0.0, 10e-3)]
    found = ends([first, [(0.0, 10e-3)], [(10e-3, 5e-3)]], 2, None)
    assert found == pytest.approx([20e-3, 10e-3, 15e-3])


def test_on_a_nearly_full_machine_whoever_wakes_goes_where_it_ran() -> None:
    """For 200 ms both cores are busy. Then the first sleeps for 3 ms, and the third wakes on the
    second's core, where it ran before, and takes it, though the first's core is free."""
    first: Pieces = [(0.0, 200e-3), (3e-3, 10e-3)]
    second: Pieces = [(0.0, 1e-3), (0.0, 220e-3)]
    third: Pieces = [(1e-4, 1e-3), (200e-3, 1e-3)]
    found = ends([second, first, third], 2, None)
    assert found[1] == pytest.approx(213e-3)
    assert found[0] == pytest.approx(221e-3 + 2e-3)  # it lost its core to the third twice


@pytest.mark.usefixtures("untaken")
def test_whoever_goes_on_at_once_is_not_behind_who_waits() -> None:
    """On one core, for ten pieces without a pause: the second waits until the first sleeps."""
    machine = Machine(1)
    ends_at: dict[str, float] = {}

    def live(name: str, begins: float, pieces: int) -> Iterator[Event]:
        yield machine.engine.timeout(begins)
        for _ in range(pieces):
            yield machine.work(name, 0.1e-3)
        ends_at[name] = machine.engine.now

    machine.start(live("first", 0.0, 10))
    machine.start(live("second", 0.05e-3, 1))
    machine.engine.run()
    assert ends_at == pytest.approx({"first": 1e-3, "second": 1.1e-3})


def takes(threads: list[str]) -> dict[str, list[bool]]:
    """By thread: whether it takes the only core each time that it is woken, in turn with the other
    ones; the first thread has had the core for long then."""
    machine = Machine(1)
    took: dict[str, list[bool]] = {name: [] for name in threads}

    def first() -> Iterator[Event]:
        for _ in range(100):
            yield machine.work("a/loop/x", 2e-3)
            yield machine.engine.timeout(12e-3 - (machine.engine.now - 0.5e-3) % 12e-3)

    def woken(name: str, number: int) -> Iterator[Event]:
        for turn in range(50):
            wakes = (2 * turn + number) * 12e-3 + 1.4e-3
            yield machine.engine.timeout(wakes - machine.engine.now)
            yield machine.work(name, 1e-4)
            took[name].append(machine.engine.now - wakes < 1.1e-4)

    machine.engine.later(0.5e-3, lambda: machine.start(first()))
    for number, name in enumerate(threads):
        machine.start(woken(name, number))
    machine.engine.run()
    return took


def test_what_a_thread_draws_is_its_own() -> None:
    """What ifs compare like with like: another thread changes nothing of what this one takes."""
    alone = takes(["b/loop/y"])
    both = takes(["b/loop/y", "c/loop/z"])
    assert 0 < sum(alone["b/loop/y"]) < 50
    assert both["b/loop/y"] == alone["b/loop/y"] != both["c/loop/z"]


def test_on_a_machine_that_is_not_full_whoever_wakes_looks_for_a_free_core() -> None:
    """The second ran on the core where the third works since; the first's is free by then."""
    first: Pieces = [(0.0, 2e-3)]
    second: Pieces = [(0.0, 1e-3), (100e-3, 5e-3)]
    third: Pieces = [(2e-3, 1e-3), (50e-3, 100e-3)]
    found = ends([first, second, third], 2, None)
    assert found == pytest.approx([2e-3, 106e-3, 153e-3], abs=1.1e-3)


@pytest.mark.parametrize(("after", "share"), [(0.15e-3, 0.56), (0.25e-3, 0.86), (0.9e-3, 0.86)])
def test_who_wakes_takes_the_core_by_a_chance(after: float, share: float) -> None:
    """One core: the second wakes when the first has just come, and later. Between two turns of
    4 ms, so that none of them decides."""
    machine, took = Machine(1), []

    def first() -> Iterator[Event]:
        for _ in range(400):
            yield machine.work("a/loop/x", 2e-3)
            yield machine.engine.timeout(12e-3 - (machine.engine.now - 0.5e-3) % 12e-3)

    def second() -> Iterator[Event]:
        for _ in range(400):
            woken = machine.engine.now
            yield machine.work("b/loop/y", 1e-4)
            took.append(machine.engine.now - woken < 1.1e-4)
            yield machine.engine.timeout(12e-3 - (machine.engine.now - 0.5e-3 - after) % 12e-3)

    machine.engine.later(0.5e-3, lambda: machine.start(first()))
    machine.engine.later(0.5e-3 + after, lambda: machine.start(second()))
    machine.engine.run()
    assert sum(took) / len(took) == pytest.approx(share, abs=0.07)


@pytest.mark.parametrize(
    ("waker", "end"), [("a/loop", 12.5e-3), ("", 11.5e-3), ("b/loop", 11.5e-3)]
)
@pytest.mark.usefixtures("unpulled", "untaken")
def test_the_core_of_whoever_sent_a_message_is_not_free(waker: str, end: float) -> None:
    """The server's last core has the second loop on it. The first one asks and leaves its own,
    which the server gets at the scheduler's next turn, at 12 ms; had somebody else woken it, it
    would have gone there at once."""
    machine, found = Machine(2), []

    def first() -> Iterator[Event]:
        yield machine.work("a/loop/x", 1e-3)
        yield machine.engine.timeout(9e-3)
        yield machine.work("a/loop/x", 1e-3)
        yield machine.work("s/server/a", 0.5e-3, waker=waker)
        found.append(machine.engine.now)

    def second() -> Iterator[Event]:
        yield machine.work("s/server/a", 0.5e-3)
        yield machine.engine.timeout(9.5e-3)
        yield machine.work("b/loop/y", 5e-3)

    machine.start(first())
    machine.start(second())
    machine.engine.run()
    assert found == [pytest.approx(end)]
    assert machine.starts[-1] == ("s/server/a", "machine.cores[0]")


def test_who_is_woken_from_its_own_core_goes_to_a_free_one() -> None:
    """Its last core is that of whoever sent the message, who is still at work there."""
    machine = Machine(2)

    def steps() -> Iterator[Event]:
        yield machine.work("s/server/a", 1e-3)
        yield machine.work("a/loop/x", 1e-3)
        yield machine.engine.timeout(20e-3)
        yield machine.work("a/loop/x", 1e-3)
        yield machine.work("s/server/a", 1e-3, waker="a/loop")

    machine.start(steps())
    machine.engine.run()
    first, second = "machine.cores[0]", "machine.cores[1]"
    assert [core for _, core in machine.starts] == [first, first, first, second]


@pytest.fixture
def untaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is woken takes the core from nobody."""
    monkeypatch.setattr(cores_module, "_TAKES", (0.0, 0.0))


@pytest.fixture
def unpulled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that becomes free takes nobody."""
    monkeypatch.setattr(cores_module, "_PULLS", (0.0, 0.0))


@pytest.mark.usefixtures("untaken")
@pytest.mark.parametrize(
    ("slept", "share"),
    [(0.2e-3, 0.05), (1.5e-3, 0.33)],
)
def test_a_core_that_becomes_free_takes_who_waits_by_a_chance(slept: float, share: float) -> None:
    """In each of 400 cycles of three turns the first leaves its core for a moment, in which a new
    thread works there; that one is woken again behind it, and 0.2 ms later the second leaves the
    other core."""
    machine, cycle, cycles = Machine(2), 3 * TURN, 400
    leaves = 0.85e-3 + slept

    def until(when: float) -> Event:
        return machine.engine.timeout(when - machine.engine.now)

    def first() -> Iterator[Event]:
        for k in range(cycles):
            yield machine.work("a/loop/x", k * cycle + 0.3e-3 - machine.engine.now)
            yield until(k * cycle + 0.7e-3)

    def second() -> Iterator[Event]:
        yield machine.engine.timeout(1e-6)
        for k in range(cycles):
            yield machine.work("b/loop/y", k * cycle + leaves - machine.engine.now)
            yield until(k * cycle + leaves + 0.3e-3)

    def third() -> Iterator[Event]:
        for k in range(cycles):
            yield until(k * cycle + 0.55e-3)
            yield machine.work(f"c/loop/{k}", 0.1e-3)
            yield machine.engine.timeout(slept)
            yield machine.work(f"c/loop/{k}", 0.1e-3)

    for steps in (first(), second(), third()):
        machine.start(steps)
    machine.engine.run()
    places: dict[str, list[str]] = {}
    for thread, core in machine.starts:
        if thread.startswith("c/"):
            places.setdefault(thread, []).append(core)
    assert len(places) == cycles
    assert {seen[0] for seen in places.values()} == {"machine.cores[0]"}
    pulled = sum(seen[1] == "machine.cores[1]" for seen in places.values())
    assert pulled / cycles == pytest.approx(share, abs=0.05)


@pytest.mark.usefixtures("unpulled", "untaken")
@pytest.mark.parametrize(("slept", "end"), [(0.2e-3, 9e-3), (1.2e-3, 5e-3)])
def test_a_turn_moves_nobody_whose_data_are_in_the_caches(slept: float, end: float) -> None:
    """At 3.75 ms the second is woken again, behind the first, and at 3.8 ms the other core becomes
    free. At the turn at 4 ms it goes there if it has slept for long, else at the next one."""
    machine, found = Machine(2), []
    before = 3.7e-3 - slept

    def first() -> Iterator[Event]:
        yield machine.work("a/loop/x", before - 0.1e-3)
        yield machine.engine.timeout(0.2e-3)
        yield machine.work("a/loop/x", 20e-3)

    def second() -> Iterator[Event]:
        yield machine.engine.timeout(before)
        yield machine.work("c/loop/z", 0.05e-3)
        yield machine.engine.timeout(slept)
        yield machine.work("c/loop/z", 1e-3)
        found.append(machine.engine.now)

    def other() -> Iterator[Event]:
        yield machine.engine.timeout(1e-6)
        yield machine.work("b/loop/y", 3.8e-3)

    for steps in (first(), other(), second()):
        machine.start(steps)
    machine.engine.run()
    assert found == [pytest.approx(end)]


@pytest.mark.usefixtures("unpulled", "untaken")
def test_a_turn_moves_the_one_whose_data_are_not_in_the_caches() -> None:
    """Two wait behind the first at 4 ms, when the other core is free: one that has slept since 0.05
    ms, and one since 3.6 ms, which came last. That one goes at the next turn."""
    machine, found = Machine(2), {}

    def first() -> Iterator[Event]:
        yield machine.engine.timeout(0.06e-3)
        yield machine.work("a/loop/x", 3.44e-3)
        yield machine.engine.timeout(0.18e-3)
        yield machine.work("a/loop/x", 20e-3)

    def other() -> Iterator[Event]:
        yield machine.engine.timeout(1e-6)
        yield machine.work("b/loop/y", 3.8e-3)

    def waiter(name: str, begins: float, wakes: float, seconds: float) -> Iterator[Event]:
        yield machine.engine.timeout(begins)
        yield machine.work(name, 0.05e-3)
        yield machine.engine.timeout(wakes - machine.engine.now)
        yield machine.work(name, seconds)
        found[name] = machine.engine.now

    cold = waiter("c/loop/cold", 0.0, 3.7e-3, 1e-3)
    warm = waiter("c/loop/warm", 3.55e-3, 3.72e-3, 0.2e-3)
    for steps in (cold, first(), other(), warm):
        machine.start(steps)
    machine.engine.run()
    assert found == pytest.approx({"c/loop/cold": 5e-3, "c/loop/warm": 8.2e-3})


def test_whoever_waits_has_its_turn() -> None:
    """One core, two threads of 10 ms: each has it for a turn of 4 ms."""
    assert ends([[(0.0, 10e-3)], [(0.0, 10e-3)]], 1, None) == pytest.approx([18e-3, 20e-3])


def test_members_who_meet_wait_for_the_one_whose_core_is_shared(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[[Plan, Cluster], Outcome],
) -> None:
    """Three trainers that meet, on two cores: one of them has a core of its own, and waits."""
    training = {"steps": 12, "warmup_steps": 4, "batch_size": 512}
    plan = plans("allreduce", roles={"trainers": 3}, training=training)
    here = outcome_of(plan, clusters(cores=2, colocate=True))
    assert here.facts.ledger is not None
    assert here.facts.ledger.cores_busy < 1.9
    own = outcome_of(plan, clusters(cores=3, colocate=True))
    assert own.facts.ledger is not None
    assert own.facts.ledger.cores_busy > max(2.1, 1.3 * here.facts.ledger.cores_busy)


def test_members_leave_a_meeting_when_their_own_threads_are_done(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[[Plan, Cluster], Outcome],
) -> None:
    training = {"steps": 12, "warmup_steps": 4, "batch_size": 512}
    plan = plans("allreduce", roles={"trainers": 2}, training=training)
    outcome = outcome_of(plan, clusters(cores=2, colocate=True, jitter=0.1))
    meetings: dict[int, list[tuple[float, float]]] = {}
    for span in outcome.spans:
        if span.effect == "all_reduce":
            meetings.setdefault(span.iteration, []).append((span.start, span.end))
    assert len(meetings) > 12
    for spans in meetings.values():
        (came, left), (other_came, other_left) = spans
        assert min(left, other_left) > max(came, other_came)
    assert any(spans[0][1] != spans[1][1] for spans in meetings.values())
