"""Readers: batches are made ahead of the training loops, into bounded queues."""

from __future__ import annotations

from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.channel import WITH_PAYLOAD
from recsim_train.sim.kernel import Queue, Steps
from recsim_train.sim.loop import LoopState
from recsim_train.sim.pricing import Seconds, plus
from recsim_train.sim.services import World
from recsim_train.workload import shape

SOURCE = "reader"
"""What NextBatch asks: the name in its spans."""


class Readers:
    """Starts the readers of a plan: processes of their own, or a thread beside each loop."""

    def __init__(self, world: World, plan: Plan, loops: list[LoopState], iterations: int) -> None:
        self._world = world
        self._iterations = iterations
        data, batch = plan.experiment.data, plan.experiment.training.batch_size
        if data.path is None:
            self._make = world.pricing.units(synthesize_row=batch)
        else:
            self._make = world.pricing.units(parse_row=batch)
        served: dict[Instance, list[LoopState]] = {}
        for loop in loops:
            loop.queue = Queue(world.kernel, data.queue_batches)
            reader = plan.reader_of(loop.loop)
            if reader is None:
                world.kernel.process(self._thread(loop, loop.queue))
            else:
                served.setdefault(reader, []).append(loop)
        for reader, clients in served.items():
            world.kernel.process(self._reader(reader, clients))

    def _thread(self, loop: LoopState, queue: Queue) -> Steps:
        """A thread in the trainer's process that reads for one loop."""
        for iteration in range(self._iterations):
            yield self._world.compute(loop.process, self._make, f"{loop.label}.read")
            yield queue.reserve()
            queue.put(iteration)

    def _reader(self, instance: Instance, clients: list[LoopState]) -> Steps:
        """A reader process: one thread makes and sends batches, in turn for all its loops."""
        world, kernel = self._world, self._world.kernel
        process = world.machines.processes[instance]
        work = plus(self._make, world.messages(WITH_PAYLOAD))
        series = [
            world.ledger.series(process.name, loop.name, "serve_next_batch", SOURCE)
            for loop in clients
        ]
        for iteration in range(self._iterations):
            for loop, record in zip(clients, series, strict=True):
                assert loop.queue is not None
                payload = self.batch_bytes(loop.position, iteration)
                yield world.compute(process, work, f"{loop.name}.read")
                yield kernel.timeout(world.machines.latency)
                yield loop.queue.reserve()
                start = kernel.now
                yield world.machines.transfer(process, loop.process, payload)
                record.add(iteration, start, kernel.now, payload)
                kernel.process(self._receive(loop, loop.queue, world.messages(WITH_PAYLOAD)))

    def _receive(self, loop: LoopState, queue: Queue, work: Seconds) -> Steps:
        """The trainer's thread that puts what arrived into the loop's queue."""
        yield self._world.compute(loop.process, work, f"{loop.label}.receive_batch")
        queue.put(None)

    def batch_bytes(self, position: int, iteration: int) -> int:
        """Payload of one batch: dense features, labels, ids, and the lengths of variable bags."""
        model, b = self._world.model, self._world.training.batch_size
        assert self._world.counts is not None
        ids, _ = self._world.counts.batch_counts(position, iteration)
        variable = sum(table.variable for table in model.tables)
        fixed = b * (shape.FEATURE_BYTES * model.dense_features + shape.LABEL_BYTES)
        return fixed + shape.ID_BYTES * ids + shape.LENGTH_BYTES * variable * b
