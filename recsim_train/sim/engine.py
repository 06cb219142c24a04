"""The engine: simulated time, events, processes, activities. The only file with SimPy.

Activities of `recsim_train.sim.fluid` are events here: they fire when their work is done. Changes
of one instant are solved once, after everything else of that instant has happened.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import Timeout

from recsim_train.sim.fluid.resources import Kind, Unshared
from recsim_train.trace.garbage import collection_paused

if TYPE_CHECKING:
    from recsim_train.sim.fluid.solver import Fluid
    from recsim_train.sim.network.network import FrameNetwork

Event = simpy.Event
Steps = Generator[Event, Any, Any]
"""What a process is made of: a generator that yields the events it waits for."""


def once(begin: Callable[[], Event]) -> Steps:
    """A wait for the event that ``begin`` makes, which returns what it brings."""
    return (yield begin())


_ROUNDING = 1.0 + 1e-12
"""The fluid takes completions closer than this for one instant."""


class Engine:
    """The clock, its events and the fluid resources that live on it."""

    def __init__(self, *, shared: bool = True) -> None:
        """``shared``: whether activities share resources; none does, and nothing is compiled,
        where a run is only looked at (`recsim_train.sim.fluid.resources`)."""
        self._env = simpy.Environment(0.0)
        self.shared = shared
        self.fluid: Fluid | Unshared = _solver() if shared else Unshared()
        self.network: FrameNetwork | None = None
        """What messages between hosts share frame by frame, where they do."""
        self.events = 0
        self._stopped = False
        self._outside: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of (time, number, action) of `meanwhile`."""
        self._numbers = 0
        self._settling: dict[Callable[[], None], None] = {}

    def clock(self) -> float:
        """Seconds since the run started."""
        now: float = self._env._now
        return now

    now = property(attrgetter("_env._now"))  # the clock, as fast as can be

    # ------------------------------------------------------------------ events

    def event(self) -> Event:
        """An event that somebody will fire with ``succeed``."""
        return Event(self._env)

    def timeout(self, delay: float) -> Event:
        """Fires after ``delay`` seconds."""
        return Timeout(self._env, delay)

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Run ``action`` after ``delay`` seconds."""
        Timeout(self._env, delay).callbacks.append(lambda _: action())

    def meanwhile(self, delay: float, action: Callable[[], None]) -> None:
        """Run ``action`` after ``delay`` seconds, before all else of that instant, if anything is
        still going on by then: what comes from outside keeps no run alive."""
        heapq.heappush(self._outside, (self.now + delay, self._numbers, action))
        self._numbers += 1

    def before_time_moves(self, action: Callable[[], None]) -> None:
        """Run ``action`` once when all else of this instant has happened, however often it is asked
        for; it may start or stop activities, and fires no event."""
        self._settling[action] = None

    def process(self, steps: Steps) -> Event:
        """Start a process; its event fires with the generator's return value."""
        return self._env.process(steps)

    def activity(self, kind: Kind, work: float, delay: float = 0.0) -> Event:
        """Start ``work`` after ``delay``; fires when it is done. No work is done at once."""
        event, fluid = Event(self._env), self.fluid
        if work <= 0.0:
            return self.timeout(delay) if delay > 0.0 else event.succeed()
        if delay <= 0.0:
            fluid.start(kind, work, event)
        elif isinstance(fluid, Unshared):
            fluid.start(kind, work, event, delay)
        else:
            self.later(delay, partial(fluid.start, kind, work, event))
        return event

    def message(self, connection: int, size: float) -> Event:
        """Send a message over the network; fires when it has arrived."""
        assert self.network is not None
        event = Event(self._env)
        self.network.send(self.now, connection, size, event)
        return event

    # ------------------------------------------------------------------ running

    def stop(self) -> None:
        """Let `run` return after the present event."""
        self._stopped = True

    @collection_paused()
    def run(self) -> None:
        """Run until `stop` or until no event is left; an exception in a process is raised here.

        When all events of an instant are over, the fluid moves on to its next completion that
        somebody waits for or to SimPy's next event, whichever comes first.
        """
        self._stopped = False
        env, fluid, network = self._env, self.fluid, self.network
        queue, step, outside = env._queue, env.step, self._outside
        try:
            while not self._stopped:
                coming = queue[0][0] if queue else inf
                if self._settling and coming > env._now:
                    settling, self._settling = self._settling, {}
                    for action in settling:
                        action()
                if outside and outside[0][0] <= coming:
                    if not queue and fluid.idle and (network is None or network.due == inf):
                        return
                    coming = outside[0][0]
                if coming > env._now:
                    moves = inf if network is None else network.due
                    if network and moves <= env._now:  # still this instant
                        self._fired(network.run(env._now)[1], env._now)
                        continue
                    soonest = min(coming, moves)
                    changes = fluid.changed or fluid.due <= soonest * _ROUNDING
                    if changes and self._fired(fluid.run(soonest), fluid.now):
                        continue
                    if network and moves < coming:
                        at, done = network.run(min(coming, fluid.due))
                        self._fired(done, at)
                        continue
                    if coming == inf:  # nothing is left that ever ends
                        return
                    fluid.now = coming
                if outside and outside[0][0] <= coming:
                    env._now = coming
                    heapq.heappop(outside)[2]()
                    continue
                step()
                self.events += 1
        except EmptySchedule:
            return
        except Exception as error:
            # SimPy raises a copy whose cause is what the process raised
            original = error.__cause__
            if isinstance(original, type(error)):
                raise original from original.__cause__
            raise

    def _fired(self, done: list[object], now: float) -> bool:
        """Whether anything was done by now, of which all is told."""
        if done:
            self._env._now = self.fluid.now = now
        for event in done:
            assert isinstance(event, Event)
            _fire(event)
            self.events += 1
        return bool(done)


def _solver() -> Fluid:
    from recsim_train.sim.fluid.solver import Fluid  # which brings numba along

    return Fluid()


def _fire(event: Event) -> None:
    """Let an event happen now instead of queueing it: nothing else is left of this instant."""
    event._ok = True
    event._value = None
    callbacks: list[Callable[[Event], None]] = event.callbacks
    event.callbacks = None  # type: ignore[assignment]  # how SimPy marks what has happened
    for callback in callbacks:
        callback(event)
