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

import re
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Literal, ParamSpec, TypeVar

from recsim_train.strategy.operations import Operation
from recsim_train.strategy.values import Batch, Block, Dense, Ids, Parts, Rows, Sparse

T = TypeVar("T")
P = ParamSpec("P")
V = TypeVar("V", bound=Block)


class End:
    """What `NextItem` answers after the last item."""


class Later:
    """What `NextBatch` answers while batches that were taken early have to be computed first."""


END: Final = End()
LATER: Final = Later()


class Effect(Generic[T]):
    """A request to the runtime. Awaiting it suspends the loop until the answer is there."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name in records: ``AllReduce`` is "all_reduce"."""

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __await__(self) -> Generator[Effect[T], T, T]:
        return (yield self)

    @property
    def about(self) -> str:
        """The service, group, queue or operation that it names, as records have it."""
        return ""


@dataclass(slots=True, eq=False)
class NextBatch(Effect["Batch | Later | None"]):
    """The next mini-batch of this loop from its bounded reader queue; ``None`` after the last.

    Where a checkpoint is due before it, `LATER` as long as some are ``held``; then the loop stands
    still here until the checkpoint is made.

    A new iteration begins with it, unless another queue paces the loop or it is taken ``early``,
    for a later one. ``held``: batches taken early that are still to be computed: where there are
    some, an iteration begins after the last batch, too.
    """

    early: bool = False
    held: int = 0

    @property
    def about(self) -> str:
        return "reader"


class Compute(Effect[T]):
    """Run one named operation on this host's cores; see `recsim_train.strategy.operations`."""

    __slots__ = ("arguments", "operation")

    def __init__(self, operation: Operation[P, T], *arguments: P.args, **named: P.kwargs) -> None:
        if named:
            raise TypeError(f"Compute({operation.name}) takes its arguments by place")
        self.operation: Operation[..., T] = operation
        self.arguments: tuple[object, ...] = arguments

    @property
    def about(self) -> str:
        return self.operation.name


@dataclass(slots=True, eq=False)
class _OfService(Effect[T]):
    """A request to every shard of a service."""

    service: str

    @property
    def about(self) -> str:
        return self.service


@dataclass(slots=True, eq=False)
class Lookup(_OfService[Rows]):
    """Read embeddings of ``ids`` from every shard of ``service`` at once.

    The answer holds pooled vectors [tables, batch, dim] where the service pools, else one row
    [dim] for each unique id of each table.
    """

    ids: Ids


@dataclass(slots=True, eq=False)
class Update(_OfService[None]):
    """Send the gradient of a `Lookup`'s answer back to the shards, in the order of the lookups.

    A service that applies gradients on arrival lets the loop go on once they are delivered; one
    that applies them together answers after all clients' gradients have been applied.
    """

    gradient: Rows


@dataclass(slots=True, eq=False)
class Fetch(_OfService[Rows]):
    """Read rows of distinct ``ids`` with their optimizer's state: [ids, dim (+ 1)]."""

    ids: Ids


@dataclass(slots=True, eq=False)
class Store(_OfService[None]):
    """Overwrite rows and their optimizer's state; answers once every shard has done so."""

    rows: Rows


@dataclass(slots=True, eq=False)
class Pull(_OfService[Dense]):
    """Fetch the current central dense parameters from every shard of ``service``."""


@dataclass(slots=True, eq=False)
class Push(_OfService[None]):
    """Send a dense gradient, or the entries of one that are worth sending; each shard applies its
    part with its own optimizer on arrival.

    ``add``: it is a difference, and each shard adds it to its copy instead of stepping with it.
    """

    gradient: Dense | Sparse
    add: bool = False


@dataclass(slots=True, eq=False)
class Exchange(_OfService[Dense]):
    """Elastic averaging with the central copy: send w, receive alpha * (w - w_central).

    The shard moves its copy by the same difference, both computed from the old values
    (EASGD: Zhang, Choromanska and LeCun 2015, eq. 5 and 6). ``central`` "new": the answer uses the
    copy as it is after that move.
    """

    parameters: Dense
    alpha: float
    central: Literal["old", "new"] = "old"


@dataclass(frozen=True, slots=True, eq=False)
class Handle(Generic[T]):
    """A request that goes on while its loop does other things, for one `Wait` in that loop."""

    request: Effect[T]
    line: str
    """``file:line`` of its `Start`."""
    iteration: int
    """In which it was started: where its time and bytes are recorded."""
    began: float
    lane: int
    """From 1: the lowest that no other request of the loop has, which is where records keep it."""
    under_way: Any
    """What the world needs to finish it."""


@dataclass(slots=True, eq=False)
class Start(Effect[Handle[T]], Generic[T]):
    """Send a request to a service and go on; a `Wait` for the handle brings its answer.

    The loop itself prepares what travels and does the work of shards in its own process, before it
    goes on. Every handle is waited for, once, before the loop ends. ``ahead``: for which iteration
    it is, counted from the present one; records and bytes go there.
    """

    request: _OfService[T]
    ahead: int = 0

    @property
    def about(self) -> str:
        return self.request.kind


