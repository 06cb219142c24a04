"""A channel: one client loop's talk with one remote shard, and the thread there that serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recsim_train.sim.accounts import Chain
from recsim_train.sim.engine import Barrier, Countdown, Mailbox, Steps
from recsim_train.sim.ledger import Series
from recsim_train.sim.machines import Machines, Process
from recsim_train.sim.pricing import Pricing, Seconds, plus

ANSWER = 1
"""Messages of an answer: the asker knows its size, so it has no header."""
ACKNOWLEDGEMENT_BYTES = 8
"""Bytes of an answer that says only that the request is done; not payload."""


def request_messages(payload: int) -> int:
    """Messages of a request: its header, and its payload if it has one."""
    return 2 if payload else 1


_NOTHING: Seconds = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class Request:
    """What a client sends to a shard, and what the shard does with it.

    Of ``delivered`` and ``answered`` the client waits for one: that its bytes have arrived, or that
    the answer is back.
    """

    iteration: int
    payload: int
    """Bytes that the client hands to the transport."""
    work: Seconds
    """The operation at the shard; with a barrier, what comes before it."""
    purpose: str
    series: Series
    """Where the shard records that it has served this."""
    finished: Callable[[int], None]
    """Called with the iteration once the shard is done with the request."""
    answer: int = 0
    """Payload bytes of the answer; 0: no answer, or an acknowledgement where ``barrier``."""
    acknowledged: bool = False
    """Whether an answer without payload says that the work is done."""
    barrier: Barrier | None = None
    """All clients' requests are worked on together; ``contribution`` is this one's part."""
    contribution: tuple[int, int] = (0, 0)
    posted: float = 0.0
    """When its header arrived."""
    delivered: Countdown | None = None
    answered: Countdown | None = None


class Channel:
    """A thread at the shard's process that serves one client loop, strictly in order.

    Transfers are a rendezvous: a request's bytes move once its latency has passed and the thread
    has nothing else to do.
    """

    def __init__(self, machines: Machines, pricing: Pricing, client: Process, host: Process):
        self._machines = machines
        self._request = pricing.units(request=1)
        self._message = pricing.units(message=1)
        self._client = client
        self._host = host
        self._inbox = Mailbox(machines.engine)
        machines.engine.process(self._serve())

    def post(self, request: Request) -> None:
        """The header of a request has arrived."""
        request.posted = self._machines.engine.now
        self._inbox.put(request)

    def _messages(self, count: int) -> Seconds:
        total, held, unmeasured = self._message
        return total * count, held * count, unmeasured * count

    def _serve(self) -> Steps:
        machines, client, host = self._machines, self._client, self._host
        engine = machines.engine
        while True:
            request: Request = yield self._inbox.get()
            start, on_its_way = engine.now, machines.latency
            arriving = machines.transfer(client, host, request.payload)
            moving = on_its_way + machines.alone
            yield arriving
            if request.delivered is not None:
                spent = on_its_way + engine.now - request.posted
                request.delivered.arrive(Chain(0.0, moving, 0.0, spent))
            receive = plus(self._messages(request_messages(request.payload)), self._request)
            send = self._messages(ANSWER) if request.answered is not None else _NOTHING
            waited = 0.0
            if request.barrier is None:
                work = plus(receive, request.work, send)
                served = machines.compute(host, work, request.purpose, client=client)
                working = machines.alone
                yield served
            else:
                work = plus(receive, request.work)
                served = machines.compute(host, work, request.purpose, client=client)
                working = machines.alone
                yield served
                met = engine.now
                yield request.barrier.arrive(request.contribution)
                waited = engine.now - met
                served = machines.compute(host, send, request.purpose, client=client)
                working += machines.alone
                yield served
            if request.answered is not None:
                yield engine.timeout(machines.latency)
                size = request.answer or ACKNOWLEDGEMENT_BYTES
                answering = machines.transfer(host, client, size, header=False)
                moving += machines.latency + machines.alone
                yield answering
                spent = on_its_way + engine.now - request.posted
                request.answered.arrive(Chain(working, moving, waited, spent))
            request.series.add(request.iteration, start, engine.now, request.answer)
            request.finished(request.iteration)
