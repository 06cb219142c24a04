"""Effects: everything a training program can ask of the world.

Theory of operation
-------------------
A strategy is a set of ``async def`` loops that await the values defined here. An effect holds a
request and nothing else. Whoever drives the loop (``coro.send``) decides what the request costs and
what it returns: the simulator answers with modelled time and values without content, the executor
with tensors. No event loop is involved.

What this file must NOT know: SimPy, torch, processes, sockets, costs, the names of strategies.
The vocabulary is closed: a new effect is a change to both worlds (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from recsim_train.strategy.operations import Operation
from recsim_train.strategy.values import Batch, Block, Dense, Ids, Parts, Rows, Sparse

T = TypeVar("T")
V = TypeVar("V", bound=Block)


class Effect(Generic[T]):
    """A request to the runtime. Awaiting it suspends the loop until the answer is there."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[T], T, T]:
        return (yield self)


@dataclass(slots=True, eq=False)
class NextBatch(Effect["Batch | None"]):
    """The next mini-batch of this loop from its bounded reader queue; ``None`` after the last."""


class Compute(Effect[T]):
    """Run one named operation on this host's cores; see `recsim_train.strategy.operations`."""

    __slots__ = ("arguments", "operation")

    def __init__(self, operation: Operation[T], *arguments: object) -> None:
        self.operation = operation
        self.arguments = arguments


@dataclass(slots=True, eq=False)
class Lookup(Effect[Rows]):
    """Read embeddings of ``ids`` from every shard of ``service`` at once.

    The answer holds pooled vectors [tables, batch, dim] where the service pools, else one row
    [dim] for each unique id of each table.
    """

    service: str
    ids: Ids


@dataclass(slots=True, eq=False)
class Update(Effect[None]):
    """Send the gradient of a `Lookup`'s answer back to the shards.

    A service that applies gradients on arrival lets the loop go on once they are delivered; one
    that applies them together answers after all clients' gradients have been applied.
    """

    service: str
    gradient: Rows


@dataclass(slots=True, eq=False)
class Fetch(Effect[Rows]):
    """Read rows of distinct ``ids`` with their optimizer's state: [ids, dim (+ 1)]."""

    service: str
    ids: Ids


@dataclass(slots=True, eq=False)
class Store(Effect[None]):
    """Overwrite rows and their optimizer's state; answers once every shard has done so."""

    service: str
    rows: Rows


@dataclass(slots=True, eq=False)
class Pull(Effect[Dense]):
    """Fetch the current central dense parameters from every shard of ``service``."""

    service: str


@dataclass(slots=True, eq=False)
class Push(Effect[None]):
    """Send a dense gradient, or the entries of one that are worth sending; each shard applies its
    part with its own optimizer on arrival.

    ``add``: it is a difference, and each shard adds it to its copy instead of stepping with it.
    """

    service: str
    gradient: Dense | Sparse
    add: bool = False


@dataclass(slots=True, eq=False)
class Exchange(Effect[Dense]):
    """Elastic averaging with the central copy: send w, receive alpha * (w - w_central).

    The shard moves its copy by the same difference, both computed from the old values
    (EASGD: Zhang, Choromanska and LeCun 2015, eq. 5 and 6). ``central`` "new": the answer uses the
    copy as it is after that move.
    """

    service: str
    parameters: Dense
    alpha: float
    central: Literal["old", "new"] = "old"


@dataclass(slots=True, eq=False)
class AllReduce(Effect[V]):
    """Mean (or sum) of ``value`` over the members of ``group``; every member receives it."""

    value: V
    group: str
    op: Literal["mean", "sum"] = "mean"


@dataclass(slots=True, eq=False)
class AllGather(Effect[Parts]):
    """Every member's ``value``, in member order, at every member; sizes may differ."""

    value: Block
    group: str


@dataclass(slots=True, eq=False)
class AllToAll(Effect[Parts]):
    """Part number j goes to member j of ``group``; the answer holds what each member sent here.

    All messages of one pair of members travel as one; a part without content is not sent.
    """

    parts: Parts
    group: str


@dataclass(slots=True, eq=False)
class Agree(Effect[bool]):
    """Whether every member of ``group`` says yes; without a group, this loop's own answer.

    A loop that consumes no batches begins a new round with each `Agree`, so that "until all have
    finished" reads ``while not await Agree(self.finished, group)``; a last round with nothing in it
    but this is none. One flag travels, no payload.
    """

    yes: bool
    group: str | None = None


@dataclass(slots=True, eq=False)
class Put(Effect[None]):
    """Hand ``item`` to another loop of this trainer; waits while ``queue`` is full."""

    queue: str
    item: object


@dataclass(slots=True, eq=False)
class Take(Effect[Any]):
    """The oldest item of a queue of this trainer; waits while there is none."""

    queue: str


@dataclass(slots=True, eq=False)
class Now(Effect[float]):
    """Seconds since the run started, on the clock of this world."""


@dataclass(slots=True, eq=False)
class Synced(Effect[None]):
    """This trainer's dense parameters have just met those of others: takes no time, sends nothing.

    Between two of them lies the sync gap, by whatever effects a strategy synchronises.
    """


EFFECTS: tuple[type[Effect[Any]], ...] = (
    NextBatch,
    Compute,
    Lookup,
    Update,
    Fetch,
    Store,
    Pull,
    Push,
    Exchange,
    AllReduce,
    AllGather,
    AllToAll,
    Agree,
    Put,
    Take,
    Now,
    Synced,
)


class batches:  # noqa: N801 - reads as a word: `async for batch in batches()`
    """``async for batch in batches()``: every mini-batch of this loop, in stream order."""

    def __aiter__(self) -> batches:
        return self

    async def __anext__(self) -> Batch:
        batch = await NextBatch()
        if batch is None:
            raise StopAsyncIteration
        return batch
