"""What all streams of batches are: batches for some loops, in order; which rows are held out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.malformed import Malformed


class Fed(NamedTuple):
    """A batch and whom it is for."""

    position: int
    """The loop's place in the stream (`recsim_train.placement.plan.Plan.feeding`)."""
    iteration: int
    """The loop's iteration, from 0."""
    batch: NumpyBatch


class Dealt(NamedTuple):
    """The batches that a stream deals: see `recsim_train.data.stream.open_stream`."""

    batch_size: int
    positions: Sequence[int]
    total: int
    iterations: int
    first: int = 0


class BatchStream(Iterator[Fed]):
    """Batches for some loops, in stream order."""

    def __init__(self, dealt: Dealt) -> None:
        self.batch_size, positions, total, iterations, first = dealt
        if not all(0 <= p < total for p in positions) or len(set(positions)) < len(positions):
            raise ValueError(f"positions {list(positions)} are not distinct places among {total}")
        self.malformed = Malformed()
        """Malformed lines met in the batches made so far."""
        self.rows = 0
        """Examples in the batches made so far."""
        order = sorted(positions)
        self._places = ((p, k) for k in range(first, iterations) for p in order)
        self._total = total

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Passes over the training rows begun so far."""

    def __next__(self) -> Fed:
        position, iteration = next(self._places)
        batch = self._make(iteration * self._total + position)
        self.rows += batch.size
        return Fed(position, iteration, batch)

    @abstractmethod
    def _make(self, index: int) -> NumpyBatch:
        """The stream's batch number ``index``; numbers only ever rise."""

    def check(self) -> None:
        """Raise RunFailed where too many of the rows so far were malformed; the generator's are
        well-formed. To be asked at the end of a stream that deals every batch; of others, their
        shares together count."""


def held_out_rows(data: Data, rows: int) -> tuple[int, int]:
    """Of ``rows`` rows those that are held out: the first, and where they end."""
    count = min(data.eval_rows, rows)
    if data.eval_share is not None:
        count = round(data.eval_share * rows)
        if data.holds_out and rows:
            count = max(1, count)  # of few rows too some are
    return (rows - count, rows) if data.eval_from == "end" else (0, count)


def training_rows(data: Data, rows: int, name: str) -> tuple[int, int]:
    """Of ``rows`` rows those that are trained on: the first, and where they end.

    Raises UserError where none is left. ``name``: of the files.
    """
    first, stop = 0, rows
    if data.eval_path is None:
        begin, end = held_out_rows(data, rows)
        first, stop = (0, begin) if data.eval_from == "end" else (end, rows)
    if stop <= first:
        raise UserError(
            f"{name} has {rows:,} rows, all of which are held out (data.eval_rows, "
            "data.eval_share): none is left to train on"
            if rows
            else f"{name} has no rows"
        )
    return first, min(stop, first + (data.limit_rows or rows))
