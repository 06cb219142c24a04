"""The engine: simulated time, events, processes, queues, barriers. The only file with SimPy.

Activities of `recsim_train.sim.fluid` are events here: they fire when their work is done. Changes
of one instant are solved once, after everything else of that instant has happened.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from math import inf
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import Timeout

from recsim_train.sim.fluid.solver import Fluid, Kind
from recsim_train.trace.garbage import collection_paused

Event = simpy.Event
Steps = Generator[Event, Any, Any]
"""What a process is made of: a generator that yields the events it waits for."""

_ROUNDING = 1.0 + 1e-12
"""The fluid takes completions closer than this for one instant."""


class Engine:
    """The clock, its events and the fluid resources that live on it."""

    def __init__(self) -> None:
        self._env = simpy.Environment(0.0)
        self.fluid = Fluid()
        self.events = 0
        self._stopped = False
        self._outside: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of (time, number, action) of `meanwhile`."""
        self._numbers = 0

    def clock(self) -> float:
        """Seconds since the run started."""
        now: float = self._env._now
        return now

    now = property(clock)

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

    def process(self, steps: Steps) -> Event:
        """Start a process; its event fires with the generator's return value."""
        return self._env.process(steps)

    def activity(self, kind: Kind, work: float, delay: float = 0.0) -> Event:
        """Start ``work`` after ``delay``; fires when it is done. No work is done at once."""
        event = Event(self._env)
        if delay > 0.0 and work > 0.0:
            self.later(delay, lambda: self.fluid.start(kind, work, event))
            return event
        if work <= 0.0:
            return event.succeed()
        self.fluid.start(kind, work, event)
        return event

    # ------------------------------------------------------------------ fluid and clock

    def used(self) -> list[float]:
        """Units consumed so far of each fluid resource."""
        return self.fluid.used()

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
        env, fluid = self._env, self.fluid
        queue, step, outside = env._queue, env.step, self._outside
        try:
            while not self._stopped:
                coming = queue[0][0] if queue else inf
                if outside and outside[0][0] <= coming:
                    if not queue and fluid.idle:
                        return
                    coming = outside[0][0]
                if coming > env._now:
                    if fluid.changed or fluid.due <= coming * _ROUNDING:
                        done = fluid.run(coming)
                        if done:
                            env._now = fluid.now
                            for event in done:
                                assert isinstance(event, Event)
                                _fire(event)
                                self.events += 1
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


def _fire(event: Event) -> None:
    """Let an event happen now instead of queueing it: nothing else is left of this instant."""
    event._ok = True
    event._value = None
    callbacks: list[Callable[[Event], None]] = event.callbacks
    event.callbacks = None  # type: ignore[assignment]  # how SimPy marks what has happened
    for callback in callbacks:
        callback(event)


class Mailbox:
    """Requests for one receiver, in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._items: deque[Any] = deque()
        self._waiting: Event | None = None

    def put(self, item: Any) -> None:
        if self._waiting is None:
            self._items.append(item)
        else:
            waiting, self._waiting = self._waiting, None
            waiting.succeed(item)

    def get(self) -> Event:
        """Fires with the oldest item. One receiver only."""
        event = self._engine.event()
        if self._items:
            event.succeed(self._items.popleft())
        else:
            self._waiting = event
        return event


class Queue:
    """A bounded queue with one producer and one consumer.

    The producer reserves a place first, so that what is on its way already has one.
    """

    def __init__(self, engine: Engine, capacity: int) -> None:
        self._engine = engine
        self._free = capacity
        self._items = Mailbox(engine)
        self._producer: Event | None = None

    def reserve(self) -> Event:
        """Fires when a place is free, and takes it."""
        event = self._engine.event()
        if self._free:
            self._free -= 1
            event.succeed()
        else:
            self._producer = event
        return event

    def put(self, item: Any) -> None:
        """Fill a reserved place."""
        self._items.put(item)

    def get(self) -> Event:
        """Fires with the oldest item; its place is free from then on."""
        event = self._items.get()
        if event.triggered:
            self._release()
        else:
            event.callbacks.append(lambda _: self._release())
        return event

    def _release(self) -> None:
        if self._producer is None:
            self._free += 1
        else:
            producer, self._producer = self._producer, None
            producer.succeed()


class LoopQueue:
    """A bounded queue between the loops of one process; any number of them at both ends."""

    def __init__(self, engine: Engine, capacity: int) -> None:
        self._engine = engine
        self._free = capacity
        self._items: deque[Any] = deque()
        self._takers: deque[Event] = deque()
        self._producers: deque[Event] = deque()

    def put(self, item: Any) -> Steps:
        """Waits for room."""
        if self._free:
            self._free -= 1
        else:
            room = self._engine.event()
            self._producers.append(room)
            yield room
        if self._takers:
            self._takers.popleft().succeed(item)
        else:
            self._items.append(item)

    def take(self) -> Steps:
        """Waits for the oldest item and returns it; its place is free from then on."""
        if self._items:
            item = self._items.popleft()
        else:
            taker = self._engine.event()
            self._takers.append(taker)
            item = yield taker
        if self._producers:
            self._producers.popleft().succeed()
        else:
            self._free += 1
        return item


class LoopBarrier:
    """Holds its members until all that have not left are there, and lets them go; cyclic."""

    def __init__(self, engine: Engine, members: int) -> None:
        self._engine = engine
        self._members = members
        self._here: list[Event] = []

    def arrive(self) -> Event:
        """Fires with the number of members once all are there."""
        event = self._engine.event()
        self._here.append(event)
        self._pass()
        return event

    def leave(self) -> None:
        """One member will not come any more."""
        self._members -= 1
        self._pass()

    def _pass(self) -> None:
        if self._here and len(self._here) == self._members:
            here, self._here = self._here, []
            for event in here:
                event.succeed(self._members)


class Countdown:
    """Fires once it has been counted down ``count`` times."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.left = count
        self.last: Any = None
        """What the last one brought."""
        self.done = engine.event()
        if count == 0:
            self.done.succeed()

    def arrive(self, brought: Any = None) -> None:
        """One is done; the last one's ``brought`` is kept."""
        self.left -= 1
        if self.left == 0:
            self.last = brought
            self.done.succeed()


class Barrier:
    """Holds ``size`` parties until all have come, then runs ``work`` once and lets them go.

    ``work`` receives what the parties brought, in order of arrival, and is a process.
    """

    def __init__(self, engine: Engine, size: int, work: Callable[[list[Any]], Steps]) -> None:
        self._engine = engine
        self._work = work
        self.size = size
        self._brought: list[Any] = []
        self._gate = engine.event()

    @property
    def arrived(self) -> int:
        """Parties that wait now."""
        return len(self._brought)

    def arrive(self, item: Any) -> Event:
        """Fires when all have come and the work is done."""
        gate = self._gate
        self._brought.append(item)
        if len(self._brought) == self.size:
            brought, self._brought = self._brought, []
            self._gate = self._engine.event()
            self._engine.process(self._pass(brought, gate))
        return gate

    def _pass(self, brought: list[Any], gate: Event) -> Steps:
        yield from self._work(brought)
        gate.succeed()
