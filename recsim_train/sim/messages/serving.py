"""Connections of client loops to shards, and the requests that go over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from recsim_train.placement.transport import ACKNOWLEDGEMENT_BYTES, ANSWER_HEAD, BUFFER_BYTES
from recsim_train.sim.engine import Event, Steps
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Process, Thread
from recsim_train.sim.pricing import NOTHING, Priced, Pricing, plus
from recsim_train.sim.queues import Countdown, JointWork, Mailbox
from recsim_train.sim.records import Chain, Series


@dataclass(slots=True)
class Request:
    """What a client sends to a shard, and what the shard does with it."""

    payload: int
    """Bytes that the client hands to the transport."""
    work: Priced
    """The operation at the shard; with a barrier, what comes before it."""
    answer: int = 0
    """Payload bytes of the answer; 0: none, or it only says that the work is done."""
    acknowledged: bool = False
    """Whether an answer without payload says so."""
    uncopied: bool = False
    """Whether the payload was made in the memory from which it is sent."""
    gathered: bool = False
    """Whether the client copies the answer into a vector that several answers make."""
    rounded: tuple[int, int] = (0, 0)
    """Numbers of the payload, and of the answer, that are narrowed to travel and widened then."""
    barrier: JointWork | None = None
    """All clients' requests are worked on together; ``contribution`` is this one's part."""
    contribution: tuple[int, int] = (0, 0)
    # What sending adds:
    iteration: int = -1
    overhead: Priced = NOTHING
    """The runtime's own work at the shard."""
    purpose: str = ""
    series: Series = field(init=False)
    """Where the shard records that it has served this."""
    served: Callable[[int], None] = field(init=False)
    """Called with the iteration once the shard is done with the request."""
    done: Countdown = field(init=False)
    """Counts answers, or deliveries of requests that get none."""
    sent: float = 0.0
    """When the client sent it."""
    arrived: Event = field(init=False)
    moving: float = 0.0
    """Seconds that its bytes take if alone, their latency included."""

    @property
    def answers(self) -> bool:
        """Whether the client waits for an answer."""
        return self.answer > 0 or self.acknowledged or self.barrier is not None


class _Moving(NamedTuple):
    """A message in a connection."""

    taken: Event | None
    """When the system's buffers have taken it; None: at once."""
    arrived: Event
    until_taken: float
    """Seconds if alone."""
    alone: float
    """Seconds until it has arrived."""


class Direction:
    """One direction of a connection, in which messages follow each other."""

    def __init__(self, machines: Machines, source: Process, target: Process) -> None:
        self._machines, self._source, self._target = machines, source, target
        self._route = machines.route(source, target, whose=self)
        self._latency = machines.latency_of(source, target)
        self._last: Event | None = None
        """When the message before has arrived."""

    def move(self, size: int, head: int, copies: int) -> _Moving:
        """Send a message. ``copies``: where memory is shared, 1 into it, 2 with that out of it to
        its place; 0: it has been made there."""
        machines, source, target, route = self._machines, self._source, self._target, self._route
        latency = self._latency
        if machines.shares(source, target, size):
            whole = machines.copy(source, target, size, head, delay=latency, copies=copies)
            return _Moving(None, whole.done, 0.0, whole.alone)
        beyond, taken, first = max(0, size - BUFFER_BYTES), None, 0.0
        by_frames = machines.by_frames(route)
        if beyond and by_frames:
            taken, first = machines.move(route, beyond, head, latency)
            whole = machines.move(route, BUFFER_BYTES, 0, latency)
            return _Moving(taken, whole.done, first, first + BUFFER_BYTES / route.rate)
        alone = self._last is None or self._last.processed
        # in a look what follows may pass with what comes before it
        alone = alone or (machines.at_once > 0.0 and not machines.engine.shared)
        if by_frames or (beyond == 0 and alone):
            whole = machines.move(route, size, head, latency)
            self._last = whole.done
            return _Moving(None, whole.done, 0.0, whole.alone)
        delay = latency + machines.farther([source, target])
        if beyond:
            taken, first = machines.engine.event(), delay + (beyond + head) / route.rate
        following = self._parts(self._last, delay, size, head, taken)
        self._last = machines.engine.process(following)
        return _Moving(taken, self._last, first, delay + (size + head) / route.rate)

    def _parts(
        self, before: Event | None, delay: float, size: int, head: int, taken: Event | None
    ) -> Steps:
        """The message's bytes after those of the one before, and of these the last that buffers
        hold after the others."""
        move, engine = partial(self._machines.stream, self._route), self._machines.engine
        if before is not None and not before.processed:
            began = engine.now
            yield before
            delay = max(0.0, began + delay - engine.now)
        if taken is None:
            yield move(size, head, delay=delay)
            return
        yield move(size - BUFFER_BYTES, head, delay=delay)
        taken.succeed()
        yield move(BUFFER_BYTES, 0)


