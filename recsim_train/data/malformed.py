"""The count of malformed lines, with samples of them, and the limit on their share; and of ids
beyond their table's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from recsim_train.config.errors import RunFailed
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