@dataclass(slots=True, eq=False)
class Wait(Effect[T], Generic[T]):
    """The answer of a started request, as awaiting the request itself would have brought it."""

    handle: Handle[T]

    @property
    def about(self) -> str:
        return self.handle.request.kind


class _OfGroup(Effect[T]):
    """What the members of a group do together."""

    __slots__ = ()
    group: str

    @property
    def about(self) -> str:
        return self.group


@dataclass(slots=True, eq=False)
class AllReduce(_OfGroup[V]):
    """Mean (or sum) of ``value`` over the members of ``group``; every member receives it."""

    value: V
    group: str
    op: Literal["mean", "sum"] = "mean"


@dataclass(slots=True, eq=False)
class AllGather(_OfGroup[Parts]):
    """Every member's ``value``, in member order, at every member; sizes may differ."""

    value: Block
    group: str


@dataclass(slots=True, eq=False)
class AllToAll(_OfGroup[Parts]):
    """Part number j goes to member j of ``group``; the answer holds what each member sent here.

    All messages of one pair of members travel as one; a part without content is not sent.
    """

    parts: Parts
    group: str


@dataclass(slots=True, eq=False)
class NextRound(Effect[bool]):
    """Begin a round of a loop that consumes nothing; whether it is the last one.

    It is where every member of ``group`` says that it is ``last``; without a group, this loop
    alone. One flag travels, no payload. A round with nothing in it but this is none.
    """

    last: bool
    group: str | None = None

    @property
    def about(self) -> str:
        return self.group or ""


@dataclass(slots=True, eq=False)
class _OfQueue(Effect[T]):
    """What a loop does with a queue between loops of this trainer."""

    queue: str

    @property
    def about(self) -> str:
        return self.queue


@dataclass(slots=True, eq=False)
class Put(_OfQueue[None]):
    """Hand ``item`` to another loop of this trainer; waits while ``queue`` is full."""

    item: object


@dataclass(slots=True, eq=False)
class Take(_OfQueue[Any]):
    """The oldest item of a queue of this trainer; waits while there is none."""


@dataclass(slots=True, eq=False)
class NextItem(_OfQueue[Any]):
    """Begin an iteration of the loop that ``queue`` paces: its oldest item, `END` after `Close`."""


@dataclass(slots=True, eq=False)
class Close(_OfQueue[None]):
    """Say that nothing more will be put into a queue that paces a loop."""


@dataclass(slots=True, eq=False)
class Barrier(Effect[int]):
    """Wait until every loop of this trainer that shares ``barrier`` and has not ended is there.

    The answer is how many they are, this one included. It may be used again at once.
    """

    barrier: str

    @property
    def about(self) -> str:
        return self.barrier


@dataclass(slots=True, eq=False)
class Progress(Effect[int]):
    """Wait until this trainer's training loops have ended ``iterations`` iterations together, of
    the whole run, or none of them will end any more. The answer is how many they have ended.

    For loops that do not train themselves. A training loop will end no more once it has had the
    end of its data and done what it does before its next effect.
    """

    iterations: int

    @property
    def about(self) -> str:
        return "training"


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
    NextItem,
    NextRound,
    Compute,
    Lookup,
    Update,
    Fetch,
    Store,
    Pull,
    Push,
    Exchange,
    Start,
    Wait,
    AllReduce,
    AllGather,
    AllToAll,
    Put,
    Take,
    Close,
    Barrier,
    Progress,
    Now,
    Synced,
)


REQUESTS: tuple[type[Effect[Any]], ...] = (Lookup, Update, Fetch, Store, Pull, Push, Exchange)
"""What services are asked; all of it may be started."""
COLLECTIVE: tuple[type[Effect[Any]], ...] = (AllReduce, AllGather, AllToAll)
LOCAL: tuple[type[Effect[Any]], ...] = (
    NextBatch,
    NextItem,
    Compute,
    Wait,
    Put,
    Take,
    Close,
    Barrier,
    Progress,
    Now,
)
"""What a trainer does by itself."""


async def batches() -> AsyncIterator[Batch]:
    """``async for batch in batches()``: every mini-batch of this loop, in stream order."""
    while isinstance(batch := await NextBatch(), Batch):
        yield batch


async def items(queue: str) -> AsyncIterator[Any]:
    """``async for item in items(queue)``: what another loop puts into the queue that paces this."""
    while (item := await NextItem(queue)) is not END:
        yield item


async def rounds(ended: Callable[[], bool], group: str | None = None) -> AsyncIterator[bool]:
    """``async for last in rounds(ended, group)``: until all members have ended; the last included.

    ``ended``: asked at the beginning of each round.
    """
    last = False
    while not last:
        last = await NextRound(ended(), group)
        yield last
