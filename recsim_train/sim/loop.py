"""The state of one loop while it runs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from recsim_train.placement.plan import LoopId
from recsim_train.sim.channel import Channel
from recsim_train.sim.kernel import Queue
from recsim_train.sim.machines import Process


class LoopState:
    """A trainer's loop: its coroutine, its queue, its connections, and where it is."""

    def __init__(
        self, loop: LoopId, process: Process, position: int, program: Coroutine[Any, Any, None]
    ) -> None:
        self.loop = loop
        self.name = loop.name
        self.label = loop.label
        self.process = process
        self.position = position
        """Place among the training loops; -1 for loops that consume no batches."""
        self.coroutine = program
        self.queue: Queue | None = None
        self.channels: dict[tuple[str, int], Channel] = {}
        """Connections to shards in other processes, by service and shard."""
        self.iteration = -1
        self.started = 0.0
        self.completed = 0
        """Iterations that have ended."""
        self.unserved: dict[int, int] = {}
        """Requests that shards have not finished, by iteration."""
        self.waiting = "its start"
        """What it waits for, as the deadlock report says it."""
        self.finished = False

    def ask(self) -> None:
        """A request of the present iteration is on its way."""
        self.unserved[self.iteration] = self.unserved.get(self.iteration, 0) + 1

    def served(self, iteration: int) -> None:
        """A shard has finished a request of ``iteration``."""
        left = self.unserved[iteration] - 1
        if left:
            self.unserved[iteration] = left
        else:
            del self.unserved[iteration]

    def settled(self) -> int:
        """Iterations that have ended and that no shard still works on."""
        return min(self.completed, *self.unserved) if self.unserved else self.completed
