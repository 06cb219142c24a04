"""Criteo text as batches of numpy arrays, read as a stream.

Kaggle ``train.txt`` and Terabyte ``day_*``, plain or gzip: 40 tab-separated columns without a
header (label, 13 integers, 26 hexadecimal categories; an empty field is a missing value).

A malformed line keeps its place: it counts as a row, and within its batch it is replaced by the
next well-formed one (after the last, by the first). So every batch keeps its size, and a reader
parses its own batches only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.features import CATEGORY_COLUMNS, INTEGER_COLUMNS
from recsim_train.data.lines import Chunk, Lines, open_bytes
from recsim_train.data.look import look
from recsim_train.data.parse import KINDS, parse_lines

_HEAD = 1024
"""Lines of a file that are looked at before a run."""
_LINES_KEPT = 5
_PHRASES = {
    "columns": "without 40 columns",
    "label": "with a label other than 0 or 1",
    "integer": "with an integer column that is no integer",
    "category": "with a category that is no hexadecimal number",
}


@dataclass(slots=True)
class Malformed:
    """Malformed lines met so far: a line is counted each time that the stream meets it."""

    counts: dict[str, int] = field(default_factory=dict)
    """By kind, see `recsim_train.data.parse.KINDS`."""
    first_lines: dict[str, list[int]] = field(default_factory=dict)
    """Line numbers, from 1, of the first few by kind."""

    @property
    def total(self) -> int:
        """All malformed lines met."""
        return sum(self.counts.values())

    def add(self, kinds: NDArray[np.int8], lines: NDArray[np.int64]) -> None:
        """Count lines by their codes (`recsim_train.data.parse.parse_lines`)."""
        for code in np.unique(kinds[kinds != 0]).tolist():
            numbers = lines[kinds == code]
            self._count(KINDS[code - 1], len(numbers), numbers[:_LINES_KEPT].tolist())

    def merge(self, other: Malformed) -> None:
        """Add another reader's counts."""
        for kind, count in other.counts.items():
            self._count(kind, count, other.first_lines[kind])

    def _count(self, kind: str, count: int, lines: Sequence[int]) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        numbers = {*self.first_lines.get(kind, ()), *lines}
        self.first_lines[kind] = sorted(numbers)[:_LINES_KEPT]

    def describe(self) -> str:
        """One phrase: how many of which kind, and where; "none" if there were none."""
        parts = (
            f"{self.counts[kind]:,} {_PHRASES[kind]} "
            f"({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"
            f"{' ...' if self.counts[kind] > len(lines) else ''})"
            for kind, lines in self.first_lines.items()
        )
        return "; ".join(parts) or "none"


class CriteoParser:
    """Lines to batches of one model's shape; keeps count of malformed lines."""

    def __init__(self, model: Model, path: str) -> None:
        """Raises UserError where the model cannot be fed from Criteo text."""
        check_columns(model)
        self._model = model
        self._rows = np.array([table.rows for table in model.tables], np.uint64)
        self._path = path
        self.malformed = Malformed()

    def batch(self, chunks: Sequence[Chunk]) -> NumpyBatch:
        """All lines of the chunks as one batch.

        Raises RunFailed if not one of them is well-formed.
        """
        n = sum(map(len, chunks))
        labels = np.empty(n, dtype=np.float32)
        dense = np.empty((n, self._model.dense_features), dtype=np.float32)
        ids = np.empty((len(self._rows), n), dtype=np.int64)
        kinds = np.empty(n, dtype=np.int8)
        at = 0
        for chunk in chunks:
            text = chunk.buffer, chunk.start, chunk.ends
            parse_lines(*text, at, self._rows, labels, dense, ids, kinds)
            at += len(chunk)
        if kinds.any():
            lines = np.concatenate([c.first_line + np.arange(len(c)) for c in chunks])
            self.malformed.add(kinds, lines)
            source = self._replacements(kinds, lines)
            labels, dense, ids = labels[source], dense[source], ids[:, source]
        return NumpyBatch(
            labels=labels,
            dense=np.log(dense, out=dense),
            ids=ids.reshape(-1),
            lengths=np.zeros(0, dtype=np.int32),
        )

    def _replacements(self, kinds: NDArray[np.int8], lines: NDArray[np.int64]) -> NDArray[np.int64]:
        good = np.flatnonzero(kinds == 0)
        if not len(good):
            raise RunFailed(
                f"{self._path}: no well-formed Criteo row in a whole batch, lines "
                f"{int(lines[0]):,} to {int(lines[-1]):,} (line {int(lines[0]):,} is one "
                f"{_PHRASES[KINDS[int(kinds[0]) - 1]]})"
            )
        after = np.searchsorted(good, np.arange(len(kinds)))
        return good[after % len(good)]


