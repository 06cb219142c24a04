"""What a strategy is: options, the services and groups it needs, and its loops.

A strategy is a dataclass. Its fields are its keys in the YAML and its lines in ``--help``; its
``async def`` methods are its algorithm. It imports the standard library and
`recsim_train.strategy`, nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from recsim_train.strategy.effects import Effect
from recsim_train.strategy.net import Net, NetRequest

T = TypeVar("T")
Program = Coroutine[Effect[Any], Any, None]

EMBEDDING = "embedding"
DENSE = "dense"
TRAINERS = "trainers"


def option(
    default: T,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    share: bool = False,
) -> T:
    """A setting of a strategy or a part: a dataclass field with a help line and inclusive limits.

    ``share``: a fraction of one that is written in per cent.
    """
    return dataclasses.field(
        default=default,
        metadata={"help": help, "minimum": minimum, "maximum": maximum, "share": share},
    )


@dataclass(frozen=True, slots=True)
class EmbeddingService:
    """The embedding tables, one copy in the job, sharded over embedding servers.

    ``pooling``: where bags are summed. "server": pooled vectors travel; "worker": rows of unique
    ids travel. ``apply``: "on_arrival" (asynchronous, Hogwild) or "together" (the mean of all
    trainers' gradients is applied once all have arrived, and then acknowledged). ``keep``: share
    of each example's pooled values at a shard that travels, the largest by size, of each table by
    itself or of all tables together (``mask``); with "server" pooling only.
    """

    name: str = EMBEDDING
    pooling: Literal["server", "worker"] = "server"
    apply: Literal["on_arrival", "together"] = "on_arrival"
    group: int = 0
    """Trainers whose gradients are applied together, 0: all of them. Trainers 0 to group-1 are the
    first group, and so on; groups do not wait for each other."""
    access: Literal["all", "own"] = "all"
    """Which shards a lookup asks: all, or only the one in the loop's own process."""
    partition: Literal["balanced", "field", "hash", "column"] = "balanced"
    """How tables are cut into shards: balanced by cost; whole tables; ids by remainder; columns."""
    keep: float | None = None
    mask: Literal["table", "sample"] = "table"


@dataclass(frozen=True, slots=True)
class DenseService:
    """A central copy of the dense parameters, sharded over dense servers."""

    name: str = DENSE


@dataclass(frozen=True, slots=True)
class Group:
    """A collective group of one loop per trainer.

    ``size``: trainers in one group, 0: all of them. Trainers 0 to size-1 form the first group, and
    so on. ``across``: instead, the trainers with one place in their groups of ``size`` form one.
    """

    name: str
    loop: str
    size: int = 0
    across: bool = False


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A bounded queue between two loops of one trainer; see `Put` and `Take`."""

    name: str
    capacity: int


@dataclass(frozen=True, slots=True)
class LocalBarrier:
    """Where loops of one trainer, with all their copies, wait for each other; see `Barrier`."""

    name: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowCache:
    """Embedding rows that each trainer keeps: of every table, a range of ids is its own.

    ``rows``: slots per trainer; 0: ``share`` of the trainer's own rows. ``keep``: whether rows stay
    after their step; otherwise there is a slot for every row of a step, and no more.
    """

    rows: int = 0
    share: float = 1.0
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that every trainer runs ``copies`` times, each copy in a thread of its own.

    ``name``: the strategy's method that is its program. ``consumes_batches``: it has a reader queue
    of its own, and an iteration begins with each `NextBatch`; ``batch``: its own batch of the
    stream, or the batches of all trainers in one. ``paced_by``: an iteration begins with each
    `NextItem` of that queue instead. ``trains``: its iterations are the job's iterations. A loop
    without batches and pace runs in the background: a round of it begins with each `NextRound`.
    """

    name: str
    copies: int = 1
    consumes_batches: bool = True
    batch: Literal["own", "global"] = "own"
    paced_by: str | None = None
    trains: bool = True

    @property
    def background(self) -> bool:
        """Whether it neither trains nor feeds a loop that does."""
        return not self.consumes_batches and self.paced_by is None

    @property
    def training(self) -> bool:
        """Whether its iterations are the job's iterations."""
        return self.trains and not self.background


@dataclass(frozen=True, slots=True)
class Topology:
    """What a strategy needs from the cluster.

    ``thresholded``: the effect, if any, that carries what passes a threshold: its size depends on
    the data. ``residual``: whether every loop then keeps what it has not sent [dense parameters].
    ``steady``: whether later steps are like earlier ones; where not, a prediction runs all of them.
    ``period``: after how many steps a loop does the same again.
    ``ahead``: batches that each training loop has prepared besides the present one, looked up or,
    where there is a ``cache``, as ids: what memory is counted by.
    """

    loops: tuple[Loop, ...]
    services: tuple[EmbeddingService | DenseService, ...]
    groups: tuple[Group, ...] = ()
    queues: tuple[LocalQueue, ...] = ()
    barriers: tuple[LocalBarrier, ...] = ()
    net: NetRequest | None = None
    thresholded: str | None = None
    residual: bool = True
    steady: bool = True
    period: int = 1
    cache: RowCache | None = None
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class JobSize:
    """What options that follow the job's size are made from."""

    trainers: int
    dense_servers: int
    batch: int
    """Examples of all trainers together in one step."""
    tables: tuple[tuple[int, int], ...]
    """(rows, most ids of one example) of every table."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which trainer of how many an instance of a strategy lives in."""

    trainer: int = 0
    trainers: int = 1
    threads: int = 1
    """Worker threads of each of its trainers."""
    net: Net = field(default_factory=Net)
    """The cuts of the group's net, where the topology asks for one."""


class Strategy:
    """Base of all strategies. One instance lives in each trainer; its loops share ``self``."""

    place: Place = Place()
    """Set before any loop starts."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    lock_step: ClassVar[bool] = False
    """Whether all trainers advance together, iteration by iteration. From that follows that each
    has one worker thread, whose operations run on ``training.threads`` threads each, and that
    nothing is stale but what is looked up ahead. Else there are so many Hogwild worker threads,
    with operations on one."""

    def follow(self, job: JobSize) -> dict[str, object]:
        """Options that were left to the job's size, and what they come to for this one."""
        return {}

    def topology(self, threads: int) -> Topology:
        """The loops, services and groups of one trainer with ``threads`` worker threads."""
        raise NotImplementedError

    def problems(self) -> list[str]:
        """What is wrong with the options together, one sentence each."""
        return []

    def notes(self) -> list[str]:
        """What whoever reads results must know of the options, without a full stop each."""
        return []

    def program(self, loop: str) -> Program:
        """A fresh coroutine of the loop of that name, not started."""
        made: Program = getattr(self, loop)()
        return made

    async def finish(self) -> None:
        """Bring the weights to be evaluated into trainer 0's replica. Runs once, after training."""
