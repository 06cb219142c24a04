"""How requests travel between loops and shards: over one connection for each client and process
that holds shards.

A request is a header, whose content is told in shards/wire.py, and where it carries content a
payload; an answer is its payload alone, because the asker knows its size. Payload bytes are counted
from the tensors that are handed over, never from a formula.
"""

from __future__ import annotations

import ipaddress
import secrets
import select
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C._distributed_c10d import Store

from recsim_train.config.errors import RunFailed
from recsim_train.executor.books import booked
from recsim_train.executor.link.connections import (
    HEAD_BYTES,
    TOKEN_BYTES,
    Answerer,
    Asker,
    ClientListener,
    connect,
)
from recsim_train.executor.link.rendezvous import interface_address
from recsim_train.executor.link.ring import Buffer
from recsim_train.executor.link.tensors import Answer, memory_of
from recsim_train.executor.part import LostPeerError
from recsim_train.executor.shards import wire
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import header_bytes
from recsim_train.trace.ledger import TRANSPORT

_NOTHING = torch.empty(0, dtype=torch.uint8)
_ACKNOWLEDGED = memory_of(wire.ACKNOWLEDGED)
_SHARD = struct.Struct("<Q")
"""A header's first word: which of the process's shards of the request's service is asked."""
_BOOKED = booked(TRANSPORT)


Key = tuple[str, int]
"""A shard: its service, as strategies name it, and its index."""


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


class Pending:
    """Requests of one effect under way."""

    __slots__ = ("_due", "_lines", "bytes")

    def __init__(self) -> None:
        self._lines: Connections | None = None
        self._due: dict[Asker, int] = {}
        self.bytes = 0
        """Payload bytes handed to the transport by this side."""

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

        Raises TimeoutError or ConnectionError where that does not happen.
        """
        if self._lines is None:
            return
        with _BOOKED:
            self._lines.wait(self._due)
        self._due.clear()


def address_said(said: bytes, peer: str) -> str:
    """The address that a process has left in the store. Raises RunFailed where it is none."""
    try:
        address = said.decode("ascii")
        host, _, port = address.rpartition(":")
        ipaddress.ip_address(host.partition("%")[0])
        if not 0 < int(port) < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise RunFailed(f"{peer} left {said[:40]!r} in the store, which is no address") from None
    return address


class Transport:
    """Of one process: how its loops reach shards and its shards are reached. Addresses and the
    run's token are exchanged in a store."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        store: Store,
        timeout: timedelta,
        askers: Collection[int],
        labels: Sequence[str] = (),
    ) -> None:
        """``askers``: clients in other processes that may ask something here; ``labels``: of each
        process, as sentences name it."""
        self._header_bytes = header_bytes(plan)
        self._shares = plan.experiment.execution.shared_memory
        self._store, self._timeout = store, timeout.total_seconds()
        self._labels = labels or [instance.name for instance in plan.instances]
        self._askers: dict[tuple[int, int], Asker] = {}
        self._lines: dict[int, Connections] = {}
        """Of each client."""
        if rank == 0:
            store.set("requests/token", secrets.token_hex(TOKEN_BYTES // 2))
        self._token: bytes = store.get("requests/token")
        self._here = interface_address()
        self._listener: ClientListener | None = None
        if askers:
            size = _SHARD.size + self._header_bytes
            self._listener = ClientListener(self._here, self._token, askers, size, self._timeout)
            store.set(f"requests/{rank}", self._listener.address)

    def channel(self, client: int, shard: int, rank: int) -> Channel:
        """A client's way to a shard in the process of this rank."""
        asker, label = self._askers.get((client, rank)), self._labels[rank]
        lines = self._lines.setdefault(client, Connections())
        if asker is None:
            address = address_said(self._store.get(f"requests/{rank}"), label)
            near = self._shares and address.rpartition(":")[0] == self._here
            try:
                asker = connect(address, self._token, client, self._timeout, near=near)
            except TimeoutError as error:
                raise TimeoutError(f"{label} did not answer: {error}") from error
            except OSError as error:
                raise LostPeerError(label) from error
            asker.peer = label
            self._askers[client, rank] = asker
            lines.askers.append(asker)
        return Channel(lines, asker, _SHARD.pack(shard), self._header_bytes)

    def port(self, client: int, rank: int) -> Port:
        """Where requests of one of the askers arrive, which is in the process of this rank."""
        assert self._listener is not None
        return Port(self._listener, client, self._labels[rank])

    def stop(self, client: int) -> None:
        """Tell every process that this client has a way to that it asks no more; returns once all
        that it has asked is done."""
        pending = Pending()
        if (lines := self._lines.get(client)) is not None:
            for asker in lines.askers:
                channel = Channel(lines, asker, _SHARD.pack(0), self._header_bytes)
                stop = wire.encode(wire.StopRequest())
                channel.request(pending, stop, (), wire.acknowledgement())
        pending.wait()


@dataclass(frozen=True, slots=True)
class Channel:
    """One client loop's end of its talk with one remote shard."""

    lines: Connections
    """All of the client."""
    asker: Asker
    shard: bytes
    header_bytes: int

    def room(self, size: int) -> NDArray[np.uint8] | None:
        """Memory from which a payload can be sent without being copied; None: there is none."""
        return self.asker.room(size)

    @booked(TRANSPORT)
    def request(
        self, pending: Pending, header: bytes, parts: Sequence[Tensor], answer: Answer | None
    ) -> None:
        """Ask something: with ``parts`` as payload, and answered by ``answer``; under way until
        ``pending`` has been waited for. Of a large one a part may not have been sent before
        `Pending.send`."""
        content: Sequence[Buffer] = ()
        if parts:
            content = [memory_of(part.contiguous()) for part in parts]
            pending.bytes += sum(map(len, content))
        head = self.shard + header.ljust(self.header_bytes, b"\0")
        if answer is None or not answer.size:
            self.asker.ask(head, content)
            pending.asked(self.lines, self.asker)
        else:
            pending.asked(self.lines, self.asker, self.asker.ask(head, content, answer))


class Port:
    """A process's end of its talk with one client."""

    def __init__(self, listener: ClientListener, client: int, peer: str) -> None:
        """``peer``: the client's process, as sentences name it."""
        self._listener, self._client, self._peer = listener, client, peer
        self._answerer: Answerer | None = None
        self.head_bytes = 0
        """Bytes that requests and answers had so far beside their payload; an acknowledgement has
        none."""

    def next_request(self) -> tuple[int, bytes, int]:
        """Wait, as long as the client lives, for the next request: index of the shard, header,
        payload bytes."""
        if self._answerer is None:
            self._answerer = self._listener.client(self._client)
            self._answerer.peer = self._peer
        head, size = self._answerer.next()
        self.head_bytes += HEAD_BYTES + len(head)
        return _SHARD.unpack_from(head)[0], head[_SHARD.size :], size

    def payload(self, size: int) -> Tensor:
        """The payload of the request at hand: uint8 [size], good until the next one is fetched."""
        assert self._answerer is not None
        if not size:
            return _NOTHING
        return torch.frombuffer(self._answerer.payload(), dtype=torch.uint8)

    @booked(TRANSPORT)
    def answer(self, tensor: Tensor) -> None:
        """Send an answer."""
        assert self._answerer is not None
        if tensor is wire.ACKNOWLEDGED:
            self.head_bytes += HEAD_BYTES + len(_ACKNOWLEDGED)
            self._answerer.answer(_ACKNOWLEDGED)
        elif tensor.numel():
            self.head_bytes += HEAD_BYTES
            self._answerer.answer(memory_of(tensor.contiguous()))