class TrainingRows:
    """A file's training lines, over and over: those after the held-out ones, up to the limit."""

    def __init__(self, path: str, *, held_out: int, limit: int | None) -> None:
        """Raises UserError if the file cannot be opened."""
        open_bytes(path).close()
        self._path, self._held_out, self._limit = path, held_out, limit
        self.passes = 0
        """Passes over the file begun."""
        self._per_pass: int | None = None
        self._lines: Lines | None = None
        self._done = 0

    def close(self) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def skip(self, count: int) -> None:
        """Pass over ``count`` rows, without parsing them."""
        while count > 0:
            if self._per_pass is not None and count >= self._per_pass:
                # a whole pass ends where it began
                self.passes += count // self._per_pass
                count %= self._per_pass
            else:
                lines, most = self._current(count)
                moved = lines.skip(most)
                self._advance(moved, most)
                count -= moved

    def take(self, count: int) -> list[Chunk]:
        """The next ``count`` rows."""
        chunks: list[Chunk] = []
        while count > 0:
            lines, most = self._current(count)
            more = lines.take(most)
            moved = sum(map(len, more))
            self._advance(moved, most)
            chunks += more
            count -= moved
        return chunks

    def _current(self, count: int) -> tuple[Lines, int]:
        """The open pass, and how many of ``count`` rows it may still give."""
        if self._lines is None:
            self._lines = _open_after(self._path, self._held_out)
            self.passes += 1
            self._done = 0
        return self._lines, count if self._limit is None else min(count, self._limit - self._done)

    def _advance(self, moved: int, asked: int) -> None:
        """Note progress; a pass that is over makes way for the next."""
        self._done += moved
        if moved < asked or self._done == self._limit:
            if self._done == 0:
                raise too_few_rows(RunFailed, self._path, self._held_out, self._held_out)
            self._per_pass = self._done
            self.close()


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


def _open_after(path: str, skip: int) -> Lines:
    lines = Lines(path)
    skipped = lines.skip(skip)
    if skipped < skip:
        lines.close()
        raise too_few_rows(RunFailed, path, skipped, skip)
    return lines


def read_first(
    model: Model, path: str, rows: int, batch_size: int, malformed: Malformed | None = None
) -> Iterator[NumpyBatch]:
    """The first ``rows`` rows of a file (all where it has fewer) in batches, the last short.

    A short last batch without one well-formed row is left out. ``malformed``: where to count.
    """
    parser = CriteoParser(model, path)
    if malformed is not None:
        parser.malformed = malformed
    with Lines(path) as lines:
        while lines.done < rows:
            chunks = lines.take(min(rows - lines.done, batch_size))
            if not chunks:
                break
            try:
                batch = parser.batch(chunks)
            except RunFailed:
                if batch_size < lines.done and sum(map(len, chunks)) < batch_size:
                    return
                raise
            yield batch
        if lines.done == 0:
            raise too_few_rows(RunFailed, path, 0, 0)


def check_columns(model: Model) -> None:
    """Raise UserError unless Criteo text has the features and categories that the model takes."""
    if len(model.tables) > CATEGORY_COLUMNS:
        raise UserError(
            f"the model has {len(model.tables)} tables and Criteo text {CATEGORY_COLUMNS} "
            "categories; without data.path the generator feeds any model"
        )
    if model.dense_features > INTEGER_COLUMNS:
        raise UserError(
            f"the model has {model.dense_features} dense features and Criteo text "
            f"{INTEGER_COLUMNS}; without data.path the generator feeds any model"
        )
    if any(table.ids > 1 or table.variable for table in model.tables):
        raise UserError(
            "the model has tables of several ids per example and Criteo text has one; "
            "without data.path the generator feeds any model"
        )


def check_file(model: Model, path: str, held_out: int) -> None:
    """Raise UserError for what can be known of a Criteo file before a run starts.

    Reads the held-out rows and one more; the rest of the file is not looked at, and a file that
    cannot be read to there for other reasons is left to the run.
    """
    check_columns(model)
    look(Path(path))
    parser = CriteoParser(model, path)
    with Lines(path) as lines, contextlib.suppress(RunFailed):
        head = lines.take(_HEAD)
        try:
            parser.batch(head)
        except RunFailed:
            kind = next(iter(parser.malformed.counts))
            raise UserError(
                f"{path} is not Criteo text: its first lines are {_PHRASES[kind]} "
                "(label, 13 integers and 26 hexadecimal categories, separated by tabs)"
            ) from None
        lines.skip(held_out + 1 - lines.done)
        if lines.done <= held_out:
            raise too_few_rows(UserError, path, lines.done, held_out)
