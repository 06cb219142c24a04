"""One machine's cores, one by one: a thread stays on the core that it runs on.

A machine is not one large core that all its threads share. Where three threads work on two cores
the third shares one of them with one thread, and the other thread has a core of its own, so that
members of a group, who wait for the slowest, end later than with equal shares. What happens
(docs/explain/cores.md has the measurement):

- whoever goes on at once stays where it is;
- whoever is woken goes to the core where it ran last, or to a free one: that is looked for where
  few enough of the cores were busy of late (`_nearly_full`); that of whoever woke it by a message
  is not free, though that one sleeps at once;
- a core works for one thread at a time. One that is woken takes it from another with a chance that
  was measured (`_TAKES`); else it waits until that one sleeps, or until the scheduler looks;
- a core that becomes free may take a thread that waits for another core, with a chance that was
  measured (`_PULLS`): seldom where all of these have just run, because of their data in caches;
- it looks at each turn (`recsim_train.config.cluster.Cluster.turn`): a thread that has had its
  slice lets the next one go on, and a core that has two threads more than another gives it one that
  has not just run. For so long a core may be idle while on another one two threads work.

Three of these rules carry errors (benchmarks/ablation.py, 100 stored settings: nine in ten within
8.8 to 9.8 % by seed, the median 3.3 to 3.6 %): without the waker's core nine in ten are within
11.0 %, where nobody takes a core within 11.2 %, and where none is pulled the median is 4.0 %. Two
more were left out because they carry next to none: threads that change their core for no reason,
and gloo's threads, which run under SCHED_BATCH and take no core (without both 9.5 to 10.6 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import floor, inf, log2, sqrt
from operator import attrgetter

from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.resources import Activity, Kind, Resource, Unshared
from recsim_train.sim.jitter import stream, uniforms

KindOn = Callable[[Resource], Kind]
"""The kind of some work on this core."""
_NEVER = -1, -inf
_HALF_LIFE = 32e-3
"""After how many seconds it counts half that a core was busy (per-entity load tracking)."""
_SLICE = 0.7e-3
"""Seconds that a thread may run before another one takes its core, on a machine of one core; of n
up to 8 cores it is 1 + log2(n) times as long (Linux' base_slice)."""
_SETTLED = 0.2e-3
_TAKES = 0.56, 0.86
"""With which chance a woken thread takes the core of one that has run for less than `_SETTLED`
seconds since it was woken or had its turn, and of one that has run for longer: about the medians of
thirteen recordings, by the kernel's records, of settings of experiments/fidelity.yaml, with which
predictions are validated, too (docs/explain/cores.md)."""
_WARM = 0.5e-3
_PULLS = 0.05, 0.33
"""With which chance a core that becomes free takes a thread that waits for another one: where all
of these have run within `_WARM` seconds (Linux' sched_migration_cost), and where one has not; about
the medians of nine recordings, as `_TAKES`."""
_OVERLOADED = 1.17
"""Imbalance above which Linux calls cores that share a cache overloaded."""


@dataclass(slots=True, eq=False)
class _Working:
    """A thread at work."""

    thread: str
    kind_on: KindOn
    work: float
    done: Event
    waker: str = ""
    """Whoever woke it by a message, as in `Cores.run`."""
    ran: float = 0.0
    """Seconds since it was woken or had its last turn."""
    left: float = -inf
    """When it, or what its thread did before, last left a core."""
    core: int = -1
    worth: float = 1.0
    """Seconds of its work in a second."""
    activity: Activity | None = None
    """None: it has not run yet."""


@dataclass(slots=True, eq=False)
class _Core:
    resource: Resource
    running: _Working | None = None
    turn_began: float = 0.0
    """When the turn of the thread that runs began; breaks in the turn move this on."""
    waiting: list[_Working] = field(default_factory=list)
    freed: float = -inf
    """When a thread last ended its work there."""

    @property
    def load(self) -> int:
        """Threads that run or wait."""
        return len(self.waiting) + (self.running is not None)


def _nearly_full(cores: int) -> float:
    """Share of busy cores from which on Linux looks for no free one when it wakes a thread: of n it
    looks at n (1 - (`_OVERLOADED` x share)^2), rounded down (SIS_UTIL, since 6.0)."""
    return sqrt(1.0 - 1.0 / cores) / _OVERLOADED


class Cores:
    """The cores of one host, of equal capacity."""

    def __init__(
        self,
        engine: Engine,
        count: float,
        together: Resource,
        turn: float,
        seed: int = 0,
        name: str = "core",
    ) -> None:
        """``together``: all of them, of which what is used is counted, and which are less than the
        sum of each where all work. ``count`` is whole but where a prediction asks what a few more
        would change: then a core that somebody waits for is a bit faster. ``turn``: in
        seconds. ``name``: by which chance knows them."""
        self._engine, self._turn, self._seed, self._name = engine, turn, seed, name
        assert not isinstance(engine.fluid, Unshared)
        self._fluid = engine.fluid
        self._draws: dict[tuple[str, str], Iterator[float]] = {}
        """By thread, or core, and what they decide: one for each time that this is asked."""
        numbers = range(max(1, round(count)))
        self._worth = max(1.0, count / len(numbers))  # of fewer than whole ones `together` says
        own = together.pace * self._worth, together.pace
        self.each = [
            engine.fluid.resource(f"{together.name}[{k}]", *own, listed=False) for k in numbers
        ]
        self._cores = [_Core(resource) for resource in self.each]
        self._slice = _SLICE * (1 + floor(log2(min(8, len(numbers)))))
        self._nearly_full = _nearly_full(len(self.each))
        self._last: dict[str, tuple[int, float]] = {}
        """By thread: the core on which it ran, and until when."""
        self._last_of: dict[str, int] = {}
        """By process and kind of thread: the core on which one of these ran last."""
        self._coming: list[_Working] = []
        self._looking = False
        self._busy = self._busy_since = self._since = 0.0

    def run(self, thread: str, kind_on: KindOn, work: float, *, waker: str = "") -> Event:
        """Work of a thread that does nothing else meanwhile; fires when it is done. ``thread``:
        "process/kind/name". ``waker``: "process/kind" of those that send it messages."""
        working = _Working(thread, kind_on, work, self._engine.event(), waker)
        working.done.callbacks.append(lambda _: self._end(working))
        self._coming.append(working)
        self._engine.before_time_moves(self._settle)
        return working.done

    def _end(self, working: _Working) -> None:
        core = self._cores[working.core]
        core.running, core.freed = None, self._engine.now
        self._last[working.thread] = working.core, self._engine.now
        self._last_of[working.thread.rpartition("/")[0]] = working.core
        self._engine.before_time_moves(self._settle)

    def _settle(self) -> None:
        """When all of an instant has happened: who works where from now on."""
        coming, self._coming = self._coming, []
        now = self._engine.now
        woken = []
        for working in coming:
            number, until = self._last.get(working.thread, _NEVER)
            working.left = until
            if until == now and self._cores[number].running is None:  # it has not left it
                working.ran = now - self._cores[number].turn_began
                self._start(working, number)
            else:
                woken.append((working, number))
        searched = self._busy_of_late(now) < self._nearly_full
        for working, last in woken:
            waker = self._last_of.get(working.waker, -1) if working.waker else -1
            place = self._core_for(last, waker, searched=searched)
            core = self._cores[place]
            if core.running and self._takes(working.thread, core.turn_began):
                self._stop(place, 0)
                core.waiting.insert(0, working)
            else:
                core.waiting.append(working)
        self._go_on()
        for number, core in enumerate(self._cores):
            if core.load == 0 and core.freed == now:
                self._pull(number, [w for other in self._cores for w in other.waiting])
        self._busy_since = sum(bool(core.load) for core in self._cores) / len(self._cores)
        if not self._looking and any(core.waiting for core in self._cores):
            self._looking = True
            turns = floor(now / self._turn * (1.0 + 1e-9)) + 1  # never this very instant
            self._engine.meanwhile(turns * self._turn - now, self._look)

    def _busy_of_late(self, now: float) -> float:
        """Share of the cores, until now: what was longer ago counts less."""
        kept = 0.5 ** ((now - self._since) / _HALF_LIFE)
        self._busy = kept * self._busy + (1.0 - kept) * self._busy_since
        self._since = now
        return self._busy

    def _takes(self, thread: str, turn_began: float) -> bool:
        """Whether the thread takes the core of another, whose turn began then."""
        settled = self._engine.now - turn_began >= _SETTLED
        return self._draw(thread, "takes") < _TAKES[settled]

    def _draw(self, thread: str, what: str) -> float:
        """The next of [0, 1) of those that decide this for the thread."""
        if (key := (thread, what)) not in self._draws:
            self._draws[key] = uniforms(stream(self._seed, *key))
        return next(self._draws[key])

    def _core_for(self, last: int, waker: int, *, searched: bool) -> int:
        """Where a thread goes that ran on the core ``last`` and was woken from ``waker``, which was
        not free then; below 0: nowhere yet, by nobody."""
        if last >= 0 and not (searched and (self._cores[last].load or last == waker)):
            return last
        loads = [core.load + (number == waker) for number, core in enumerate(self._cores)]
        least, number = min((load, number) for number, load in enumerate(loads))
        return number if least == 0 or last < 0 else last

    def _look(self) -> None:
        """At a turn of the scheduler: a core that has two threads more than another gives it one
        that is cold, the one that came last; whoever has had its slice lets the next one go on."""
        self._looking = False
        while True:
            emptiest = min(self._cores, key=attrgetter("load"))
            movable = (core for core in self._cores if any(map(self._cold, core.waiting)))
            fullest = max(movable, key=attrgetter("load"), default=emptiest)
            if fullest.load < emptiest.load + 2:
                break
            moving = next(filter(self._cold, reversed(fullest.waiting)))
            fullest.waiting.remove(moving)
            emptiest.waiting.append(moving)
        for number, core in enumerate(self._cores):
            if core.waiting and core.running and self._engine.now - core.turn_began >= self._slice:
                self._stop(number, len(core.waiting))
                core.waiting[-1].ran = 0.0
        self._go_on()
        self._engine.before_time_moves(self._settle)

    def _go_on(self) -> None:
        """Each core that is free takes whoever waits for it longest."""
        for number, core in enumerate(self._cores):
            if core.running is None and core.waiting:
                self._start(core.waiting.pop(0), number)

    def _pull(self, number: int, waiting: list[_Working]) -> None:
        """A core that has become free may take one of these threads, which wait for other ones."""
        if not waiting:
            return
        working = next(filter(self._cold, waiting), waiting[0])
        if self._draw(f"{self._name} {number}", "pulls") < _PULLS[self._cold(working)]:
            next(core for core in self._cores if working in core.waiting).waiting.remove(working)
            self._start(working, number)

    def _cold(self, working: _Working) -> bool:
        """Whether the caches of the core where it ran hold little of its data."""
        return bool(self._engine.now - working.left >= _WARM)

    def _start(self, working: _Working, number: int) -> None:
        core = self._cores[number]
        core.running, working.core = working, number
        core.turn_began = self._engine.now - working.ran
        kind = working.kind_on(core.resource)
        working.worth = self._worth if core.waiting else 1.0
        working.activity = self._fluid.add(kind, working.work / working.worth, working.done)

    def _stop(self, number: int, place: int) -> None:
        """Whoever runs waits again, in this place of the others."""
        core = self._cores[number]
        working, core.running = core.running, None
        assert working is not None
        assert working.activity is not None
        working.work = working.worth * self._fluid.remove(working.activity)
        working.left = self._engine.now
        working.ran = working.left - core.turn_began
        core.waiting.insert(place, working)
