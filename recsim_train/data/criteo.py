"""Criteo text: the source that reads and writes it.

Kaggle ``train.txt`` and Terabyte ``day_*``, plain or gzip: 40 tab-separated columns without a
header (label, 13 integers, 26 hexadecimal categories; an empty field is a missing value).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.causes import container, is_header, layout
from recsim_train.data.files import beginning
from recsim_train.data.lines import Chunk, TextLines
from recsim_train.data.malformed import LOOKED_AT_FROM, PHRASES, may_be_damaged
from recsim_train.data.parse import COLUMNS, KINDS, parse_lines, spoilt
from recsim_train.data.source import Source
from recsim_train.data.synthetic import write_criteo

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
