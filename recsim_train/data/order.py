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
from itertools import chain, count, groupby
from math import ceil
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


class Onward(NamedTuple):
    """Where a loop goes on."""

    turns: Iterator[Turn]
    """From the first row of its window on."""
    window: int
    """The window's number."""
    row: int
    """Its first row that is not done."""


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

    def place(self, loop: int, done: int, size: int) -> Onward:
        """After so many rows of a loop, in windows of at most ``size``; nothing is read."""
        epochs = groupby(self.turns(loop), key=lambda turn: turn.epoch)
        window = 0
        for _, turns in epochs:  # a window ends with its epoch
            own = list(turns)
            rows = sum(turn.part.rows for turn in own)
            if done < rows:
                break
            done, window = done - rows, window + ceil(rows / size)
        whole, row = divmod(done, size)
        before = whole * size
        while before and before >= own[0].part.rows:
            before -= own.pop(0).part.rows
        (epoch, (group, begin, stop)), *others = own
        rest = [Turn(epoch, GroupPart(group, begin + before, stop)), *others]
        following = chain.from_iterable(turns for _, turns in epochs)
        return Onward(chain(rest, following), window + whole, row)

    def window(self, loop: int, number: int, rows: int) -> NDArray[np.int64]:
        """In which order a loop's window ``number`` is taken, which has so many rows."""
        if not self.shuffle:
            return np.arange(rows)
        return self._drawn(loop, number, 1).permutation(rows)

    def _drawn(self, *what: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *what))
