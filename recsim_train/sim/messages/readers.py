"""Readers: batches are made ahead of the training loops, into bounded queues."""

from __future__ import annotations

from dataclasses import replace

from recsim_train.data.batch import HEADER_BYTES
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.transport import BATCH_MESSAGES, reading_of
from recsim_train.sim.engine import Steps
from recsim_train.sim.host.process import Process, Thread
from recsim_train.sim.pricing import Priced, part_of, plus
from recsim_train.sim.queues import Mailbox, Queue
from recsim_train.sim.world import LoopState, World
from recsim_train.trace.ledger import READING, TRANSPORT
from recsim_train.workload import shape
from recsim_train.workload.reading import list_calls
from recsim_train.workload.scope import Scope

SOURCE = "reader"
"""What NextBatch asks: the name in its spans."""
_HEAD_BYTES = 8 + HEADER_BYTES
"""Of both, what is not payload."""


class Readers:
    """Starts the readers of a plan: processes of their own, or a thread beside each loop."""

    def __init__(self, world: World, plan: Plan, loops: list[LoopState], iterations: int) -> None:
        self._world, self._plan = world, plan
        self._iterations = iterations
        self._bunches: dict[Scope, Priced] = {}
        self._making: dict[Instance | None, tuple[float, Priced]] = {}
        self._handing = world.pricing.units(READING, feed_batch=1.0)
        served: dict[Instance, list[LoopState]] = {}
        for loop in loops:
            loop.queue = Queue(world.engine, plan.experiment.data.queue_batches)
            reader = plan.reader_of(loop.loop)
            if reader is None:
                world.engine.process(self._thread(loop, loop.queue))
            else:
                served.setdefault(reader, []).append(loop)
        for reader, clients in served.items():
            world.engine.process(self._parse(reader, clients))

    def _made(self, reader: Instance | None, first: int) -> tuple[int, Priced]:
        """The batches from iteration ``first`` on that are made at a time: how many, and that.

        Where nothing is shared it is one, as much work as its part of them: that is a look at a few
        iterations, in which it matters when a reader makes what it makes.
        """
        known = self._making.get(reader)
        if known is None:
            pricing = self._world.pricing
            decoded = self._world.counts.decoded
            scope = replace(reading_of(self._plan, reader), decoded=decoded)
            if scope not in self._bunches:
                self._bunches[scope] = pricing.shaped(READING, scope)
                pricing.note(READING, "unit", scope.batches * self._handing.seconds)
            known = self._making[reader] = scope.batches, self._bunches[scope]
        together, bunch = known
        at_once = int(together) if self._world.engine.shared else 1
        many = min(at_once, self._iterations - first)
        return many, part_of(bunch, many / together)

    def _thread(self, loop: LoopState, queue: Queue) -> Steps:
        """A thread in the trainer's process that reads for one loop."""
        thread = Thread(loop.process, "reader", loop.label)
        done = 0
        while done < self._iterations:
            many, make = self._made(None, done)
            work = plus(make, part_of(self._handing, many))
            yield queue.reserve(many)
            yield self._world.machines.compute(thread, work, f"{loop.label}.read").done
            for iteration in range(done, done + many):
                queue.put(iteration)
            done += many

    def _parse(self, reader: Instance, clients: list[LoopState]) -> Steps:
        """A reader's one parsing thread: batches in turn for all its loops, each handed to that
        loop's sending thread, which holds one more. Loops of one place get the same batch."""
        process = self._world.machines.processes[reader]
        thread = Thread(process, "reader", "", only=True)
        made = [Queue(self._world.engine, 1) for _ in clients]
        for loop, queue in zip(clients, made, strict=True):
            self._world.engine.process(self._send(process, loop, queue))
        bunch = 0
        for iteration in range(self._iterations):
            work, place = self._handing, None
            if iteration == bunch:
                many, make = self._made(reader, iteration)
                work, bunch = plus(make, self._handing), iteration + many
            for loop, queue in zip(clients, made, strict=True):
                if loop.position != place:
                    place = loop.position
                    parsed = self._world.machines.compute(
                        thread, work, f"{loop.name}.read", client=loop.process
                    )
                    yield parsed.done
                yield queue.reserve()
                queue.put(iteration)

    def _send(self, process: Process, loop: LoopState, made: Queue) -> Steps:
        """A reader's thread that sends one loop's batches, once their receiver is ready."""
        world, engine = self._world, self._world.engine
        record = world.records.series(process.name, loop.name, "serve_next_batch", SOURCE)
        inbox, thread = Mailbox(engine), Thread(process, "sender", loop.name)
        engine.process(self._receive(process, loop, inbox))
        for iteration in range(self._iterations):
            yield made.get()
            start = engine.now
            payload = self.batch_bytes(loop.position, iteration)
            sending = world.machines.compute(
                thread,
                world.pricing.gloo_messages(BATCH_MESSAGES),
                f"{loop.name}.send",
                client=loop.process,
            )
            yield sending.done
            yield engine.timeout(world.machines.latency_of(process, loop.process))
            delivered = engine.event()
            inbox.put((payload, delivered))
            yield delivered
            record.add(iteration, start, engine.now, payload)

    def _receive(self, reader: Process, loop: LoopState, inbox: Mailbox) -> Steps:
        """A trainer's thread that takes one loop's batches and puts them into its queue."""
        world, queue = self._world, loop.queue
        assert queue is not None
        thread = Thread(loop.process, "receiver", loop.label)
        calls = list_calls(world.model)
        handling = plus(
            world.pricing.gloo_messages(BATCH_MESSAGES),
            world.pricing.units(TRANSPORT, call=calls, interpreter=calls),
        )
        while True:
            payload, delivered = yield inbox.get()
            yield world.machines.transfer(reader, loop.process, payload, _HEAD_BYTES).done
            delivered.succeed()
            yield world.machines.compute(thread, handling, f"{loop.label}.receive_batch").done
            yield queue.reserve()
            queue.put(None)

    def batch_bytes(self, position: int, iteration: int) -> int:
        """Payload of one batch: dense features, labels, ids, and the lengths of variable bags."""
        model, b = self._world.model, self._world.pricing.examples
        ids, _ = self._world.counts.batch_counts(position, iteration)
        variable = sum(table.variable for table in model.tables)
        fixed = b * (shape.FEATURE_BYTES * model.dense_features + shape.LABEL_BYTES)
        return fixed + shape.ID_BYTES * ids + shape.LENGTH_BYTES * variable * b
