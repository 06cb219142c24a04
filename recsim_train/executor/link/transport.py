"""How requests travel between loops and shards: what clients and servers see of it.

A request is a header, whose content is told in shards/wire.py, and where it carries content a
payload; an answer is its payload alone, because the asker knows its size. Payload bytes are counted
from the tensors that are handed over, never from a formula.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from recsim_train.executor.books import booked
from recsim_train.executor.link.connections import Asker
from recsim_train.executor.link.tensors import Answer
from recsim_train.executor.shards import wire
from recsim_train.trace.ledger import TRANSPORT


class Connections:
    """The connections of one client, which go on side by side. Used by one thread.

    What the system does not take at once is sent to all servers as each of them reads, and answers
    are taken as they come: a link that waited until another server is served would be idle, and
    with it, where many clients do so, a server. Where nothing can be gained by looking, which costs
    a call of the system, one connection after the other is waited for.

    Everything here raises ConnectionError where a server is gone and TimeoutError where none of
    those that something is to come from or to go to does anything.
    """

    def __init__(self) -> None:
        self.askers: list[Asker] = []

    def send(self) -> None:
        """Until the system has taken all that has been asked."""
        while unsent := [asker for asker in self.askers if asker.unsent]:
            going = [asker for asker in self.askers if asker.under_way]
            if len(going) == 1 and going[0].under_way == select.POLLOUT:
                unsent[0].flush()
            else:
                _go_on(going)

    def wait(self, due: Mapping[Asker, int]) -> None:
        """Until each of these connections has brought the answer of this number."""
        for asker in self.askers:
            if asker.unsent or asker.large:
                self._wait_for_any(due)
                break
        for asker, number in due.items():
            asker.wait(number)

    def _wait_for_any(self, due: Mapping[Asker, int]) -> None:
        """As `wait`, until one after the other will do."""
        while any(asker.unsent or asker.large for asker in self.askers):
            going = [asker for asker in self.askers if asker.under_way]
            if len(going) == 1 or all(asker.answered >= due[asker] for asker in due):
                break
            _go_on(going)
        self.send()


def _go_on(askers: list[Asker]) -> None:
    """Wait until one of them can go on; all that can do."""
    poll, by_file = select.poll(), {}
    for asker in askers:
        by_file[file := asker.fileno()] = asker
        poll.register(file, asker.under_way)
    timeout = askers[0].timeout
    ready = poll.poll(None if timeout is None else timeout * 1e3)
    if not ready:
        raise askers[0].late()
    for file, events in ready:
        by_file[file].go_on(events)


class ServiceKind(IntEnum):
    """Which service a shard belongs to."""

    EMBEDDING = 0
    DENSE = 1


_BOOKED = booked(TRANSPORT)
Key = tuple[ServiceKind, int]
"""A shard: its service and its index."""


class Pending:
    """Requests of one effect under way, with the tensors that must live until they are answered."""

    __slots__ = ("_due", "_lines", "_waits", "bytes")

    def __init__(self) -> None:
        self._waits: list[Callable[[], object]] = []
        self._lines: Connections | None = None
        self._due: dict[Asker, int] = {}
        self.bytes = 0
        """Payload bytes handed to the transport by this side."""

    def add(self, wait: Callable[[], object]) -> None:
        """Something that returns once a message has arrived."""
        self._waits.append(wait)

    def asked(self, lines: Connections, asker: Asker, number: int = 0) -> None:
        """Over one of a client's lines: until the answer of this number has arrived; 0: none is
        awaited."""
        self._lines, self._due[asker] = lines, max(number, self._due.get(asker, 0))

    def send(self) -> None:
        """Until all that was asked is under way, or has been taken by the system.

        Raises TimeoutError or ConnectionError where that does not happen.
        """
        for asker in self._due:
            if asker.unsent:
                assert self._lines is not None
                with _BOOKED:
                    self._lines.send()

    def wait(self) -> None:
        """Until all have been answered, or delivered where there is no answer.

        Raises RuntimeError, TimeoutError or ConnectionError where that does not happen.
        """
        if not self._waits and self._lines is None:
            return
        with _BOOKED:
            if self._lines is not None:
                self._lines.wait(self._due)
            for wait in self._waits:
                wait()
        self._waits.clear()
        self._due.clear()


class Channel(Protocol):
    """One client loop's end of its talk with one remote shard."""

    def room(self, size: int) -> NDArray[np.uint8] | None:
        """Memory from which a payload can be sent without being copied; None: there is none."""

    def request(
        self, pending: Pending, header: bytes, parts: Sequence[Tensor], answer: Answer | None
    ) -> None:
        """Ask something: with ``parts`` as payload, and answered by ``answer``; under way until
        ``pending`` has been waited for. Of a large one a part may not have been sent before
        `Pending.send`."""


def stop_talk(pending: Pending, channel: Channel) -> None:
    """Say that nothing more is asked; answered once all that was asked before has been done."""
    channel.request(pending, wire.encode(wire.StopRequest()), (), wire.acknowledgement())


class Port(Protocol):
    """A process's end of its talk with one client."""

    head_bytes: int
    """Bytes that requests and answers had so far beside their payload."""

    def next_request(self) -> tuple[Key, bytes, int]:
        """Wait, as long as the client lives, for the next request: shard, header, payload bytes."""

    def payload(self, size: int) -> Tensor:
        """The payload of the request at hand: uint8 [size], good until the next one is fetched."""

    def answer(self, tensor: Tensor) -> None:
        """Send an answer."""


class Transport(Protocol):
    """Of one process: how its loops reach shards and its shards are reached."""

    def channel(self, client: int, key: Key, rank: int) -> Channel:
        """A client's way to a shard in the process of this rank."""

    def ports(self, client: int, rank: int, keys: Collection[Key]) -> Sequence[Port]:
        """Where requests of a client in the process of this rank arrive, for shards here."""

    def stop(self, client: int) -> None:
        """Tell every process that this client has a way to that it asks no more; returns once all
        that it has asked is done."""
