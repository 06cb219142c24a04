"""One pass through a net that is cut over the hosts of a group: a part that strategies compose.

Placement decides where the net is cut and what crosses each cut (`NetRequest` says how); a strategy
sees the cuts as plain data and moves the values. Forward, the segment before a cut runs, what it
leaves crosses, the next segment runs. Backward is the mirror image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsim_train.strategy.effects import AllGather, AllReduce, AllToAll, Compute
from recsim_train.strategy.operations import (
    NET_BACKWARD,
    NET_FORWARD,
    NET_GRADIENTS,
    NET_OPEN,
    NET_RECEIVE,
    NET_RETURN,
)
from recsim_train.strategy.values import Batch, Block, NetGradients, Parts, Rows

Crossing = Literal["none", "sum", "move", "scatter", "gather"]
"""How a cut is crossed. none: every host has what it needs; sum: partial results are added up for
all; move: each host sends others what their operators read; scatter: partial results are added up,
each host keeps those of its own examples; gather: each host's part goes to all."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut between two segments of the net."""

    index: int
    forward: Crossing
    backward: Crossing


@dataclass(frozen=True, slots=True)
class Net:
    """What a strategy may know of its group's net."""

    cuts: tuple[Cut, ...] = ()
    shares: bool = False
    """Whether some parameters live at several hosts, so that their gradients are summed."""


@dataclass(frozen=True, slots=True)
class NetRequest:
    """How placement is to cut the net; see `recsim_train.placement`.

    ``tags``: operators run data-parallel or at one host, messages in ``precision``; ``substitute``:
    operators over embeddings are replaced by sub-operators beside their weights.
    """

    kind: Literal["tags", "substitute"]
    hosts: int = 0
    """Hosts of one group; 0: all trainers."""
    pins: str = ""
    precision: Literal["full", "float16", "bfloat16"] = "full"
    keep: float | None = None
    """Share of each example's values that crosses a cut (DCT); None: all."""
    mask: Literal["table", "sample"] = "table"
    """Of pooled embeddings: of each table's values, or of all of an example's. Other values belong
    to no table: theirs is always of all."""
    outer: bool = False
    """Whether groups are synchronised with each other: every ``every`` iterations, for choosing
    tags; with a ``central`` copy on servers or by all-reduce over the ``groups``."""
    central: bool = False
    every: int = 1
    groups: int = 1
    partition: Literal["field", "hash", "column"] = "field"
    top: Literal["replicated", "split"] = "replicated"
    flops: float = 8e10
    """Assumed floating-point operations per second of one thread, for choosing tags."""
    bandwidth: float = 3.125e9
    """Assumed bytes per second of a host's link, for choosing tags."""
    latency: float = 1e-4
    """Assumed seconds of a step of a collective beside its bytes, for choosing tags."""


async def through(net: Net, batch: Batch, rows: Rows, group: str) -> NetGradients:
    """Forward and backward of the batch through the group's net."""
    tape = await Compute(NET_OPEN, batch, rows)
    for cut in net.cuts:
        value = await Compute(NET_FORWARD, tape, cut.index)
        await Compute(NET_RECEIVE, tape, cut.index, await cross(cut.forward, value, group))
    for cut in reversed(net.cuts):
        value = await Compute(NET_BACKWARD, tape, cut.index)
        await Compute(NET_RETURN, tape, cut.index, await cross(cut.backward, value, group))
    gradients: NetGradients = await Compute(NET_GRADIENTS, tape)
    return gradients


async def cross(how: Crossing, value: Block | Parts, group: str) -> Block | Parts:
    """Move what one host has at a cut."""
    if how == "sum" and isinstance(value, Block):
        total: Block = await AllReduce(value, group, "sum")
        return total
    if how == "gather" and isinstance(value, Block):
        return await AllGather(value, group)
    if how in ("move", "scatter") and isinstance(value, Parts):
        return await AllToAll(value, group)
    return value
