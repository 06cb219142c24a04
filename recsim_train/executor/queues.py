"""What the loops of one process hand each other, and where they wait for each other.

Every wait ends when the process has failed, and a wait at a queue also when all other loops have
ended: nobody would come any more.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from recsim_train.strategy.values import Batch

T = TypeVar("T")
_LOOK = 0.2
"""Seconds between two looks at whether the process has failed."""

_FAILED = "another loop of this process failed"
_LEFT = "a queue is waited at, but all other loops of this process have ended"

Stopped = Callable[[], bool]


def wait_until(changed: threading.Condition, done: Callable[[], bool], stopped: Stopped) -> None:
    """Until it is ``done``, which ``changed`` is notified of. Raises TimeoutError where the process
    has failed."""
    while not done():
        if stopped():
            raise TimeoutError(_FAILED)
        changed.wait(_LOOK)


class ThreadQueue:
    """A bounded queue between loops; any number of them at both ends."""

    def __init__(
        self, capacity: int, stopped: Stopped, alone: Callable[[], bool] = lambda: False
    ) -> None:
        """``alone``: whether all loops but who asks have ended."""
        self._queue: queue.Queue[object] = queue.Queue(capacity)
        self._stopped, self._alone = stopped, alone

    def put(self, item: object) -> None:
        """Wait for room. Raises TimeoutError where another loop has failed, or all have ended."""
        self._until(lambda: self._queue.put(item, timeout=_LOOK))

    def take(self) -> object:
        """Wait for the oldest item. Raises as `put` does."""
        return self._until(lambda: self._queue.get(timeout=_LOOK))

    def _until(self, action: Callable[[], T]) -> T:
        while True:
            alone = self._alone()  # before: the last act of another loop may be what is waited for
            try:
                return action()
            except (queue.Full, queue.Empty):
                if alone or self._stopped():
                    raise TimeoutError(_FAILED if self._stopped() else _LEFT) from None


class ThreadBarrier:
    """Holds loops until all members that have not left are there; cyclic."""

    def __init__(self, members: int, stopped: Stopped) -> None:
        self._members, self._stopped = members, stopped
        self._changed = threading.Condition()
        self._here = self._passed = self._present = 0

    def wait(self) -> int:
        """Until all are there; how many they are. Raises TimeoutError where a loop has failed."""
        with self._changed:
            passing = self._passed
            self._here += 1
            self._let_go()
            wait_until(self._changed, lambda: self._passed > passing, self._stopped)
            return self._present

    def leave(self) -> None:
        """One member will not come any more."""
        with self._changed:
            self._members -= 1
            self._let_go()

    def _let_go(self) -> None:
        if self._here and self._here == self._members:
            self._here, self._present = 0, self._members
            self._passed += 1
            self._changed.notify_all()


class ThreadProgress:
    """Counts the iterations that the training ``loops`` of this trainer end, for who waits."""

    def __init__(self, loops: Iterable[str] = (), stopped: Stopped = lambda: False) -> None:
        self._going, self._stopped = set(loops), stopped
        self._changed = threading.Condition()
        self._ended = 0
        self._wanted: list[int] = []

    def wait(self, iterations: int) -> int:
        """Until so many have ended, or no more will; how many. Raises TimeoutError where a loop
        has failed."""
        with self._changed:
            self._wanted.append(iterations)
            try:
                wait_until(
                    self._changed,
                    lambda: self._ended >= iterations or not self._going,
                    self._stopped,
                )
                return self._ended
            finally:
                self._wanted.remove(iterations)

    def ended(self) -> None:
        """One more iteration."""
        with self._changed:
            self._ended += 1
            if self._ended in self._wanted:  # nobody wakes up for others' sake
                self._changed.notify_all()

    def over(self, loop: str) -> None:
        """This one ends no more."""
        with self._changed:
            self._going.discard(loop)
            self._changed.notify_all()


Fed = Batch | BaseException | None


class QueueFeed:
    """Batches that one reader thread makes ahead for one loop; None ends them, errors are raised.

    Who makes several at a time begins when there is room for one, so that it is woken for all of
    them and not for each.
    """

    def __init__(self, capacity: int, stopped: Stopped) -> None:
        self._capacity, self._stopped = capacity, stopped
        self._items: deque[Fed] = deque()
        self._changed = threading.Condition(threading.Lock())
        """Notified when there is something in it, and when there is room: only one side waits."""

    def room(self) -> bool:
        """Wait until it holds less than its capacity; False when the run is over."""
        with self._changed:
            while not self._stopped():
                if len(self._items) < self._capacity:
                    return True
                self._changed.wait(_LOOK)
        return False

    def put(self, *items: Fed) -> None:
        """Add them, whether or not there is room."""
        with self._changed:
            self._items += items
            self._changed.notify()

    def next(self) -> Batch | None:
        """The next batch; None after the last, as often as it is asked. Raises what the reader
        raised, and TimeoutError where another thread has failed."""
        with self._changed:
            # its reader may have left
            wait_until(self._changed, lambda: bool(self._items), self._stopped)
            item = self._items[0]
            if item is None:
                return None
            del self._items[0]
            if len(self._items) == self._capacity - 1:
                self._changed.notify()
        if isinstance(item, BaseException):
            raise item
        return item
