"""The stream of training batches, and the held-out ones, from a file or from the generator.

Each of P loops has an endless sequence of batches, which whoever feeds it can make alone: which
process does the reading never changes what a loop learns from. Of a log's rows that sequence is
`recsim_train.data.order`'s. The generator's rows are one sequence of batches, in order and starting
again at their end, of which loop p has batches p, p + P, p + 2P ...

Training rows are those that are not held out: the first or the last ``data.eval_rows`` (or
``eval_share``) are, or those of ``data.eval_path``; at most ``data.limit_rows`` of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.dealing import BatchStream, Dealt, held_out_rows, training_rows
from recsim_train.data.generator import Generator
from recsim_train.trace.facts import BeyondRows
from recsim_train.workload.reading import ROWS_TOGETHER

_IDS_TOGETHER = 8192
"""As `ROWS_TOGETHER`, of a stream of ids."""


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
        steps = range(dealt.first, dealt.iterations)
        numbers = (k * dealt.total + p for k in steps for p in order)
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
    seed: int,
    ids_only: bool = False,
    first: int = 0,
) -> BatchStream:
    """The batches of so many iterations for some loops, those before the ``first`` left out.

    ``positions``: the loops' places, out of ``total`` that share the stream. Batches come in stream
    order: iteration by iteration, within one by position. ``seed``: the experiment's, of a log's
    order. ``ids_only``: labels and dense features are not looked at, and may be zeros.

    Raises UserError for a file that cannot be opened or a model that it cannot feed; while
    iterating RunFailed, for a file that ends early, cannot be read on, has a whole batch without
    one well-formed row, or more malformed rows than `Data.malformed_limit`.
    """
    dealt = Dealt(batch_size, positions, total, iterations, first)
    if data.path is not None:
        from recsim_train.data.log_stream import LogStream  # with it comes pyarrow

        return LogStream(model, data, seed, dealt)
    return _GeneratedStream(model, data, dealt, ids_only=ids_only and len(positions) == total)


def held_out(model: Model, data: Data, batch_size: int) -> Iterator[NumpyBatch]:
    """The held-out rows in batches, the last of which may be short; none where none is held out.

    With ``data.eval_path`` they are those files' rows, the first ``data.eval_rows`` where that is
    given. Raises as `open_stream`.
    """
    if not data.holds_out:
        return
    if data.path is not None:
        from recsim_train.data.log_stream import maker_of

        maker, log = maker_of(model, data, data.eval_path or data.path)
        yield from maker.in_order(*held_out_rows(data, log.rows), batch_size)
        return
    generated_rows(data)
    generator = Generator(model, data.synthetic)
    begin, end = held_out_rows(data, data.synthetic.rows)
    for start in range(begin, end, batch_size):
        yield generator.batch(np.arange(start, min(start + batch_size, end), dtype=np.int64))


def check_data(model: Model, data: Data) -> list[BeyondRows]:
    """Raise UserError for everything about the input that can be known before a run.

    Files are opened, and the first training rows are read. Returns the tables with ids beyond their
    rows among these.
    """
    if data.path is None:
        generated_rows(data)
        return []
    from recsim_train.data.log_stream import check_files

    return check_files(model, data)


def generator_stands_in(data: Data) -> bool:
    """Whether the file does not exist yet and will be written by the generator, row for row."""
    return data.path is not None and data.generate and not Path(data.path[0]).exists()


def generated_rows(data: Data) -> tuple[int, int]:
    """The generator's training rows: the first, and how many there are.

    Raises UserError where none is left.
    """
    first, stop = training_rows(data, data.synthetic.rows, "the generator (data.synthetic.rows)")
    return first, stop - first