class Connection:
    """A client loop's connection to a process with shards, and the thread there that serves it,
    strictly in order, whichever shard is asked.

    Bytes move as soon as they are sent, and the thread takes requests once they have arrived.
    Whoever sends goes on at once if the system's buffers hold the message, else when all but
    `BUFFER_BYTES` of it have moved. None fills the buffers for the next one: a loop that would run
    far ahead awaits answers, too.
    """

    def __init__(
        self,
        machines: Machines,
        pricing: Pricing,
        head: int,
        client: Process,
        host: Process,
        name: str,
    ) -> None:
        """``head``: bytes before a request's payload; ``name``: by which the thread keeps its
        core."""
        self._machines, self._pricing, self._head = machines, pricing, head
        self._client = client
        self._thread = Thread(host, "server", name)
        self._inbox = Mailbox(machines.engine)
        self._there = Direction(machines, client, host)
        self._back = Direction(machines, host, client)
        machines.engine.process(self._serve())

    def send(self, request: Request) -> None:
        """The client sends a request."""
        clock = self._machines.engine.clock
        request.sent = clock()
        copies = 0 if request.uncopied else 1
        moving = self._there.move(request.payload, self._head, copies)
        request.arrived, request.moving = moving.arrived, moving.alone
        taken, alone = moving.taken, moving.until_taken
        self._inbox.put(request)
        if request.answers:
            return
        if taken is None:
            request.done.arrive()
        else:
            taken.callbacks.append(
                lambda _: request.done.arrive(Chain(0.0, alone, 0.0, clock() - request.sent))
            )

    def _serve(self) -> Steps:
        machines, pricing = self._machines, self._pricing
        engine = machines.engine
        message = pricing.messages(1)
        compute = partial(machines.compute, self._thread, client=self._client)
        while True:
            request: Request = yield self._inbox.get()
            yield request.arrived
            start, answers = engine.now, request.answers
            send = message if answers else NOTHING
            waited = 0.0
            then = send if request.barrier is None else NOTHING
            work = plus(message, request.overhead, request.work, then)
            served, working = compute(work, request.purpose)
            yield served
            if request.barrier is not None:
                met = engine.now
                yield request.barrier.arrive(request.contribution, self._thread)
                waited = engine.now - met
                if waited > 0.0:  # woken a second time
                    send = plus(request.overhead, send)
                served, more = compute(send, request.purpose)
                working += more
                yield served
            if answers:
                head = ANSWER_HEAD + (0 if request.answer else ACKNOWLEDGEMENT_BYTES)
                back = self._back.move(request.answer, head, 2 if request.gathered else 1)
                moving = request.moving + back.alone
                told = partial(_answered, request, working, moving, waited, engine.clock)
                back.arrived.callbacks.append(told)
                if back.taken is not None:
                    yield back.taken
            request.series.add(request.iteration, start, engine.now, request.answer)
            request.served(request.iteration)


def _answered(
    request: Request,
    working: float,
    moving: float,
    waited: float,
    clock: Callable[[], float],
    _: Event,
) -> None:
    """The client has the answer."""
    request.done.arrive(Chain(working, moving, waited, clock() - request.sent))
