"""Collectives over gloo.

There is one process group for each group of the plan and each loop in it. Parts of any size travel
as bytes: first one all-to-all of sizes, then one of content, because gloo's all-gather wants equal
sizes and a receiver must know how much comes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from recsim_train.executor.books import booked
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.trace.ledger import COLLECTIVES

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
