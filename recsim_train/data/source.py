"""Rows of a data file as batches, whatever its format: the part that all formats have in common.

A malformed row keeps its place: it counts as a row, and within its batch it is replaced by the
next well-formed one (after the last, by the first). So every batch keeps its size, and a reader
parses its own batches only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import FORMATS, WITHOUT_PATH, source_of, unfit
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.malformed import Malformed
from recsim_train.trace.facts import BeyondRows


class RowPass(Protocol):
    """One pass over a file's rows, from the first to the last.

    Its methods raise RunFailed where the file cannot be read on, after every whole row before that
    place has been handed out.
    """

    done: int
    """Rows taken or skipped."""

    def skip(self, count: int) -> int:
        """Pass over up to ``count`` rows; how many there were (fewer at the end of the file)."""

    def take(self, count: int) -> Sequence[Any]:
        """Up to ``count`` rows (fewer at the end of the file), in pieces as `Source.batch` takes
        them; the length of a piece is its number of rows."""

    def close(self) -> None:
        """Close the file."""


class Source(ABC):
    """One file as batches of one model's shape; keeps count of its malformed rows."""

    def __init__(self, model: Model, path: str, malformed_limit: float = 1.0) -> None:
        """``malformed_limit``: as of `Data`. Raises UserError where files of this format cannot
        feed the model."""
        check_columns(model, path)
        self.model, self.path, self.limit = model, path, malformed_limit
        self.table_rows = np.array([table.rows for table in model.tables], np.uint64)
        self.malformed = Malformed()

    @abstractmethod
    def rows(self) -> RowPass:
        """A pass from the first row on. Raises UserError if the file cannot be opened."""

    @abstractmethod
    def batch(self, pieces: Sequence[Any]) -> NumpyBatch:
        """All rows of the pieces as one batch; malformed ones are counted and replaced.

        Raises RunFailed if not one of them is well-formed, or too many so far were not.
        """

    @abstractmethod
    def look(self) -> None:
        """Raise UserError where the file, by its beginning, is none of this format, with the likely
        cause in one sentence. What is wrong further in is `batch`'s to find."""

    @staticmethod
    @abstractmethod
    def write(
        path: str | Path,
        model: Model,
        synthetic: Synthetic,
        rows: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write the generator's rows 0 to ``rows`` in this format.

        Read back with the same model, the file gives exactly the batches that the generator feeds
        directly. ``progress``: called with (rows written, rows) now and then. Raises UserError for
        a model that the format cannot feed, RunFailed (and leaves nothing) if writing fails.
        """

    def check(self) -> None:
        """Raise RunFailed where too many of the rows so far were malformed, of however few."""
        self.malformed.check(self.path, self.limit)

    def first(self, rows: int, batch_size: int) -> Iterator[NumpyBatch]:
        """The first ``rows`` rows (all where there are fewer) in batches, the last of them short.

        A short last batch without one well-formed row is left out. Raises RunFailed where more than
        the limit's share of them is malformed.
        """
        with closing(self.rows()) as given:
            while given.done < rows:
                pieces = given.take(min(rows - given.done, batch_size))
                if not pieces:
                    break
                try:
                    batch = self.batch(pieces)
                except RunFailed:
                    if batch_size < given.done and sum(map(len, pieces)) < batch_size:
                        break
                    raise
                yield batch
            if given.done == 0:
                raise too_few_rows(RunFailed, self.path, 0, 0)
        self.check()


def reader_of(source: str) -> type[Source]:
    """What reads and writes files of a format, by its key in `FORMATS`."""
    reader: type[Source] = resolve_name(FORMATS[source].reader)
    return reader


def open_source(model: Model, path: str, malformed_limit: float = 1.0) -> Source:
    """The source that a file is by its name; for what it raises see `Source`."""
    return reader_of(source_of(path))(model, path, malformed_limit)


def check_columns(model: Model, path: str | Path) -> None:
    """Raise UserError unless files of this one's format can feed the model."""
    known = FORMATS[source_of(str(path))]
    for _, why in unfit(model, known):
        raise UserError(f"{known.name} {why}; {WITHOUT_PATH}")


def check_file(model: Model, path: str, held_out: int) -> list[BeyondRows]:
    """Raise UserError for what can be known of a file before a run starts.

    Looks for the row behind the ``held_out`` first ones; the rest of the file is not looked at, and
    a file that cannot be read to there for other reasons is left to the run. Returns the tables
    with ids beyond their rows in the file's beginning.
    """
    source = open_source(model, path)
    source.look()
    with closing(source.rows()) as given, suppress(RunFailed):
        given.skip(held_out + 1)
        if given.done <= held_out:
            raise too_few_rows(UserError, path, given.done, held_out)
    return source.malformed.beyond_rows(table.rows for table in model.tables)


def too_few_rows(
    kind: type[RunFailed] | type[UserError], path: str, rows: int, held_out: int
) -> Exception:
    """The error of a file whose rows are all held out, or that has none."""
    if held_out == 0 or rows == 0:
        return kind(f"{path} has no rows")
    return kind(
        f"{path} has {rows:,} rows and data.eval_rows holds out the first {held_out:,}: "
        "none is left to train on"
    )


class TrainingRows:
    """A source's training rows, over and over: those after the held-out ones, up to the limit."""

    def __init__(self, source: Source, *, held_out: int, limit: int | None) -> None:
        """Raises UserError if the file cannot be opened."""
        source.rows().close()
        self._source, self._held_out, self._limit = source, held_out, limit
        self.passes = 0
        """Passes over the file begun."""
        self._per_pass: int | None = None
        self._pass: RowPass | None = None
        self._done = 0

    def close(self) -> None:
        """Close the file."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    def skip(self, count: int) -> None:
        """Pass over ``count`` rows, without parsing them."""
        while count > 0:
            if self._per_pass is not None and count >= self._per_pass:
                # a whole pass ends where it began
                self.passes += count // self._per_pass
                count %= self._per_pass
            else:
                given, most = self._current(count)
                moved = given.skip(most)
                self._advance(moved, most)
                count -= moved

    def take(self, count: int) -> list[Any]:
        """The next ``count`` rows, in pieces."""
        pieces: list[Any] = []
        while count > 0:
            given, most = self._current(count)
            more = given.take(most)
            moved = sum(map(len, more))
            self._advance(moved, most)
            pieces += more
            count -= moved
        return pieces

    def _current(self, count: int) -> tuple[RowPass, int]:
        """The open pass, and how many of ``count`` rows it may still give."""
        if self._pass is None:
            self._pass = self._source.rows()
            skipped = self._pass.skip(self._held_out)
            if skipped < self._held_out:
                self.close()
                raise too_few_rows(RunFailed, self._source.path, skipped, self._held_out)
            self.passes += 1
            self._done = 0
        return self._pass, count if self._limit is None else min(count, self._limit - self._done)

    def _advance(self, moved: int, asked: int) -> None:
        """Note progress; a pass that is over makes way for the next."""
        self._done += moved
        if moved < asked or self._done == self._limit:
            if self._done == 0:
                held_out = self._held_out
                raise too_few_rows(RunFailed, self._source.path, held_out, held_out)
            self._per_pass = self._done
            self.close()
