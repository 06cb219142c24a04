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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.criteo import WITHOUT_PATH, unfit
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.causes import is_header
from recsim_train.data.lines import Chunk, Lines, open_bytes
from recsim_train.data.look import EXPECTED, look
from recsim_train.data.malformed import LOOKED_AT_FROM, PHRASES, Malformed, may_be_damaged
from recsim_train.data.parse import KINDS, parse_lines, spoilt

_HEAD = 1024
"""Lines of a file that are looked at before a run."""


class CriteoParser:
    """Lines to batches of one model's shape; keeps count of malformed lines."""

    def __init__(self, model: Model, path: str, malformed_limit: float = 1.0) -> None:
        """``malformed_limit``: as of `Data`. Raises UserError where the model cannot be fed from
        Criteo text."""
        check_columns(model)
        self._limit = malformed_limit
        self._model = model
        self._rows = np.array([table.rows for table in model.tables], np.uint64)
        self._path = path
        self.malformed = Malformed()

    def batch(self, chunks: Sequence[Chunk]) -> NumpyBatch:
        """All lines of the chunks as one batch.

        Raises RunFailed if not one of them is well-formed, or too many so far were not.
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
        self.malformed.rows += n
        if kinds.any():
            lines = np.concatenate([c.first_line + np.arange(len(c)) for c in chunks])
            self.malformed.add(kinds, lines, lambda place: _line(chunks, place))
            source = self._replacements(kinds, chunks)
            self.malformed.check(self._path, self._limit, least=LOOKED_AT_FROM)
            labels, dense, ids = labels[source], dense[source], ids[:, source]
        return NumpyBatch(
            labels=labels,
            dense=np.log(dense, out=dense),
            ids=ids.reshape(-1),
            lengths=np.zeros(0, dtype=np.int32),
        )

    def check(self) -> None:
        """Raise RunFailed where too many of the lines so far were malformed, of however few."""
        self.malformed.check(self._path, self._limit)

    def _replacements(self, kinds: NDArray[np.int8], chunks: Sequence[Chunk]) -> NDArray[np.int64]:
        good = np.flatnonzero(kinds == 0)
        if not len(good):
            first, last = chunks[0].first_line, chunks[-1].first_line + len(chunks[-1]) - 1
            raise RunFailed(
                f"{self._path}: no well-formed Criteo row in a whole batch, lines {first:,} to "
                f"{last:,} (line {first:,} is one {PHRASES[KINDS[int(kinds[0]) - 1]]}: "
                f"{spoilt(_line(chunks, 0))}){may_be_damaged(self._path)}"
            )
        after = np.searchsorted(good, np.arange(len(kinds)))
        return good[after % len(good)]


def _line(chunks: Sequence[Chunk], place: int) -> bytes:
    """One line of a batch."""
    for chunk in chunks:
        if place < len(chunk):
            return chunk.line(place)
        place -= len(chunk)
    raise IndexError(place)


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
    model: Model,
    path: str,
    rows: int,
    batch_size: int,
    malformed: Malformed | None = None,
    malformed_limit: float = 1.0,
) -> Iterator[NumpyBatch]:
    """The first ``rows`` rows of a file (all where it has fewer) in batches, the last short.

    A short last batch without one well-formed row is left out. ``malformed``: where to count.
    Raises RunFailed where more than ``malformed_limit`` of them are malformed.
    """
    parser = CriteoParser(model, path, malformed_limit)
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
                    break
                raise
            yield batch
        if lines.done == 0:
            raise too_few_rows(RunFailed, path, 0, 0)
    parser.check()


def check_columns(model: Model) -> None:
    """Raise UserError unless Criteo text has the features and categories that the model takes."""
    for _, why in unfit(model):
        raise UserError(f"Criteo text {why}; {WITHOUT_PATH}")


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
            raise UserError(_not_criteo(path, head, parser.malformed)) from None
        lines.skip(held_out + 1 - lines.done)
        if lines.done <= held_out:
            raise too_few_rows(UserError, path, lines.done, held_out)


def _not_criteo(path: str, head: Sequence[Chunk], malformed: Malformed) -> str:
    """The sentence about a file none of whose first lines is well-formed."""
    kind = max(malformed.counts, key=malformed.counts.__getitem__)
    line, wrong = malformed.samples[kind]
    first = " (line 1 seems to be a header)" if is_header(_line(head, 0), b"\t") else ""
    return (
        f"{path} is not Criteo text: its first lines are {PHRASES[kind]} (line {line}, {wrong})"
        f"{first}; expected {EXPECTED}"
    )
