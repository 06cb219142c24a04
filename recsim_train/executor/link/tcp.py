"""Requests over connections of our own: one for each client and process that holds shards."""

from __future__ import annotations

import ipaddress
import secrets
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
from recsim_train.executor.link.transport import Connections, Key, Pending, ServiceKind, stop_talk
from recsim_train.executor.part import LostPeerError
from recsim_train.executor.shards.wire import ACKNOWLEDGED
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import header_bytes
from recsim_train.trace.ledger import TRANSPORT

_SERVICES = tuple(ServiceKind)
_NOTHING = torch.empty(0, dtype=torch.uint8)
_ACKNOWLEDGED = memory_of(ACKNOWLEDGED)
_KEY = struct.Struct("<II")
"""A header's first words: the shard that is asked."""


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


class TcpTransport:
    """The connections of one process. Addresses and the run's token are exchanged in a store."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        store: Store,
        timeout: timedelta,
        askers: Mapping[int, Collection[Key]],
        labels: Sequence[str] = (),
    ) -> None:
        """``askers``: clients in other processes, with what they may ask here; ``labels``: of each
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
        if any(askers.values()):
            clients = [number for number, keys in askers.items() if keys]
            size = _KEY.size + self._header_bytes
            self._listener = ClientListener(self._here, self._token, clients, size, self._timeout)
            store.set(f"requests/{rank}", self._listener.address)

    def channel(self, client: int, key: Key, rank: int) -> TcpChannel:
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
        return TcpChannel(lines, asker, _KEY.pack(*key), self._header_bytes)

    def ports(self, client: int, rank: int, keys: Collection[Key]) -> Sequence[TcpPort]:
        """One for all shards here."""
        return (
            [TcpPort(self._listener, client, self._labels[rank])] if keys and self._listener else []
        )

    def stop(self, client: int) -> None:
        pending = Pending()
        key = _KEY.pack(ServiceKind.EMBEDDING, 0)  # of one connection for all shards
        if (lines := self._lines.get(client)) is not None:
            for asker in lines.askers:
                stop_talk(pending, TcpChannel(lines, asker, key, self._header_bytes))
        pending.wait()


@dataclass(frozen=True, slots=True)
class TcpChannel:
    """A client's way to one shard: see `transport.Channel`."""

    lines: Connections
    """All of the client."""
    asker: Asker
    key: bytes
    header_bytes: int

    def room(self, size: int) -> NDArray[np.uint8] | None:
        return self.asker.room(size)

    @booked(TRANSPORT)
    def request(
        self, pending: Pending, header: bytes, parts: Sequence[Tensor], answer: Answer | None
    ) -> None:
        content: Sequence[Buffer] = ()
        if parts:
            content = [memory_of(part.contiguous()) for part in parts]
            pending.bytes += sum(map(len, content))
        head = self.key + header.ljust(self.header_bytes, b"\0")
        if answer is None or not answer.size:
            self.asker.ask(head, content)
            pending.asked(self.lines, self.asker)
        else:
            pending.asked(self.lines, self.asker, self.asker.ask(head, content, answer))


class TcpPort:
    """A process's end of its talk with one client: see `transport.Port`."""

    def __init__(self, listener: ClientListener, client: int, peer: str) -> None:
        """``peer``: the client's process, as sentences name it."""
        self._listener, self._client, self._peer = listener, client, peer
        self._answerer: Answerer | None = None
        self.head_bytes = 0

    def next_request(self) -> tuple[Key, bytes, int]:
        """As `recsim_train.executor.link.transport.Port.next_request`."""
        if self._answerer is None:
            self._answerer = self._listener.client(self._client)
            self._answerer.peer = self._peer
        head, size = self._answerer.next()
        service, shard = _KEY.unpack_from(head)
        if service >= len(_SERVICES):
            raise ValueError(f"a request of {self._peer} to service {service}, which is none")
        self.head_bytes += HEAD_BYTES + len(head)
        return (_SERVICES[service], shard), head[_KEY.size :], size

    def payload(self, size: int) -> Tensor:
        assert self._answerer is not None
        if not size:
            return _NOTHING
        return torch.frombuffer(self._answerer.payload(), dtype=torch.uint8)

    @booked(TRANSPORT)
    def answer(self, tensor: Tensor) -> None:
        assert self._answerer is not None
        if tensor.numel():
            self.head_bytes += HEAD_BYTES
            said = tensor is ACKNOWLEDGED
            self._answerer.answer(_ACKNOWLEDGED if said else memory_of(tensor.contiguous()))
