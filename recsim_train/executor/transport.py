"""Requests and answers between loops and shards over gloo: tagged point-to-point messages.

Two groups of all ranks, one for each direction (both directions of a pair in one group run nearly
half duplex). Tags tell loops, shards and message kinds apart, so that threads can share the groups.
A request is a header of one size and, where it carries content, one payload; an answer is its
payload alone, because the asker knows its size. What headers and payloads say is told in wire.py.

Payload bytes are counted from the tensors that are handed over, never from a formula.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

from recsim_train.placement.plan import Plan


class Service(IntEnum):
    """Which service a shard belongs to."""

    EMBEDDING = 0
    DENSE = 1


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
    header_bytes: int
    """Of the longest header that a request may have."""
    shards: int = field(init=False)

    def __post_init__(self) -> None:
        embedding = self.plan.embedding.shards if self.plan.embedding else ()
        dense = self.plan.dense.shards if self.plan.dense else ()
        self.shards = max(len(embedding), len(dense), 1)

    def tag(self, client: int, service: Service, shard: int) -> int:
        """First of the two tags of one client's talk with one shard."""
        return ((client * len(Service) + service) * self.shards + shard) * 2

    def empty_header(self) -> Tensor:
        """A buffer for what every header is sent as: the payload's bytes, then its content."""
        return torch.empty(1 + self.header_bytes // 8, dtype=torch.int64)

    def header(self, payload_bytes: int, content: bytes) -> Tensor:
        """int64, padded: all headers are of one size."""
        padded = payload_bytes.to_bytes(8, "little") + content.ljust(self.header_bytes, b"\0")
        return torch.frombuffer(bytearray(padded), dtype=torch.int64)


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

    def request(
        self, pending: Pending, header: bytes, payload: Tensor | None, answer: Tensor | None
    ) -> None:
        """Send a request and receive into ``answer``, under way until ``pending`` is waited for."""
        tag = self.links.tag(self.client, self.service, self.shard)
        # The receive first: the answer may be quick.
        if answer is not None and answer.numel():
            pending.add(dist.irecv(answer, self.rank, group=self.links.down, tag=tag), answer)
        size = 0 if payload is None else size_of(payload)
        head = self.links.header(size, header)
        pending.add(dist.isend(head, self.rank, group=self.links.up, tag=tag), head)
        if payload is not None and size:
            pending.bytes += size
            work = dist.isend(payload, self.rank, group=self.links.up, tag=tag + 1)
            pending.add(work, payload)


@dataclass(frozen=True, slots=True)
class Port:
    """The shard's end of the same talk."""

    links: Links
    client: int
    service: Service
    shard: int
    rank: int
    """Rank of the client's process."""

    def next_request(self) -> tuple[bytes, int]:
        """Wait, as long as the client lives, for the next request: header and bytes of payload."""
        head = self.links.empty_header()
        tag = self.links.tag(self.client, self.service, self.shard)
        dist.recv(head, self.rank, group=self.links.up, tag=tag)
        return head[1:].numpy().tobytes(), int(head[0])

    def payload(self, size: int) -> Tensor:
        """The payload of the request at hand: uint8 [size]."""
        buffer = torch.empty(size, dtype=torch.uint8)
        if size:
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
