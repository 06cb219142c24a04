"""One machine's cores, one by one: a thread stays on the core that it runs on.

A machine is not one large core that all its threads share. Where three threads work on two cores
the third shares one of them with one thread, and the other thread has a core of its own, so that
members of a group, who wait for the slowest, end later than with equal shares. What happens
(docs/how-it-works.md has the measurement):

- whoever goes on at once stays where it is;
- whoever is woken goes to the core where it ran last, or to a free one: that is looked for where
  few enough of the cores were busy of late (`_nearly_full`);
- now and then it goes to another core, whatever works there (`Cluster.wander`): the scheduler knows
  less than this module, and weighs more, such as who woke it;
- threads of one core have equal shares;
- the scheduler looks at each turn (`recsim_train.config.cluster.Cluster.turn`): a core that has two
  threads more than another then gives it one. For so long a core may be idle while on another one
  two threads work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, sqrt

from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.solver import Activity, Kind, Resource
from recsim_train.sim.jitter import stream, uniforms

KindOn = Callable[[Resource], Kind]
"""The kind of some work on this core."""
_NEVER = -1, -1.0
_HALF_LIFE = 32e-3
"""After how many seconds it counts half that a core was busy (per-entity load tracking)."""
_OVERLOADED = 1.17
"""Imbalance above which Linux calls cores that share a cache overloaded."""


@dataclass(slots=True, eq=False)
class _Working:
    """A thread at work."""

    thread: str
    kind_on: KindOn
    work: float
    done: Event
    core: int = -1
    activity: Activity | None = None
    """None: it starts in this instant."""


def _nearly_full(cores: int) -> float:
    """Share of busy cores from which on Linux looks for no free one when it wakes a thread: of n it
    looks at n (1 - (`_OVERLOADED` x share)^2), rounded down (SIS_UTIL, since 6.0)."""
    return sqrt(1.0 - 1.0 / cores) / _OVERLOADED


class Cores:
    """The cores of one machine, of equal capacity."""

    def __init__(
        self,
        engine: Engine,
        count: float,
        together: Resource,
        turn: float,
        wander: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``together``: all of them, of which what is used is counted, and which are less than the
        sum of each where all work. ``count`` is whole but where a prediction asks what a few more
        would change: then each is worth a bit more. ``turn``: in
        seconds; ``wander``: share of wakes, of the same ones whatever else happens."""
        self._engine, self._turn = engine, turn
        self._wander, self._seed = wander, seed
        self._draws: dict[str, Iterator[float]] = {}
        """By thread: one for each time that it is woken."""
        numbers = range(max(1, round(count)))
        own = together.pace * count / len(numbers), together.pace
        name = f"{together.name}[{{}}]"
        make = engine.fluid.resource
        self.each = [make(name.format(k), *own, listed=False) for k in numbers]
        self._on: list[list[_Working]] = [[] for _ in self.each]
        self._nearly_full = _nearly_full(len(self.each))
        self._last: dict[str, tuple[int, float]] = {}
        """By thread: the core on which it ran, and until when."""
        self._coming: list[_Working] = []
        self._unsettled = self._looking = False
        self._busy = self._busy_since = self._since = 0.0

    def run(self, thread: str, kind_on: KindOn, work: float) -> Event:
        """Work of a thread that does nothing else meanwhile; fires when it is done."""
        working = _Working(thread, kind_on, work, self._engine.event())
        working.done.callbacks.append(lambda _: self._end(working))
        self._coming.append(working)
        self._unsettle()
        return working.done

    def _end(self, working: _Working) -> None:
        self._on[working.core].remove(working)
        self._last[working.thread] = working.core, self._engine.now
        self._unsettle()

    def _unsettle(self) -> None:
        if not self._unsettled:
            self._unsettled = True
            self._engine.before_time_moves(self._settle)

    def _settle(self) -> None:
        """When all of an instant has happened: who works where from now on."""
        self._unsettled = False
        coming, self._coming = self._coming, []
        now = self._engine.now
        woken = []
        for working in coming:
            core, until = self._last.get(working.thread, _NEVER)
            if until == now:
                self._place(working, core)
            else:
                woken.append((working, core))
        searched = self._busy_of_late(now) < self._nearly_full
        for working, last in woken:
            if (place := self._strays_to(working.thread, last)) is None:
                place = self._core_for(last, searched=searched)
            self._place(working, place)
        for working in coming:
            self._start(working)
        self._busy_since = sum(map(bool, self._on)) / len(self._on)
        if not self._looking and self._uneven() is not None:
            self._looking = True
            turns = floor(now / self._turn * (1.0 + 1e-9)) + 1  # never this very instant
            self._engine.meanwhile(turns * self._turn - now, self._level)

    def _busy_of_late(self, now: float) -> float:
        """Share of the cores, until now: what was longer ago counts less."""
        kept = 0.5 ** ((now - self._since) / _HALF_LIFE)
        self._busy = kept * self._busy + (1.0 - kept) * self._busy_since
        self._since = now
        return self._busy

    def _strays_to(self, thread: str, last: int) -> int | None:
        """Another core than ``last``, to which it goes this time; None: it does not."""
        others = len(self._on) - 1
        if self._wander == 0.0 or others == 0 or last < 0:
            return None
        if thread not in self._draws:
            self._draws[thread] = uniforms(stream(self._seed, thread, "wander"))
        place = next(self._draws[thread]) / self._wander
        return (last + 1 + floor(place * others)) % (others + 1) if place < 1.0 else None

    def _core_for(self, last: int, *, searched: bool) -> int:
        """Where a thread goes that ran on the core ``last``; below 0: nowhere yet."""
        if last >= 0 and not (searched and self._on[last]):
            return last
        loads = [(len(on), core) for core, on in enumerate(self._on)]
        least, core = min(loads)
        return core if least == 0 or last < 0 else last

    def _place(self, working: _Working, core: int) -> None:
        working.core = core
        self._on[core].append(working)

    def _uneven(self) -> tuple[int, int] | None:
        """The fullest core and the emptiest one; None: no core has two threads more."""
        loads = [len(on) for on in self._on]
        most, least = max(loads), min(loads)
        return (loads.index(most), loads.index(least)) if most >= least + 2 else None

    def _level(self) -> None:
        """Give threads away, first who came last."""
        self._looking = False
        while (found := self._uneven()) is not None:
            fullest, emptiest = found
            moving = self._on[fullest].pop()
            self._place(moving, emptiest)
            assert moving.activity is not None
            moving.work = self._engine.fluid.remove(moving.activity)
            self._start(moving)

    def _start(self, working: _Working) -> None:
        kind = working.kind_on(self.each[working.core])
        working.activity = self._engine.fluid.add(kind, working.work, working.done)
