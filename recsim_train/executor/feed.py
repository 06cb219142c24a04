"""Readers: from the stream of batches into every loop's bounded queue.

A reader role is one process: one thread parses the batches of its loops in stream order, one thread
for each loop sends them. Without reader processes every loop has a reader thread in its trainer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, count, islice
from typing import cast

import numpy as np
import torch
import torch.distributed as dist

from recsim_train.config.errors import RunFailed
from recsim_train.config.experiment import Model
from recsim_train.data.batch import HEADER_BYTES, NumpyBatch, pack, unpack
from recsim_train.data.kernels import within
from recsim_train.data.stream import open_stream
from recsim_train.executor.books import book
from recsim_train.executor.net.model import dtype_of
from recsim_train.executor.part import Reading
from recsim_train.executor.pools import beside_loops
from recsim_train.executor.queues import Fed, QueueFeed, Stopped, ThreadQueue
from recsim_train.executor.values import RealFeatures, RealIds
from recsim_train.placement.plan import LoopId, Plan
from recsim_train.strategy.values import Batch
from recsim_train.trace.ledger import READING, TRANSPORT
from recsim_train.trace.record import Recorder, Span
from recsim_train.workload.reading import together


def to_batch(model: Model, found: NumpyBatch, number: int = 0) -> Batch:
    """The batch as values of the real world; tensors share the arrays' memory. ``number``: as
    `Batch` has it."""
    size, dtype = found.size, dtype_of(model)
    varying = iter(found.lengths.reshape(-1, size))
    lengths = tuple(
        torch.from_numpy(next(varying)) if table.variable else None for table in model.tables
    )
    counts = [
        size * table.ids if length is None else int(length.sum())
        for table, length in zip(model.tables, lengths, strict=True)
    ]
    features = RealFeatures(
        torch.from_numpy(found.dense).to(dtype), torch.from_numpy(found.labels).to(dtype)
    )
    ids = RealIds(torch.from_numpy(found.ids), tuple(accumulate(counts, initial=0)), lengths, size)
    return Batch(size, ids, features, number)


def stream_of(
    plan: Plan, loops: Sequence[LoopId], reading: Reading, first: int
) -> Iterator[tuple[LoopId, int, NumpyBatch]]:
    """(loop, iteration, batch) of the given loops, in stream order, from iteration ``first`` on."""
    places: dict[int, list[LoopId]] = {}
    for loop in loops:
        places.setdefault(plan.positions[loop], []).append(loop)
    spec = plan.experiment
    stream = open_stream(
        spec.model,
        spec.data,
        batch_size=plan.examples,
        positions=sorted(places),
        total=plan.streams,
        iterations=spec.training.warmup_steps + spec.training.steps,
        seed=spec.seed,
        first=first,
    )
    reading.malformed = stream.malformed
    for position, iteration, batch in stream:
        reading.epochs, reading.rows = stream.epochs, stream.rows
        for loop in places[position]:
            yield loop, iteration, batch


def read_batches(
    model: Model, made: Iterator[tuple[int, NumpyBatch]], count: int, ready: list[Fed]
) -> None:
    """Put the next ``count`` batches into ``ready``, fewer at the end: what a reader thread beside
    a loop does at a time. Between two small ones the loop would have driven its code and data from
    the core's caches."""
    for number, found in islice(made, count):
        ready.append(to_batch(model, found, number))


def read_in_thread(
    plan: Plan, loop: LoopId, feed: QueueFeed, reading: Reading, first: int
) -> threading.Thread:
    """A reader thread inside the trainer, for one loop, from iteration ``first`` on."""
    ready: list[Fed] = []

    @book("reader", READING)
    def body() -> None:
        made = ((number, batch) for _, number, batch in stream_of(plan, [loop], reading, first))
        while feed.room():
            read_batches(plan.experiment.model, made, together(plan.examples), ready)
            if not ready:
                feed.put(None)
                return
            feed.put(*ready)
            ready.clear()

    return beside_loops(body, f"read for {loop.name}", lambda error: feed.put(*ready, error))


def receive_in_thread(
    plan: Plan, loop: LoopId, feed: QueueFeed, group: dist.ProcessGroup, first: int
) -> threading.Thread:
    """A trainer's thread that takes one loop's batches from its reader process, the ``first`` of
    which is that of this iteration."""
    reader = plan.reader_of(loop)
    assert reader is not None
    source, tag = plan.rank(reader), _tag(plan, loop)

    def body() -> None:
        size = torch.empty(1, dtype=torch.int64)
        with book("receiver", TRANSPORT):
            for number in count(first):
                dist.recv(size, source, group=group, tag=tag)
                if not int(size):
                    break
                try:
                    buffer = _room(int(size))
                    dist.recv(buffer, source, group=group, tag=tag + 1)
                    batch = to_batch(plan.experiment.model, received(plan, buffer), number)
                except ValueError as error:
                    raise RunFailed(f"{reader.name} sent no batch: {error}") from error
                if not feed.room():
                    return
                feed.put(batch)
        feed.put(None)

    return beside_loops(body, f"receive for {loop.name}", feed.put)


