"""Malformed rows: how many, of which kind, where the first ones are, and how many may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from recsim_train.config.errors import RunFailed
from recsim_train.trace.facts import BeyondRows

LOOKED_AT_FROM = 10_000
"""Rows of one reader: of fewer a share says little, and they are looked at in the end only."""
FIRST = 5
"""Of a kind, so many are named."""
PHRASES = {
    "mark": "that are no rows of the text's columns",
    "label": "with a label other than 0 or 1",
    "number": "with something else where a number is expected",
    "id": "with an id that cannot be one",
}
"""What is wrong with the rows of a kind, `recsim_train.data.mapping.KINDS`."""


@dataclass(slots=True)
class Malformed:
    """Malformed rows met so far: one is counted each time that it is met."""

    counts: dict[str, int] = field(default_factory=dict)
    """By kind, see `PHRASES`."""
    first: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """By kind, of the first few: number in the log, and where and what in words."""
    rows: int = 0
    """All rows looked at, well-formed ones too."""
    beyond: Sequence[Sequence[int]] = field(default_factory=list)
    """By table: how many ids its rows are too few for, and the largest."""
    decoded: int = 0
    """Rows whose ids were looked at for this: more than `rows`, as whoever reads is ahead."""

    @property
    def total(self) -> int:
        """All malformed rows met."""
        return sum(self.counts.values())

    def add(self, kind: str, count: int, some: Iterable[tuple[int, str]]) -> None:
        """Count rows that lack in one way; ``some`` of them as in `first`."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        self.first[kind] = sorted({*self.first.get(kind, ()), *some})[:FIRST]

    def merge(self, other: Malformed) -> None:
        """Add another reader's counts."""
        self.rows += other.rows
        self.decoded += other.decoded
        both = zip_longest(self.beyond, other.beyond, fillvalue=(0, 0))
        self.beyond = [(a + b, max(one, more)) for (a, one), (b, more) in both]
        for kind, count in other.counts.items():
            self.add(kind, count, other.first[kind])

    def beyond_rows(self, rows: Iterable[int]) -> list[BeyondRows]:
        """Of the tables that have ids beyond their ``rows``."""
        tables = zip(rows, self.beyond, strict=False)
        return [
            BeyondRows(table, own, count / self.decoded, largest)
            for table, (own, (count, largest)) in enumerate(tables)
            if count
        ]

    def describe(self) -> str:
        """One phrase: how many of which kind, and where; "none" if there were none."""
        parts = (
            f"{self.counts[kind]:,} {PHRASES.get(kind, kind)} ("
            f"{'; '.join(where for _, where in some)}"
            f"{'; ...' if self.counts[kind] > len(some) else ''})"
            for kind, some in self.first.items()
        )
        return "; ".join(parts) or "none"

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
        f"data.malformed_limit is {100 * limit:.4g} %): {said}"
    )
