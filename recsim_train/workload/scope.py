"""The sizes that the cost of one invocation of an operation depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsim_train.config.experiment import Model, Training
from recsim_train.config.formats import GENERATED
from recsim_train.workload.arithmetic import Piece


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
    skipped: float = 0.0
    """Of reading: rows of others that are passed over for them."""
    source: str = GENERATED
    """Of reading: the format of the file in `recsim_train.config.formats.FORMATS`."""
