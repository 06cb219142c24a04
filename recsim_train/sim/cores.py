"""One machine's cores, one by one: a thread stays on the core that it runs on.

A machine is not one large core that all its threads share. Where three threads work on two cores
the third shares one of them with one thread, and the other thread has a core of its own, so that
members of a group, who wait for the slowest, end later than with equal shares. What happens
(docs/how-it-works.md has the measurement):

- whoever goes on at once stays where it is;
- whoever is woken gets the core with the fewest threads, of equal ones that where it ran last;
- threads of one core have equal shares;
- a core that has two threads more than another gives it one: so no core is idle while on another
  one two threads work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.solver import Activity, Kind, Resource

KindOn = Callable[[Resource], Kind]
"""The kind of some work on this core."""
_NOWHERE = -1, -1.0


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


class Cores:
    """The cores of one machine, of equal capacity."""

    def __init__(self, engine: Engine, count: float, together: Resource) -> None:
        """``together``: all of them, of which what is used is counted. ``count`` is whole but where
        a prediction asks what a few more would change: then each is worth a bit more."""
        self._engine = engine
        numbers = range(max(1, round(count)))
        own = together.capacity / len(numbers), together.pace
        name = f"{together.name}[{{}}]"
        make = engine.fluid.resource
        self.each = [make(name.format(k), *own, listed=False) for k in numbers]
        self._on: list[list[_Working]] = [[] for _ in self.each]
        self._last: dict[str, tuple[int, float]] = {}
        """By thread: the core on which it ran, and until when."""
        self._coming: list[_Working] = []
        self._unsettled = False

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
            core, until = self._last.get(working.thread, _NOWHERE)
            if until == now:
                self._place(working, core)
            else:
                woken.append((working, core))
        for working, last in woken:
            loads = [(len(on) > 0, core != last, core) for core, on in enumerate(self._on)]
            self._place(working, min(loads)[-1])
        self._level()
        for working in coming:
            self._start(working)

    def _place(self, working: _Working, core: int) -> None:
        working.core = core
        self._on[core].append(working)

    def _level(self) -> None:
        """Give threads away until no core has two more than another: first who came last."""
        while True:
            loads = [len(on) for on in self._on]
            fullest, emptiest = loads.index(max(loads)), loads.index(min(loads))
            if loads[fullest] < loads[emptiest] + 2:
                return
            moving = self._on[fullest].pop()
            self._place(moving, emptiest)
            if moving.activity is not None:
                moving.work = self._engine.fluid.remove(moving.activity)
                self._start(moving)

    def _start(self, working: _Working) -> None:
        kind = working.kind_on(self.each[working.core])
        working.activity = self._engine.fluid.add(kind, working.work, working.done)
