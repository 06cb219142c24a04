"""Where processes of simulated time hand each other things, and where they wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from recsim_train.sim.engine import Engine, Event, Steps
from recsim_train.sim.host.process import Thread


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

    The producer reserves places first, so that what is on its way already has one. Who makes
    several items at a time begins when there is room for one.
    """

    def __init__(self, engine: Engine, capacity: int) -> None:
        self._engine = engine
        self._free = capacity
        self._items = Mailbox(engine)
        self._producer: tuple[Event, int] | None = None

    def reserve(self, many: int = 1) -> Event:
        """Fires when a place is free, and takes so ``many``, whether or not all are free."""
        event = self._engine.event()
        self._producer = event, many
        self._let_in()
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
        self._free += 1
        self._let_in()

    def _let_in(self) -> None:
        if self._producer is not None and self._free > 0:
            (event, many), self._producer = self._producer, None
            self._free -= many
            event.succeed()


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


class LoopProgress:
    """Counts the iterations that the training ``loops`` of one trainer end, for who waits."""

    def __init__(self, engine: Engine, loops: Iterable[str]) -> None:
        self._engine = engine
        self._going = set(loops)
        self._ended = 0
        self._waiting: list[tuple[int, Event]] = []

    def reach(self, iterations: int) -> Event:
        """Fires with how many have ended, once they are so many or will be no more."""
        event = self._engine.event()
        self._waiting.append((iterations, event))
        self._pass()
        return event

    def ended(self) -> None:
        """One more iteration."""
        self._ended += 1
        self._pass()

    def over(self, loop: str) -> None:
        """This one ends no more."""
        self._going.discard(loop)
        self._pass()

    def _pass(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, event in waiting:
            if self._ended >= wanted or not self._going:
                event.succeed(self._ended)
            else:
                self._waiting.append((wanted, event))


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


class JointWork:
    """Holds ``size`` parties until all have come, then runs ``work`` once and lets them go.

    ``work`` receives what the parties brought, in order of arrival, and the thread that came last,
    which does it; it is a process.
    """

    def __init__(
        self, engine: Engine, size: int, work: Callable[[list[Any], Thread], Steps]
    ) -> None:
        self._engine = engine
        self._work = work
        self.size = size
        self._brought: list[Any] = []
        self._gate = engine.event()

    def arrive(self, item: Any, thread: Thread) -> Event:
        """Fires when all have come and the work is done."""
        gate = self._gate
        self._brought.append(item)
        if len(self._brought) == self.size:
            brought, self._brought = self._brought, []
            self._gate = self._engine.event()
            self._engine.process(self._pass(brought, thread, gate))
        return gate

    def _pass(self, brought: list[Any], thread: Thread, gate: Event) -> Steps:
        yield from self._work(brought, thread)
        gate.succeed()
