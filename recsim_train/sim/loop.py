"""The state of one loop while it runs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from recsim_train.placement.plan import LoopId
from recsim_train.sim.accounts import Account
from recsim_train.sim.channel import Channel
from recsim_train.sim.folding import Lateness
from recsim_train.sim.kernel import Queue
from recsim_train.sim.ledger import Series
from recsim_train.sim.machines import Process
from recsim_train.strategy.base import Loop
from recsim_train.workload.compression import Tallies


class LoopState:
    """A trainer's loop: its coroutine, its queue, its connections, and where it is."""

    def __init__(
        self,
        loop: LoopId,
        definition: Loop,
        process: Process,
        position: int,
        program: Coroutine[Any, Any, None],
        account: Account,
    ) -> None:
        self.loop = loop
        self.trains = definition.trains and not definition.background
        self.background = definition.background
        self.paced_by = definition.paced_by
        self.name = loop.name
        self.label = loop.label
        self.process = process
        self.position = position
        """Place in the stream of batches; -1 for loops that consume none."""
        self.coroutine = program
        self.queue: Queue | None = None
        self.channels: dict[tuple[str, int], Channel] = {}
        """Connections to shards in other processes, by service and shard."""
        self.iteration = -1
        self.started = 0.0
        self.acted = False
        """Of a background loop: whether anything but `Agree` happened in this round."""
        self.completed = 0
        """Iterations that have ended."""
        self.unserved: dict[int, int] = {}
        """Requests that shards have not finished, by iteration."""
        self.waiting = "its start"
        """What it waits for, as the deadlock report says it."""
        self.account = account
        """Where the time of its effects goes."""
        self.lateness: Lateness | None = None
        """Of those that this loop stands for, where they wait for each other."""
        self.requests: dict[tuple[str, str, str], tuple[str, Series]] = {}
        """By service, effect and host: the stream of chance and the record of requests."""
        self.records: dict[tuple[type, str], Series] = {}
        """By effect and name: what it did."""
        self.purposes: dict[str, str] = {}
        """Names of the streams of chance of its own work."""
        self.finished = False
        self.share = 1.0
        """Of a tensor's entries, what the loop's threshold lets pass."""
        self.tallies: Tallies = {}

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
        done = [self.completed] if self.trains else []
        return min([*done, *self.unserved], default=1 << 62)
