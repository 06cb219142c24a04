"""Requests and answers between loops and shards over gloo: tagged point-to-point messages.

Two groups of all ranks, one for each direction (both directions of a pair in one group run nearly
half duplex). Tags tell loops, shards and message kinds apart, so that threads can share the groups.
A request is a fixed header and, where it carries content, one payload; an answer is its payload
alone, because the asker knows its size.

Payload bytes are counted from the tensors that are handed over, never from a formula.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

from recsim_train.placement.plan import Plan

HEADER_FIELDS = 6


class Kind(IntEnum):
    """What a request asks."""

    LOOKUP = 1
    UPDATE = 2
    PULL = 3
    PUSH = 4
    EXCHANGE = 5
    STOP = 6
    EXCHANGE_NEW = 7
    PUSH_SPARSE = 8
    FETCH = 9
    STORE = 10


class Service(IntEnum):
    """Which service a shard belongs to."""

    EMBEDDING = 0
    DENSE = 1


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of a request."""

    kind: Kind
    iteration: int = -1
    payload_bytes: int = 0
    batch: int = 0
    """Examples; of a sparse push, entries."""
    alpha: float = 0.0
    counts: tuple[int, ...] = ()
    """Ids of each slice."""

    def encode(self, slots: int) -> Tensor:
        """int64 [HEADER_FIELDS + slots]."""
        bits = struct.unpack("<q", struct.pack("<d", self.alpha))[0]
        fixed = [self.kind, self.iteration, self.payload_bytes, self.batch, bits, len(self.counts)]
        return torch.tensor([*fixed, *self.counts, *[0] * (slots - len(self.counts))])

    @staticmethod
    def decode(tensor: Tensor) -> Header:
        """The inverse of `encode`."""
        kind, iteration, payload, batch, bits, length, *counts = tensor.tolist()
        alpha = struct.unpack("<d", struct.pack("<q", bits))[0]
        return Header(Kind(kind), iteration, payload, batch, alpha, tuple(counts[:length]))


def join(tensors: list[Tensor]) -> Tensor:
    """One contiguous payload: a single tensor as it is, several as bytes."""
    if len(tensors) == 1:
        return tensors[0].contiguous()
    return torch.cat([t.contiguous().view(-1).view(torch.uint8) for t in tensors])


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor's content."""
    return tensor.numel() * tensor.element_size()


@dataclass(slots=True)
class Links:
    """The groups of one process and the rules that number tags."""

    plan: Plan
    timeout: timedelta
    up: dist.ProcessGroup
    down: dist.ProcessGroup
    slots: int = field(init=False)
    shards: int = field(init=False)

    def __post_init__(self) -> None:
        embedding = self.plan.embedding.shards if self.plan.embedding else ()
        dense = self.plan.dense.shards if self.plan.dense else ()
        self.slots = max([len(shard.slices) for shard in embedding], default=0)
        self.shards = max(len(embedding), len(dense), 1)

    def tag(self, client: int, service: Service, shard: int) -> int:
        """First of the three tags of one client's talk with one shard."""
        return ((client * len(Service) + service) * self.shards + shard) * 2

    def empty_header(self) -> Tensor:
        """A buffer for a header."""
        return torch.empty(HEADER_FIELDS + self.slots, dtype=torch.int64)


class Pending:
    """Messages under way, with the tensors that must live until they have arrived."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._works: list[tuple[dist.Work, Tensor]] = []
        self.bytes = 0
        """Payload bytes handed to the transport by this side."""

    def add(self, work: dist.Work | None, tensor: Tensor) -> None:
        """Keep a message until `wait`."""
        assert work is not None
        self._works.append((work, tensor))

    def wait(self) -> None:
        """Until all have been delivered. Raises RuntimeError after the time-out."""
        for work, _ in self._works:
            work.wait(self._timeout)
        self._works.clear()


@dataclass(frozen=True, slots=True)
class Channel:
    """One client loop's end of its talk with one remote shard."""

    links: Links
    client: int
    service: Service
    shard: int
    rank: int
    """Rank of the process that holds the shard."""

    def request(self, pending: Pending, header: Header, payload: Tensor | None) -> None:
        """Send a request; it is under way until ``pending`` has been waited for."""
        tag = self.links.tag(self.client, self.service, self.shard)
        head = header.encode(self.links.slots)
        pending.add(dist.isend(head, self.rank, group=self.links.up, tag=tag), head)
        if payload is not None and payload.numel():
            pending.bytes += size_of(payload)
            work = dist.isend(payload, self.rank, group=self.links.up, tag=tag + 1)
            pending.add(work, payload)

    def expect(self, pending: Pending, answer: Tensor) -> None:
        """Post the receive of an answer; post it before the request is sent."""
        if answer.numel():
            tag = self.links.tag(self.client, self.service, self.shard)
            work = dist.irecv(answer, self.rank, group=self.links.down, tag=tag)
            pending.add(work, answer)


@dataclass(frozen=True, slots=True)
class Port:
    """The shard's end of the same talk."""

    links: Links
    client: int
    service: Service
    shard: int
    rank: int
    """Rank of the client's process."""

    def next_request(self) -> Header:
        """Wait for the next request's header, as long as the client lives."""
        head = self.links.empty_header()
        tag = self.links.tag(self.client, self.service, self.shard)
        dist.recv(head, self.rank, group=self.links.up, tag=tag)
        return Header.decode(head)

    def payload(self, buffer: Tensor) -> Tensor:
        """Receive the payload of the request at hand into ``buffer``."""
        if buffer.numel():
            tag = self.links.tag(self.client, self.service, self.shard)
            dist.recv(buffer, self.rank, group=self.links.up, tag=tag + 1)
        return buffer

    def answer(self, tensor: Tensor) -> int:
        """Send an answer; returns its payload bytes."""
        if not tensor.numel():
            return 0
        pending = Pending(self.links.timeout)
        tag = self.links.tag(self.client, self.service, self.shard)
        pending.add(dist.isend(tensor, self.rank, group=self.links.down, tag=tag), tensor)
        pending.wait()
        return size_of(tensor)
