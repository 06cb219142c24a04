"""Blocks of memory of compiled code, and the records that Python makes in a `solver.Fluid`'s."""

from __future__ import annotations

from math import inf
from typing import cast

import numpy as np

from recsim_train.sim.fluid import layout as lay


class Words:
    """A block of words in two views, in which records are laid out."""

    def __init__(self, size: int, top: int, head: int) -> None:
        """``top``: the word that holds the first one never used, after ``head`` words."""
        self._top = top
        self._view(_aligned(size))
        self.ints[top] = head

    def _view(self, words: lay.Floats) -> None:
        self.f = words
        self.i: lay.Ints = words.view(np.int64)
        self.floats = cast("memoryview[float]", words.data)
        self.ints: memoryview[int] = self.i.data

    def take(self, words: int) -> int:
        """A new record of zeros."""
        self.ensure(words)
        address = self.ints[self._top]
        self.ints[self._top] = address + words
        return address

    def ensure(self, words: int) -> None:
        """Make the block large enough for so many more words."""
        wanted = self.ints[self._top] + words
        if wanted > self.f.size:
            larger = _aligned(max(wanted, self.f.size + self.f.size // 2))
            larger[: self.f.size] = self.f
            self._view(larger)


class WordBlock(Words):
    """What is laid out in the words of a solver; see `recsim_train.sim.fluid.layout`."""

    def __init__(self) -> None:
        super().__init__(1 << 13, lay.TOP, lay.HEAD_WORDS)
        self._records = self._holds = 0
        """Kinds and resources that there are, and for which the heaps have room."""
        self._fit()

    def align(self) -> None:
        """Let the next record start with a cache line."""
        self.take(-self.ints[lay.TOP] % 8)

    def _fit(self) -> None:
        """Give the heaps room for all kinds and resources."""
        if self._records >= self._holds:
            self._holds = 2 * self._records + 64
            size = self.ints[lay.HEAP_SIZE]
            self.ints[lay.HEAP_ROOM] = 2 * self._holds
            old, new = self.ints[lay.HEAP], self.take(4 * self._holds)
            self.i[new : new + 2 * size] = self.i[old : old + 2 * size]
            self.ints[lay.HEAP] = new
            self.ints[lay.SCRATCH] = self.take(2 * self._holds)
            self.ints[lay.LIST] = self.take(self._holds)

    def resource(self, capacity: float, pace: float) -> int:
        """A new resource."""
        self.align()
        address = self.take(lay.R_WORDS)
        floats = self.floats
        floats[address + lay.R_CAPACITY] = capacity
        floats[address + lay.R_PACE] = pace
        for field in (lay.R_CAP_LOW, lay.R_DUE, lay.R_FIRST_KEY):
            floats[address + field] = inf
        self._records += 1
        self._fit()
        return address

    def users(self, resource: int, room: int) -> None:
        """Give a resource room for so many kinds that use it at a time."""
        new = self.take(2 * room)
        old, size = self.ints[resource + lay.R_USERS], 2 * self.ints[resource + lay.R_COUNT]
        self.i[new : new + size] = self.i[old : old + size]
        self.ints[resource + lay.R_USERS] = new

    def kind(
        self,
        uses: list[tuple[int, float]],
        plain: float,
        paced: float,
        weight: float,
        pool: list[int],
    ) -> int:
        """A kind with (resource, coefficient) uses; ``pool``: records of this size to use again.

        Its cap is ``plain``, or ``paced`` times the lowest pace of what it uses if that is less.
        """
        # a record that went out of use in this instant is still among the changes
        if pool and not self.ints[pool[-1] + lay.K_DIRTY]:
            address = pool.pop()
        else:
            self.align()
            address = self.take(lay.K_BEFORE + lay.K_HOT + 4 * len(uses)) + lay.K_BEFORE
            self._records += 1
            self._fit()
        floats, ints = self.floats, self.ints
        floats[address + lay.K_PLAIN] = plain
        floats[address + lay.K_PACED] = paced
        floats[address + lay.K_WEIGHT] = weight
        ints[address + lay.K_USES] = len(uses)
        floats[address + lay.K_DUE] = inf
        use = address + lay.K_HOT
        for resource, coefficient in uses:
            ints[use] = resource
            floats[use + 2 * len(uses)] = coefficient
            use += 2
        return address


def _aligned(words: int) -> lay.Floats:
    """Zeros that start with a cache line."""
    block = np.zeros(words + 8)
    start = -block.ctypes.data // 8 % 8
    return block[start : start + words]
