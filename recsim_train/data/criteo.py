"""Criteo text: the source that reads and writes it, and the lines of a file, in blocks.

Kaggle ``train.txt`` and Terabyte ``day_*``, plain or gzip: 40 tab-separated columns without a
header (label, 13 integers, 26 hexadecimal categories; an empty field is a missing value).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.files import beginning, container, is_header, layout, open_bytes
from recsim_train.data.source import LOOKED_AT_FROM, PHRASES, Source, may_be_damaged
from recsim_train.data.text import COLUMNS, KINDS, parse_lines, spoilt, write_criteo

BLOCK_BYTES = 1 << 18
"""Text read at once: it stays in a core's own cache until it is parsed."""
_LONGEST = 1 << 20
"""Bytes. A longer line is refused, so that a binary file cannot fill the memory."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive whole lines inside one block."""

    buffer: NDArray[np.uint8]
    """The whole block."""
    start: int
    """Where the first line begins."""
    ends: NDArray[np.int64]
    """Where the lines' line feeds are."""
    first_line: int
    """Number of the first line in the file, from 1."""

    def __len__(self) -> int:
        return len(self.ends)

    def line(self, place: int) -> bytes:
        """One line's text, without its line feed."""
        begin = self.start if place == 0 else int(self.ends[place - 1]) + 1
        return self.buffer[begin : int(self.ends[place])].tobytes()


class TextLines:
    """One pass over a file's lines, from the first to the last.

    A last line without line feed counts. Gzip is told by its content and may have several members.

    Raises UserError if the file cannot be opened, and while reading RunFailed (a file that ends
    in the middle of its compressed data, a failing disk, a line longer than a block), after every
    whole line before that place has been handed out.
    """

    def __init__(self, path: str | Path, expected: str = "rows of data") -> None:
        """``expected``: what the file should hold, in words."""
        self.path = str(path)
        self.done = 0
        """Lines taken or skipped."""
        self.read = 0
        """Whole lines read so far, those of the current block included."""
        self._file = open_bytes(path, expected)
        self._blocks = self._read_blocks()
        self._rest = b""
        self._buffer = np.zeros(0, dtype=np.uint8)
        self._start = 0
        self._ends = np.zeros(0, dtype=np.int64)
        self._next = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __del__(self) -> None:
        # whoever drops a stream in its middle has no file left open
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()

    def skip(self, count: int) -> int:
        """Pass over up to ``count`` lines; how many there were (fewer at the end of the file)."""
        return sum(len(chunk) for chunk in self._advance(count))

    def take(self, count: int) -> list[Chunk]:
        """Up to ``count`` lines (fewer at the end of the file), as chunks of blocks."""
        return list(self._advance(count))

    def _advance(self, count: int) -> Iterator[Chunk]:
        while count > 0:
            here = min(count, len(self._ends) - self._next)
            if here > 0:
                stop = self._next + here
                yield Chunk(self._buffer, self._start, self._ends[self._next : stop], self.done + 1)
                self._start = int(self._ends[stop - 1]) + 1
                self._next = stop
                self.done += here
                count -= here
            elif not self._refill():
                return

    def _refill(self) -> bool:
        """Read the next block that completes a line; False at the end of the file."""
        while True:
            block = next(self._blocks, None)
            if block is None:
                if not self._rest:
                    return False
                block = b"\n"
            text = self._rest + block
            self._buffer = np.frombuffer(text, dtype=np.uint8)
            self._ends = np.flatnonzero(self._buffer == 10)
            self._start = self._next = 0
            if len(self._ends):
                self._rest = text[int(self._ends[-1]) + 1 :]
                self.read += len(self._ends)
                return True
            self._rest = text
            if len(self._rest) >= _LONGEST:
                raise RunFailed(
                    f"{self.path} is not Criteo text: line {self.done + 1} is longer than "
                    f"{_LONGEST:,} bytes"
                )

    def _read_blocks(self) -> Iterator[bytes]:
        """Blocks of about `BLOCK_BYTES`; what could be read comes before the error."""
        parts: list[bytes] = []
        size = 0
        while True:
            reason = None
            try:
                # read1 hands out what one step of decompression gave, so that an error in the
                # next step loses nothing
                part = self._file.read1(BLOCK_BYTES - size)  # type: ignore[attr-defined]
            except EOFError:
                part, reason = b"", "its gzip data ends in the middle (truncated file)"
            except (zlib.error, gzip.BadGzipFile) as error:
                part, reason = b"", f"its gzip data is damaged ({error})"
            except OSError as error:
                part, reason = b"", f"it cannot be read ({error.strerror or error})"
            if part:
                parts.append(part)
                size += len(part)
            if parts and (not part or size >= BLOCK_BYTES):
                yield b"".join(parts)
                parts, size = [], 0
            if reason is not None:
                raise RunFailed(f"{self.path}: {reason}, after {self.read:,} rows")
            if not part:
                return


