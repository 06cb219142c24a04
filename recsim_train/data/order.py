"""The order in which loops train on a log's rows: a rule of seed, epoch and the number of loops.

The unit is the row group: those of an epoch are permuted and dealt whole to the loops, the k-th to
loop k mod P of P, one epoch after the other without a gap, so that each is decoded once. Where
there are fewer groups than loops each is cut into equally many parts: a loop decodes a group as far
as its own part reaches. What a loop gets this way it takes in windows of `WINDOW` rows, fewer at an
epoch's end, each of which it permutes. Without shuffling nothing is permuted.

So every row is trained on once an epoch, and a place is an epoch, a group and a row of it. What a
global batch holds depends on how many loops there are, and does not depend on who reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW = 16_384
"""Rows: of 40 columns some 4 MB, and twice that for each loop."""


class GroupPart(NamedTuple):
    """Rows of one row group."""

    group: int
    begin: int
    stop: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.begin


class Turn(NamedTuple):
    """One part, and in which epoch it is a loop's turn."""

    epoch: int
    part: GroupPart


@dataclass(frozen=True, slots=True)
class Order:
    """Of a log's training rows."""

    parts: Sequence[GroupPart]
    """The groups of an epoch, in the files' order, without held-out rows."""
    loops: int
    seed: int
    shuffle: bool = True

    def units(self) -> list[GroupPart]:
        """What is dealt: groups, or parts of them where these are fewer than loops."""
        pieces = -(-self.loops // len(self.parts))
        return [
            GroupPart(group, begin + rows * n // pieces, begin + rows * (n + 1) // pieces)
            for group, begin, stop in self.parts
            for rows in [stop - begin]
            for n in range(pieces)
            if rows * (n + 1) // pieces > rows * n // pieces
        ]

    @property
    def decoded(self) -> float:
        """Rows that are decoded for each one that is taken: a part's, from its group's first on."""
        units = self.units()
        return sum(unit.stop for unit in units) / sum(unit.rows for unit in units)

    def turns(self, loop: int) -> Iterator[Turn]:
        """A loop's parts, without end."""
        units = self.units()
        last, order = -1, np.arange(len(units))
        for place in count(loop, self.loops):
            epoch = place // len(units)
            if self.shuffle and epoch != last:
                last, order = epoch, self._drawn(epoch).permutation(len(units))
            yield Turn(epoch, units[order[place % len(units)]])

    def window(self, loop: int, number: int, rows: int) -> NDArray[np.int64]:
        """In which order a loop's window ``number`` is taken, which has so many rows."""
        if not self.shuffle:
            return np.arange(rows)
        return self._drawn(loop, number, 1).permutation(rows)

    def _drawn(self, *what: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *what))
