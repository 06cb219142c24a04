"""What a strategy is: options, the services and groups it needs, and its loops.

A strategy is a dataclass. Its fields are its keys in the YAML and its lines in ``--help``; its
``async def`` methods are its algorithm. It imports the standard library and
`recsim_train.strategy`, nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from recsim_train.strategy.effects import Effect

T = TypeVar("T")
Program = Callable[[], Coroutine[Effect[Any], Any, None]]

EMBEDDING = "embedding"
DENSE = "dense"
TRAINERS = "trainers"


def option(
    default: T, *, help: str, minimum: float | None = None, maximum: float | None = None
) -> T:
    """A strategy's setting: a dataclass field with a help line and inclusive limits."""
    metadata = {"help": help, "minimum": minimum, "maximum": maximum}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class EmbeddingService:
    """The embedding tables, one copy in the job, sharded over embedding servers.

    ``pooling``: where bags are summed. "server": pooled vectors travel; "worker": rows of unique
    ids travel. ``apply``: "on_arrival" (asynchronous, Hogwild) or "together" (the sum of all
    trainers' gradients is applied once all have arrived, and then acknowledged).
    """

    name: str = EMBEDDING
    pooling: Literal["server", "worker"] = "server"
    apply: Literal["on_arrival", "together"] = "on_arrival"


@dataclass(frozen=True, slots=True)
class DenseService:
    """A central copy of the dense parameters, sharded over dense servers."""

    name: str = DENSE


@dataclass(frozen=True, slots=True)
class Group:
    """A collective group of one loop per trainer."""

    name: str
    loop: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that every trainer runs ``copies`` times, each copy in a thread of its own.

    A loop that trains (``consumes_batches``) has its own reader queue and counts iterations.
    """

    name: str
    program: Program
    copies: int = 1
    consumes_batches: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """What a strategy needs from the cluster."""

    loops: tuple[Loop, ...]
    services: tuple[EmbeddingService | DenseService, ...]
    groups: tuple[Group, ...] = ()


class Strategy:
    """Base of all strategies. One instance lives in each trainer; its loops share ``self``."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    lock_step: ClassVar[bool] = False
    """Whether all trainers advance together, with one worker thread each."""

    def topology(self, threads: int) -> Topology:
        """The loops, services and groups of one trainer with ``threads`` worker threads."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Bring the weights to be evaluated into trainer 0's replica. Runs once, after training."""