def _room(size: int) -> torch.Tensor:
    """Memory for a message. Raises ValueError for a size that cannot be."""
    try:
        return torch.empty(size, dtype=torch.uint8)
    except RuntimeError:
        raise ValueError(f"a message of {size} bytes") from None


def received(plan: Plan, buffer: torch.Tensor) -> NumpyBatch:
    """The batch that a reader has packed. Raises ValueError where it is none of this plan's."""
    found, tables = unpack(buffer.numpy()), plan.experiment.model.tables
    size = plan.examples
    lengths = found.lengths.reshape(-1, size) if found.lengths.size % size == 0 else None
    varying = [table.variable for table in tables]
    if found.size != size or lengths is None or len(lengths) != sum(varying):
        raise ValueError(f"{found.size} examples and {found.lengths.size} lengths of bags")
    if found.dense.shape[1] != plan.experiment.model.dense_features:
        raise ValueError(f"{found.dense.shape[1]} dense features")
    counts = np.array([size * table.ids for table in tables])
    counts[varying] = lengths.sum(1)
    if lengths.min(initial=0) < 0 or counts.sum() != found.ids.size:
        raise ValueError(f"{found.ids.size} ids where {counts.sum()} are due")
    if not within(found.ids, counts, np.array([table.rows for table in tables])):
        raise ValueError("an id that is in no table")
    return found


def _tag(plan: Plan, loop: LoopId) -> int:
    return plan.feeding.index(loop) * 2


class ReaderProcess:
    """The whole of a reader role's work."""

    def __init__(
        self,
        plan: Plan,
        instance: str,
        group: dist.ProcessGroup,
        clock: Callable[[], float],
        new_recorder: Callable[[], Recorder],
        failed: Callable[[BaseException], None],
        stopped: Stopped,
        first: int,
    ) -> None:
        """``stopped``: whether any thread of this process has ``failed``; ``first``: the iteration
        that is begun with."""
        self.plan, self.instance, self.group, self.clock = plan, instance, group, clock
        self._first = first
        self.failed = failed
        self.reading = Reading()
        self.loops = [
            loop
            for loop in plan.feeding
            if (reader := plan.reader_of(loop)) is not None and reader.name == instance
        ]
        self._queues = {loop: ThreadQueue(1, stopped) for loop in self.loops}
        """Of (iteration, batch); None: that was the last."""
        self.header_bytes = dict.fromkeys(self.loops, 0)
        """What was sent beside payload, by loop."""
        self._recorders = {loop: new_recorder() for loop in self.loops}

    def start(self) -> list[threading.Thread]:
        """Start the parsing thread and the senders."""
        sending = [
            beside_loops(partial(self._send, loop), loop.name, self.failed) for loop in self.loops
        ]
        return [*sending, beside_loops(self._parse, "parse", self.failed)]

    @book("reader", READING)
    def _parse(self) -> None:
        for loop, iteration, batch in stream_of(self.plan, self.loops, self.reading, self._first):
            self._queues[loop].put((iteration, batch))
        for loop in self.loops:
            self._queues[loop].put(None)

    @book("sender", TRANSPORT)
    def _send(self, loop: LoopId) -> None:
        target, tag = loop.trainer, _tag(self.plan, loop)
        while (item := self._queues[loop].take()) is not None:
            iteration, batch = cast("tuple[int, NumpyBatch]", item)
            begin = self.clock()
            buffer = torch.from_numpy(pack(batch))
            size = torch.tensor([buffer.numel()])
            dist.send(size, target, group=self.group, tag=tag)
            dist.send(buffer, target, group=self.group, tag=tag + 1)
            # The packed form's own header is not content.
            sent = buffer.numel() - HEADER_BYTES
            self.header_bytes[loop] += size.nbytes + HEADER_BYTES
            span = Span(
                self.instance,
                loop.name,
                iteration,
                "serve_next_batch",
                "reader",
                begin,
                self.clock(),
                sent,
            )
            self._recorders[loop].add(span)
        dist.send(torch.tensor([0]), target, group=self.group, tag=tag)
