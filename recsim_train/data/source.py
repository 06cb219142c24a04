"""Rows of a data file as batches, whatever its format: the part that all formats have in common.

A malformed row keeps its place: it counts as a row, and within its batch it is replaced by the
next well-formed one (after the last, by the first). So every batch keeps its size, and a reader
parses its own batches only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import FORMATS, WITHOUT_PATH, source_of, unfit
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.files import is_gzip
from recsim_train.trace.facts import BeyondRows

LOOKED_AT_FROM = 10_000
"""Rows of one reader: of fewer a share says little, and they are looked at in the end only."""
_LINES_KEPT = 5
PHRASES = {
    "columns": "without 40 columns",
    "label": "with a label other than 0 or 1",
    "integer": "with an integer column that is no integer",
    "category": "with a category that is no hexadecimal number",
}
"""What is wrong with the rows of a kind. Those of `recsim_train.data.text.KINDS`."""


@dataclass(slots=True)
class Malformed:
    """Malformed lines met so far: a line is counted each time that the stream meets it."""

    counts: dict[str, int] = field(default_factory=dict)
    """By kind, see `PHRASES`."""
    first_lines: dict[str, list[int]] = field(default_factory=dict)
    """Line numbers, from 1, of the first few by kind."""
    samples: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Line number and what is wrong there, of one line by kind."""
    rows: int = 0
    """All lines looked at, well-formed ones too."""
    beyond: Sequence[Sequence[int]] = field(default_factory=list)
    """Of well-formed ones, by table: how many ids its rows are too few for, and the largest."""

    @property
    def total(self) -> int:
        """All malformed lines met."""
        return sum(self.counts.values())

    def add(self, kind: str, lines: Sequence[int], sample: Callable[[], str]) -> None:
        """Count rows that lack in one way.

        ``kind``: a key of `PHRASES`, or a phrase like those there; ``lines``: all their numbers,
        ascending; ``sample``: says what is wrong with the first of them.
        """
        self._count(kind, len(lines), lines[:_LINES_KEPT])
        if kind not in self.samples:
            self.samples[kind] = lines[0], sample()

    def merge(self, other: Malformed) -> None:
        """Add another reader's counts."""
        self.rows += other.rows
        self.add_beyond(other.beyond)
        for kind, count in other.counts.items():
            self._count(kind, count, other.first_lines[kind])
        for kind, sample in other.samples.items():
            self.samples[kind] = min(sample, self.samples.get(kind, sample))

    def add_beyond(self, more: Sequence[Sequence[int]]) -> None:
        """Add to `beyond`."""
        both = zip_longest(self.beyond, more, fillvalue=(0, 0))
        self.beyond = [(a + b, max(one, other)) for (a, one), (b, other) in both]

    def beyond_rows(self, rows: Iterable[int]) -> list[BeyondRows]:
        """Of the tables that have ids beyond their ``rows``."""
        tables, lines = zip(rows, self.beyond, strict=False), self.rows - self.total
        return [
            BeyondRows(table, own, count / lines, largest)
            for table, (own, (count, largest)) in enumerate(tables)
            if count
        ]

    def _count(self, kind: str, count: int, lines: Sequence[int]) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        numbers = {*self.first_lines.get(kind, ()), *lines}
        self.first_lines[kind] = sorted(numbers)[:_LINES_KEPT]

    def describe(self) -> str:
        """One phrase: how many of which kind, and where; "none" if there were none."""
        parts = (
            f"{self.counts[kind]:,} {PHRASES.get(kind, kind)} "
            f"({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"
            f"{' ...' if self.counts[kind] > len(lines) else ''}{self._sample(kind, lines)})"
            for kind, lines in self.first_lines.items()
        )
        return "; ".join(parts) or "none"

    def _sample(self, kind: str, lines: Sequence[int]) -> str:
        if kind not in self.samples:
            return ""
        line, wrong = self.samples[kind]
        return f", {wrong}" if [line] == list(lines) else f"; line {line}, {wrong}"

    def check(self, path: str, limit: float, *, least: int = 0) -> None:
        """Raise RunFailed where more than ``limit`` of at least ``least`` rows are malformed."""
        if self.rows >= least and (
            why := beyond(path, limit, self.counts, self.rows, self.describe())
        ):
            raise RunFailed(why)


def beyond(
    path: str | None, limit: float, counts: Mapping[str, int], rows: int, said: str | None
) -> str | None:
    """A sentence where a larger share of the rows read is malformed than may be.

    ``limit``: ``data.malformed_limit``; ``counts``: malformed rows by kind, ``said``: the same in
    words.
    """
    total = sum(counts.values())
    if path is None or not rows or total / rows <= limit:
        return None
    return (
        f"{path}: {total:,} of the {rows:,} rows read so far are malformed ({total / rows:.2%}; "
        f"data.malformed_limit is {100 * limit:.4g} %): {said}{may_be_damaged(path)}"
    )


def may_be_damaged(path: str) -> str:
    """What else may be wrong with lines of a compressed file; else nothing."""
    return "; the compressed data may be damaged (`gzip -t` tells)" if is_gzip(path) else ""


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
