"""The stream of training batches, and the held-out ones, from a file or from the generator.

The stream is one endless sequence of batches: training rows in order, ``batch_size`` at a time,
starting again at their end (a batch may straddle that place). Loop p of P takes the stream's
batches p, p + P, p + 2P ..., so whoever feeds a loop can make its batches alone, and which process
does the reading never changes what a loop learns from.

Training rows are those after the first ``data.eval_rows``, which are held out, or all of them where
``data.eval_path`` names a file of held-out rows; at most ``data.limit_rows`` of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recsim_train.config.checks import SAME_ROWS
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.files import same_rows
from recsim_train.data.generator import Generator
from recsim_train.data.source import Malformed, TrainingRows, check_file, open_source
from recsim_train.trace.facts import BeyondRows
from recsim_train.workload.reading import ROWS_TOGETHER

_IDS_TOGETHER = 8192
"""As `ROWS_TOGETHER`, of a stream of ids."""


class Fed(NamedTuple):
    """A batch and whom it is for."""

    position: int
    """The loop's place in the stream (`recsim_train.placement.plan.Plan.feeding`)."""
    iteration: int
    """The loop's iteration, from 0."""
    batch: NumpyBatch


class Dealt(NamedTuple):
    """The batches that a stream deals: see `open_stream`."""

    batch_size: int
    positions: Sequence[int]
    total: int
    iterations: int


class BatchStream(AbstractContextManager["BatchStream"]):
    """Batches for some loops, in stream order; an iterator and a context manager."""

    def __init__(self, dealt: Dealt) -> None:
        self.batch_size, positions, total, iterations = dealt
        if not all(0 <= p < total for p in positions) or len(set(positions)) < len(positions):
            raise ValueError(f"positions {list(positions)} are not distinct places among {total}")
        self.malformed = Malformed()
        """Malformed lines met in the batches made so far."""
        self.rows = 0
        """Examples in the batches made so far."""
        order = sorted(positions)
        self._places = ((p, k) for k in range(iterations) for p in order)
        self._total = total

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Passes over the training rows begun so far."""

    def __iter__(self) -> Iterator[Fed]:
        return self

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

    def close(self) -> None:
        """Close files, if there are any."""

    def __exit__(self, *error: object) -> None:
        self.close()


class _FileStream(BatchStream):
    """Rows of a file; those between the asked batches are passed over."""

    def __init__(self, model: Model, data: Data, path: str, dealt: Dealt) -> None:
        super().__init__(dealt)
        self._source = open_source(model, path, data.malformed_limit)
        self.malformed = self._source.malformed
        self._given = TrainingRows(
            self._source, held_out=held_out_rows(data), limit=data.limit_rows
        )
        self._next = 0

    @property
    def epochs(self) -> int:
        return self._given.passes

    def _make(self, index: int) -> NumpyBatch:
        self._given.skip((index - self._next) * self.batch_size)
        self._next = index + 1
        return self._source.batch(self._given.take(self.batch_size))

    def check(self) -> None:
        self._source.check()

    def close(self) -> None:
        self._given.close()


class _GeneratedStream(BatchStream):
    """Rows of the generator, several of these loops' batches at a time."""

    def __init__(self, model: Model, data: Data, dealt: Dealt, *, ids_only: bool) -> None:
        super().__init__(dealt)
        self._generator = Generator(model, data.synthetic)
        if not ids_only:
            self._generator.prepare_labels()
        self._first, self._rows = generated_rows(data)
        self._last_row = -1
        order = sorted(dealt.positions)
        numbers = (k * dealt.total + p for k in range(dealt.iterations) for p in order)
        self._ahead = self._batches(numbers, ids_only)

    def _batches(self, numbers: Iterator[int], ids_only: bool) -> Iterator[NumpyBatch]:
        size = self.batch_size
        together = max(1, (_IDS_TOGETHER if ids_only else ROWS_TOGETHER) // size)
        while several := list(islice(numbers, together)):
            starts = np.array(several, dtype=np.int64)[:, None] * size
            rows = (starts + np.arange(size)).reshape(-1) % self._rows + self._first
            yield from self._generator.batches(rows, size, ids_only=ids_only)

    @property
    def epochs(self) -> int:
        return self._last_row // self._rows + 1

    def _make(self, index: int) -> NumpyBatch:
        self._last_row = (index + 1) * self.batch_size - 1
        return next(self._ahead)


def open_stream(
    model: Model,
    data: Data,
    *,
    batch_size: int,
    positions: Sequence[int],
    total: int,
    iterations: int,
    ids_only: bool = False,
) -> BatchStream:
    """The batches of so many iterations for some loops.

    ``positions``: the loops' places, out of ``total`` that share the stream. Batches come in stream
    order: iteration by iteration, within one by position. ``ids_only``: labels and dense features
    are not looked at, and may be zeros.

    Raises UserError for a file that cannot be opened or a model that it cannot feed; while
    iterating RunFailed, for a file that ends early, cannot be read on, has a whole batch without
    one well-formed row, or more malformed rows than `Data.malformed_limit`.
    """
    dealt = Dealt(batch_size, positions, total, iterations)
    if data.path is not None:
        return _FileStream(model, data, data.path, dealt)
    return _GeneratedStream(model, data, dealt, ids_only=ids_only and len(positions) == total)


def held_out(model: Model, data: Data, batch_size: int) -> Iterator[NumpyBatch]:
    """The held-out rows in batches, the last of which may be short; none if eval_rows is 0.

    With ``data.eval_path`` they are that file's first ``data.eval_rows`` rows, or all that it has.
    Raises as `open_stream`.
    """
    if data.eval_rows == 0:
        return
    path = data.eval_path or data.path
    if path is not None:
        yield from open_source(model, path, data.malformed_limit).first(data.eval_rows, batch_size)
        return
    generated_rows(data)
    generator = Generator(model, data.synthetic)
    for start in range(0, data.eval_rows, batch_size):
        stop = min(start + batch_size, data.eval_rows)
        yield generator.batch(np.arange(start, stop, dtype=np.int64))


def held_out_rows(data: Data) -> int:
    """Rows at the stream's beginning that are not trained on."""
    return data.eval_rows if data.eval_path is None else 0


def check_data(model: Model, data: Data) -> list[BeyondRows]:
    """Raise UserError for everything about the input that can be known before a run.

    A file is opened and read up to its first training row. Returns the tables with ids beyond their
    rows in its beginning.
    """
    beyond: list[BeyondRows] = []
    if data.path is None:
        generated_rows(data)
    else:
        beyond = check_file(model, data.path, held_out_rows(data))
    if data.eval_path is not None and data.eval_rows > 0:
        check_file(model, data.eval_path, 0)
        if data.path is not None and same_rows(data.path, data.eval_path):
            raise UserError(
                f"data.eval_path: {SAME_ROWS.format(path=data.path, eval_path=data.eval_path)}"
            )
    return beyond


def generator_stands_in(data: Data) -> bool:
    """Whether the file does not exist yet and will be written by the generator, row for row."""
    return data.path is not None and data.generate and not Path(data.path).exists()


def generated_rows(data: Data) -> tuple[int, int]:
    """The generator's training rows: the first, and how many there are.

    Raises UserError where none is left.
    """
    first = held_out_rows(data)
    rows = data.synthetic.rows - first
    if rows < 1:
        raise UserError(
            f"the generator makes data.synthetic.rows = {data.synthetic.rows:,} rows and "
            f"data.eval_rows holds out the first {first:,}: none is left to train on"
        )
    return first, min(rows, data.limit_rows or rows)
