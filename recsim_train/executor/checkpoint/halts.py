"""Where the training loops of one trainer stand still while a checkpoint is made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from recsim_train.executor.queues import wait_until

_AHEAD = 2
"""Batches that a loop takes at most before it stands still where nobody had said so before."""


class Halts:
    """Loops stand still before the batch of an iteration, once all earlier ones are trained on.

    ``feeding``: the loops that take batches; ``training``: those whose iterations count; ``reach``:
    the iterations that all do; ``at``: that of the first checkpoint, None: not known yet.
    """

    def __init__(
        self,
        feeding: Iterable[str],
        training: Iterable[str],
        reach: range,
        at: int | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._taken = dict.fromkeys(feeding, reach.start)
        self._done = dict.fromkeys(training, reach.start)
        self._total = reach.stop
        self._standing: set[str] = set()
        self._changed = threading.Condition()
        self._at, self._stopped = at, stopped
        self.still_since = 0.0
        """When the first of them stood still, on the monotonic clock."""

    @property
    def at(self) -> int | None:
        """The iteration before which loops stand still next; None: not known."""
        return self._at

    def take(self, loop: str, held: int) -> bool:
        """A loop is about to take a batch. False: it has to train on the ``held`` ones first.

        Raises TimeoutError where another thread of the process has failed meanwhile.
        """
        with self._changed:
            number = self._taken[loop]
            if self._due(number):
                if held:
                    return False
                if not self._standing:
                    self.still_since = time.monotonic()
                self._standing.add(loop)
                self._changed.notify_all()
                wait_until(self._changed, lambda: not self._due(number), self._stopped)
                self._standing.discard(loop)
            self._taken[loop] = number + 1
            return True

    def _due(self, number: int) -> bool:
        return self._at is not None and self._total > number >= self._at

    def ended(self, loop: str, done: int) -> None:
        """A training loop has done so many iterations."""
        with self._changed:
            self._done[loop] = done
            if self._due(done):
                self._changed.notify_all()

    def still(self, seconds: float) -> bool:
        """Whether all stand still, after at most so many seconds of waiting for it."""
        with self._changed:
            return self._changed.wait_for(self._all_still, seconds)

    def _all_still(self) -> bool:
        there = len(self._standing) == len(self._taken)
        return there and all(map(self._due, self._done.values()))

    def ask(self) -> int:
        """Stand still as soon as may be: the iteration before which every loop can."""
        with self._changed:
            soon = max(self._taken.values()) + _AHEAD
            self._at = soon if self._at is None else min(self._at, soon)
            return self._at

    def stand(self, at: int | None) -> None:
        """Go on as far as this iteration; None: on and on."""
        with self._changed:
            self._at = at
            self._changed.notify_all()
