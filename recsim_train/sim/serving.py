"""The thread at a shard that serves one client loop, and the requests that it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recsim_train.sim.accounts import Chain
from recsim_train.sim.engine import Steps
from recsim_train.sim.ledger import Series
from recsim_train.sim.machines import Machines, Process
from recsim_train.sim.pricing import NOTHING, Pricing, Seconds, plus
from recsim_train.sim.queues import Barrier, Countdown, Mailbox
from recsim_train.trace.ledger import REQUESTS

ANSWER = 1
"""Messages of an answer: the asker knows its size, so it has no header."""
ACKNOWLEDGEMENT_BYTES = 8
"""Bytes of an answer that says only that the request is done; not payload."""


def request_messages(payload: int) -> int:
    """Messages of a request: its header, and its payload if it has one."""
    return 2 if payload else 1


@dataclass(slots=True)
class Request:
    """What a client sends to a shard, and what the shard does with it."""

    payload: int
    """Bytes that the client hands to the transport."""
    work: Seconds
    """The operation at the shard; with a barrier, what comes before it."""
    answer: int = 0
    """Payload bytes of the answer; 0: none, or it only says that the work is done."""
    acknowledged: bool = False
    """Whether an answer without payload says so."""
    barrier: Barrier | None = None
    """All clients' requests are worked on together; ``contribution`` is this one's part."""
    contribution: tuple[int, int] = (0, 0)
    # What sending adds:
    iteration: int = -1
    purpose: str = ""
    series: Series = field(init=False)
    """Where the shard records that it has served this."""
    served: Callable[[int], None] = field(init=False)
    """Called with the iteration once the shard is done with the request."""
    done: Countdown = field(init=False)
    """Counts answers, or deliveries of requests that get none."""
    posted: float = 0.0
    """When its header arrived."""

    @property
    def answers(self) -> bool:
        """Whether the client waits for an answer."""
        return self.answer > 0 or self.acknowledged or self.barrier is not None


class ServingThread:
    """A thread at the shard's process that serves one client loop, strictly in order.

    Transfers are a rendezvous: a request's bytes move once its latency has passed and the thread
    has nothing else to do.
    """

    def __init__(self, machines: Machines, pricing: Pricing, client: Process, host: Process):
        self._machines = machines
        request = pricing.units(REQUESTS, request=1)
        self._send = pricing.messages(ANSWER)
        self._receive = [plus(pricing.messages(n), request) for n in (0, 1, 2)]
        """By messages."""
        self._client = client
        self._host = host
        self._inbox = Mailbox(machines.engine)
        machines.engine.process(self._serve())

    def post(self, request: Request) -> None:
        """The header of a request has arrived."""
        request.posted = self._machines.engine.now
        self._inbox.put(request)

    def _serve(self) -> Steps:
        machines, client, host = self._machines, self._client, self._host
        engine = machines.engine
        while True:
            request: Request = yield self._inbox.get()
            start, on_its_way = engine.now, machines.latency
            arriving = machines.transfer(client, host, request.payload)
            moving = on_its_way + machines.alone
            yield arriving
            answers = request.answers
            if not answers:
                spent = on_its_way + engine.now - request.posted
                request.done.arrive(Chain(0.0, moving, 0.0, spent))
            receive = self._receive[request_messages(request.payload)]
            send = self._send if answers else NOTHING
            waited = 0.0
            work = plus(receive, request.work, send if request.barrier is None else NOTHING)
            served = machines.compute(host, work, request.purpose, "server", client=client)
            working = machines.alone
            yield served
            if request.barrier is not None:
                met = engine.now
                yield request.barrier.arrive(request.contribution)
                waited = engine.now - met
                served = machines.compute(host, send, request.purpose, "server", client=client)
                working += machines.alone
                yield served
            if answers:
                yield engine.timeout(machines.latency)
                size = request.answer or ACKNOWLEDGEMENT_BYTES
                answering = machines.transfer(host, client, size, header=False)
                moving += machines.latency + machines.alone
                yield answering
                spent = on_its_way + engine.now - request.posted
                request.done.arrive(Chain(working, moving, waited, spent))
            request.series.add(request.iteration, start, engine.now, request.answer)
            request.served(request.iteration)