EXPECTED = "Criteo text (label, 13 integer and 26 categorical columns, tab-separated)"
_LINES = 1000
"""Lines of a file that are looked at before a run."""
_BINARY_LOOK = 1 << 16
"""Bytes among which a zero says that a file is no text."""


class CriteoText(Source):
    """A file of Criteo text."""

    write = staticmethod(write_criteo)

    def rows(self) -> TextLines:
        return TextLines(self.path, EXPECTED)

    def batch(self, pieces: Sequence[Chunk]) -> NumpyBatch:
        n = sum(map(len, pieces))
        labels = np.empty(n, dtype=np.float32)
        dense = np.empty((n, self.model.dense_features), dtype=np.float32)
        ids = np.empty((len(self.table_rows), n), dtype=np.int64)
        kinds = np.empty(n, dtype=np.int8)
        beyond = np.zeros((2, len(ids)), dtype=np.uint64)
        at = 0
        for chunk in pieces:
            results = self.table_rows, labels, dense, ids, kinds
            parse_lines(chunk.buffer, chunk.start, chunk.ends, at, *results, beyond)
            at += len(chunk)
        self.malformed.rows += n
        self.malformed.add_beyond(beyond.T.tolist())
        if kinds.any():
            lines = np.concatenate([c.first_line + np.arange(len(c)) for c in pieces])
            for code in np.unique(kinds[kinds != 0]).tolist():
                places = np.flatnonzero(kinds == code)
                self.malformed.add(
                    KINDS[code - 1],
                    lines[places].tolist(),
                    lambda first=places[0]: spoilt(_line(pieces, int(first))),  # type: ignore[misc]
                )
            source = self._replacements(kinds, pieces)
            self.malformed.check(self.path, self.limit, least=LOOKED_AT_FROM)
            labels, dense, ids = labels[source], dense[source], ids[:, source]
        return NumpyBatch(
            labels=labels,
            dense=np.log(dense, out=dense),
            ids=ids.reshape(-1),
            lengths=np.zeros(0, dtype=np.int32),
        )

    def _replacements(self, kinds: NDArray[np.int8], chunks: Sequence[Chunk]) -> NDArray[np.int64]:
        good = np.flatnonzero(kinds == 0)
        if not len(good):
            first, last = chunks[0].first_line, chunks[-1].first_line + len(chunks[-1]) - 1
            raise RunFailed(
                f"{self.path}: no well-formed Criteo row in a whole batch, lines {first:,} to "
                f"{last:,} (line {first:,} is one {PHRASES[KINDS[int(kinds[0]) - 1]]}: "
                f"{spoilt(_line(chunks, 0))}){may_be_damaged(self.path)}"
            )
        return good[np.searchsorted(good, np.arange(len(kinds))) % len(good)]

    def look(self) -> None:
        text, packed = beginning(self.path, EXPECTED)
        lines = text.removesuffix(b"\n").split(b"\n")[:_LINES]
        binary = b"\0" in text[:_BINARY_LOOK]
        if binary or not any(line.count(b"\t") == COLUMNS - 1 for line in lines):
            what = container(text)
            if what is not None and packed:
                what = f"gzip data that holds {what}"
            if what is None and binary:
                what = "a binary file"
            if what is None:
                like = layout(lines, COLUMNS)
                what = (
                    f"no line among the first {len(lines)} has {COLUMNS} tab-separated columns"
                    f"{f' ({like})' if like else ''}"
                )
            raise UserError(f"{self.path}: {what}; expected {EXPECTED}")
        buffer = np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8)
        try:
            self.batch([Chunk(buffer, 0, np.flatnonzero(buffer == 10), 1)])
        except RunFailed:
            counts = self.malformed.counts
            kind = max(counts, key=counts.__getitem__)
            line, wrong = self.malformed.samples[kind]
            first = " (line 1 seems to be a header)" if is_header(lines[0], b"\t") else ""
            raise UserError(
                f"{self.path} is not Criteo text: its first lines are {PHRASES[kind]} (line "
                f"{line}, {wrong}){first}; expected {EXPECTED}"
            ) from None


def _line(chunks: Sequence[Chunk], place: int) -> bytes:
    """One line of a batch."""
    places = ((chunk, n) for chunk in chunks for n in range(len(chunk)))
    chunk, n = next(islice(places, place, None))
    return chunk.line(n)
