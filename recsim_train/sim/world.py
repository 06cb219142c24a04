"""The world that every effect needs at hand: time, machines, prices, records."""

from __future__ import annotations

from typing import Any

from recsim_train.data.counts import IdCounts
from recsim_train.placement.transport import number_bytes
from recsim_train.sim.accounts import COMPUTE, WAITING
from recsim_train.sim.engine import Event, Steps
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.loop import LoopState
from recsim_train.sim.pricing import Priced, Pricing, plus
from recsim_train.sim.queues import Countdown
from recsim_train.sim.records import Records
from recsim_train.trace.ledger import ASKING, RUNTIME
from recsim_train.workload import compression, shape

SENT: Any = object()
"""No event: what a request's process yields when all has been sent."""


class World:
    """What every effect needs at hand."""

    def __init__(
        self, machines: Machines, pricing: Pricing, records: Records, counts: IdCounts
    ) -> None:
        self.machines = machines
        self.engine = machines.engine
        self.pricing = pricing
        self.records = records
        self.counts = counts
        self.model = pricing.experiment.model
        self.training = pricing.experiment.training
        self.data = pricing.experiment.data
        self.layout = compression.layout(self.model)
        self.value_bytes = shape.value_bytes(self.model)
        self._wire_bytes = number_bytes(pricing.experiment)
        self.overhead = pricing.units(RUNTIME, effect=1)
        """The runtime's own work for one effect."""
        self.asking = plus(self.overhead, pricing.units(ASKING, asking=1))
        """The same for one that asks shards."""

    def sparse_bytes(self, share: float, start: int, stop: int) -> int:
        """Expected bytes of elements ``start`` to ``stop`` of a thresholded vector."""
        whole, entries = self.layout.within(share, start, stop)
        each = self.value_bytes + compression.INDEX_BYTES
        return whole * self.value_bytes + entries * each

    def number_bytes(self, loop: LoopState) -> int:
        """Of a number of the loop's requests that may be rounded: outside of training none is."""
        return self.value_bytes if loop.iteration < 0 else self._wire_bytes

    def work(self, loop: LoopState, work: Priced, what: str) -> Event:
        """A loop's own work on a core."""
        loop.waiting = "a core"
        return self._on(loop, work, f"{loop.label}.{what}")

    def _on(self, loop: LoopState, work: Priced, purpose: str) -> Event:
        done, alone = self.machines.compute(
            loop.thread, work, purpose, lateness=loop.lateness, threaded=loop.threaded
        )
        loop.account.take(COMPUTE, alone)
        return done

    def wait(self, loop: LoopState, done: Countdown) -> Steps:
        """Wait for the last of some requests; where the loop only starts them, say `SENT` first."""
        if loop.starting:
            loop.starting, waiting = False, loop.waiting
            yield SENT
            loop.waiting = waiting
        start = self.engine.now
        yield done.done
        loop.account.blame(self.engine.now - start, done.last)

    def wait_for_others(self, loop: LoopState, steps: Steps) -> Steps:
        """Wait for what others do; returns what the steps bring."""
        start = self.engine.now
        brought = yield from steps
        loop.account.now[WAITING] += self.engine.now - start
        return brought

    def serve(self, loop: LoopState, work: Priced, what: str) -> Event:
        """What a shard in the loop's own process does for it, in the loop's thread."""
        return self._on(loop, work, f"{loop.name}.{what}")

    def meet(self, loop: LoopState) -> Steps:
        """Wait until the last of those that a loop stands for is where it is."""
        if loop.lateness is not None:
            late = loop.lateness.latest()
            if late > 0.0:
                yield self.engine.timeout(late)
                loop.account.now[WAITING] += late
