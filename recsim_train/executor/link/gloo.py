"""What travels over gloo: collectives, and requests as tagged point-to-point messages.

Of collectives there is one process group for each group of the plan and each loop in it. Parts of
any size travel as bytes: first one all-to-all of sizes, then one of content, because gloo's
all-gather wants equal sizes and a receiver must know how much comes.

Of requests there are two groups of all ranks, one for each direction (both directions of a pair in
one group run nearly half duplex). Tags tell loops, shards and message kinds apart, so that threads
can share the groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from recsim_train.executor.books import booked
from recsim_train.executor.link.tensors import Answer, as_bytes
from recsim_train.executor.link.transport import Key, Pending, ServiceKind, stop_talk
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import header_bytes
from recsim_train.trace.ledger import COLLECTIVES, TRANSPORT

B = TypeVar("B", bound=RealBlock | RealDense | RealRows)


@dataclass(slots=True)
class Collective:
    """One group for collectives, as one member sees it."""

    group: dist.ProcessGroup | None
    """None where the group has one member."""
    members: int
    place: int = 0
    """This process's place among the members."""

    @booked(COLLECTIVES)
    def all_reduce(self, value: B, op: str) -> tuple[B, int]:
        """(mean or sum over the members, payload bytes handed over)."""
        if self.group is None:
            return value, 0
        total = value.tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        if op == "mean":
            total.div_(self.members)
        return dataclasses.replace(value, tensor=total), total.nbytes

    @booked(COLLECTIVES)
    def all_gather(self, value: B) -> tuple[RealParts, int]:
        """(every member's value, payload bytes that leave this member)."""
        parts, sent = self.all_to_all(RealParts((value.tensor,) * self.members))
        shape = value.tensor.shape[1:]
        return RealParts(tuple(part.view(-1, *shape) for part in parts.tensors)), sent

    @booked(COLLECTIVES)
    def all_to_all(self, parts: RealParts) -> tuple[RealParts, int]:
        """(flat tensors of what each member sent here, payload bytes that leave this member).

        All members' parts have one type.
        """
        if self.group is None:
            return RealParts(tuple(part.reshape(-1) for part in parts.tensors)), 0
        kind = parts.tensors[0].dtype
        flat = [part.contiguous().view(-1) for part in parts.tensors]
        sizes = torch.tensor([part.numel() for part in flat])
        coming = torch.empty_like(sizes)
        dist.all_to_all_single(coming, sizes, group=self.group)
        expected = coming.tolist()
        received = torch.empty(sum(expected), dtype=kind)
        dist.all_to_all_single(received, torch.cat(flat), expected, sizes.tolist(), self.group)
        left = sum(part.nbytes for place, part in enumerate(flat) if place != self.place)
        return RealParts(torch.split(received, expected)), left

    @booked(COLLECTIVES)
    def agree(self, yes: bool) -> bool:
        """Whether all members say yes."""
        if self.group is None:
            return yes
        flag = torch.tensor([int(yes)])
        dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=self.group)
        return bool(flag.item())


class GlooTransport:
    """The groups of one process and the rules that number tags."""

    def __init__(
        self, plan: Plan, timeout: timedelta, up: dist.ProcessGroup, down: dist.ProcessGroup
    ) -> None:
        self.timeout, self.up, self.down = timeout, up, down
        services = [service for service in (plan.embedding, plan.dense) if service]
        self._shards = max(len(service.shards) for service in services) if services else 1
        self.header_bytes = header_bytes(plan)
        self._channels: dict[int, list[GlooChannel]] = {}

    def tag(self, client: int, key: Key) -> int:
        """First of the two tags of one client's talk with one shard."""
        service, shard = key
        return ((client * len(ServiceKind) + service) * self._shards + shard) * 2

    def channel(self, client: int, key: Key, rank: int) -> GlooChannel:
        channel = GlooChannel(self, self.tag(client, key), rank)
        self._channels.setdefault(client, []).append(channel)
        return channel

    def ports(self, client: int, rank: int, keys: Collection[Key]) -> Sequence[GlooPort]:
        """One for each shard."""
        return [GlooPort(self, self.tag(client, key), rank, key) for key in keys]

    def stop(self, client: int) -> None:
        pending = Pending()
        for channel in self._channels.pop(client, ()):
            stop_talk(pending, channel)
        pending.wait()


@dataclass(frozen=True, slots=True)
class GlooChannel:
    """A client's end of its talk with one shard: see `transport.Channel`."""

    links: GlooTransport
    tag: int
    rank: int
    """Of the process that holds the shard."""

    def room(self, size: int) -> None:
        """As `recsim_train.executor.link.transport.Channel.room`."""

    @booked(TRANSPORT)
    def request(
        self, pending: Pending, header: bytes, parts: Sequence[Tensor], answer: Answer | None
    ) -> None:
        # The receive first: the answer may be quick.
        if answer is not None and answer.size:
            room = torch.frombuffer(answer.room(), dtype=torch.uint8)
            self._add(pending, dist.irecv(room, self.rank, self.links.down, self.tag), room)
        payload = as_bytes(*parts) if parts else torch.empty(0, dtype=torch.uint8)
        # all headers are sent in one size, the payload's bytes before them
        sent = payload.nbytes.to_bytes(8, "little") + header.ljust(self.links.header_bytes, b"\0")
        head = torch.frombuffer(bytearray(sent), dtype=torch.int64)
        self._add(pending, dist.isend(head, self.rank, self.links.up, self.tag), head)
        if payload.numel():
            pending.bytes += payload.nbytes
            work = dist.isend(payload, self.rank, self.links.up, self.tag + 1)
            self._add(pending, work, payload)

    def _add(self, pending: Pending, work: dist.Work | None, tensor: Tensor) -> None:
        assert work is not None
        # the tensor lives as long as this waits to be called
        pending.add(lambda: (work.wait(self.links.timeout), tensor))


@dataclass(slots=True)
class GlooPort:
    """A shard's end of the same talk: see `transport.Port`."""

    links: GlooTransport
    tag: int
    rank: int
    """Of the client's process."""
    key: Key
    head_bytes: int = 0

    def next_request(self) -> tuple[Key, bytes, int]:
        """As `recsim_train.executor.link.transport.Port.next_request`."""
        head = torch.empty(1 + self.links.header_bytes // 8, dtype=torch.int64)
        dist.recv(head, self.rank, self.links.up, self.tag)
        self.head_bytes += head.nbytes
        return self.key, head[1:].numpy().tobytes(), int(head[0])

    def payload(self, size: int) -> Tensor:
        buffer = torch.empty(size, dtype=torch.uint8)
        if size:
            dist.recv(buffer, self.rank, self.links.up, self.tag + 1)
        return buffer

    @booked(TRANSPORT)
    def answer(self, tensor: Tensor) -> None:
        if tensor.numel():
            work = dist.isend(tensor, self.rank, self.links.down, self.tag)
            assert work is not None
            work.wait(self.links.timeout)
