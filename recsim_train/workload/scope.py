"""The description of an operation (`Op`), and the sizes of one call on which its cost depends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from recsim_train.config.experiment import Model, Training
from recsim_train.config.formats import GENERATED
from recsim_train.workload.arithmetic import Piece, Work


@dataclass(frozen=True, slots=True)
class Scope:
    """What the size of one invocation depends on.

    ``batch``: examples; ``ids``: ids in the batch or, for a shard's operation, those routed to the
    shard; ``unique``: distinct (table, id) pairs among them; ``tables``: tables or slices touched;
    ``elements``: dense parameters or activations touched; ``kept``: those of them that a
    compression keeps; ``shards``: shards a client talks to.
    """

    model: Model
    training: Training
    pooling: Literal["server", "worker"] = "server"
    batch: float = 0.0
    ids: float = 0.0
    unique: float = 0.0
    tables: int = 0
    elements: int = 0
    shards: int = 1
    pieces: tuple[Piece, ...] = ()
    """Of a net that is cut: which operators one segment runs."""
    numbers: float = 0.0
    """Of a net that is cut: numbers that are put together for a cut, or taken apart."""
    kept: float = 0.0
    batches: float = 1.0
    """Of reading: batches of ``batch`` examples that are made together, of ``ids`` ids in all."""
    texts: float = 0.0
    """Of reading: how many of the ids are read as text."""
    decoded: float = 1.0
    """Of reading: rows that are decoded for each one of a batch."""
    source: str = GENERATED
    """Of reading: `recsim_train.config.formats.FILES`, or the generator."""


Cell = tuple[str, Scope]
"""An operation, and one shape of it."""


class Divided(NamedTuple):
    """Of one operation, the operators that threads share."""

    work: Work
    """Of all of them; `recsim_train.workload.threads.CLASSES` says what of it is shared."""
    wakes: float
    """How often they wake the pool."""


NOTHING = Divided({}, 0)


@dataclass(frozen=True, slots=True)
class Op:
    """What the model knows of an operation; its kernel is the executor's."""

    cost: Callable[[Scope], Work]
    """Counts of priced work."""
    divided: Callable[[Scope], Divided] = lambda _: NOTHING
    """What of that work threads share."""
    fit: str = field(kw_only=True)
    """The group of micro-workloads to which calibration fits the unit prices of such work, and by
    whose residuals they are judged."""
    net_pass: bool = False
    """Whether it is a net's pass, or what one is cut into."""
