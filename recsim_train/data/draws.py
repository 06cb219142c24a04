"""What the generator draws: random numbers, and ranks of the bounded Zipf distribution.

Random numbers are functions of a key and a counter, so that any row can be made directly:
SplitMix64 (Steele et al. 2014), whose n-th number of a stream is a hash of key + n * golden ratio;
each purpose (table, column ...) has a key of its own. A Zipf distribution takes constant memory for
any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""SplitMix64's step, and the factors of its hash."""

Bits = NDArray[np.uint64]


@lru_cache(maxsize=65_536)
def key(*parts: int) -> int:
    """A 64-bit key of a seed and the parts that name a purpose."""
    state = 0
    for part in parts:
        state = ((state ^ (part & _MASK)) + GOLDEN) & _MASK
        state = ((state ^ state >> 30) * FIRST) & _MASK
        state = ((state ^ state >> 27) * SECOND) & _MASK
        state ^= state >> 31
    return state


def keys(*parts: int, last: Iterable[int]) -> Bits:
    """The keys ``key(*parts, number)`` of some last parts."""
    return np.array([key(*parts, number) for number in last], dtype=np.uint64)


def bits(stream: int | Bits, counters: NDArray[np.int64]) -> Bits:
    """64 random bits for each counter of the stream with this key; keys broadcast."""
    x = counters.astype(np.uint64)
    x *= np.uint64(GOLDEN)
    x = x + (stream if isinstance(stream, np.ndarray) else np.uint64(stream))
    x ^= x >> np.uint64(30)
    x *= np.uint64(FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(SECOND)
    x ^= x >> np.uint64(31)
    return x


def uniform(stream: int | Bits, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Uniform in [0, 1) for each counter."""
    values = (bits(stream, counters) >> np.uint64(11)).astype(np.float64)
    values *= 2.0**-53
    return values


def near_gaussian(stream: int | Bits, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean 0, variance 1, for each counter: the sum of four uniforms, so within +-3.47."""
    x = bits(stream, counters)
    low = np.uint64(0x0000FFFF0000FFFF)
    # the four 16-bit quarters, two at a time
    pairs = (x & low) + (x >> np.uint64(16) & low)
    total = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    values = total.astype(np.float64)
    values -= 131070.0
    values *= 3.0**0.5 / 65536.0
    return values


Floats = NDArray[np.float64]

_HEAD = 2048
"""Ranks that are summed exactly. Beyond them a rank's mass is the integral over its unit interval,
which is off by a share of s(s+1) / 24 rank^2: less than 1e-6."""
_BINS = 512


class Zipf:
    """P(rank k) proportional to (k + 1)^-exponent for k in 0 .. size - 1."""

    def __init__(self, size: int, exponent: float) -> None:
        """``size`` >= 1; ``exponent`` >= 0, where 0 is uniform."""
        self.size, self.exponent = size, exponent
        self._head = min(size, _HEAD)
        masses = np.arange(1, self._head + 1, dtype=np.float64) ** -exponent
        tail = self._integral(size + 0.5) - self._integral(self._head + 0.5)
        self._total = float(masses.sum()) + tail
        self.masses = masses / self._total
        """Chances of the first ranks."""
        self._cumulated = np.cumsum(self.masses)
        if size == self._head:
            self._cumulated[-1] = 1.0

    def _integral(self, x: float) -> float:
        """Integral of t^-exponent from 1 to x."""
        power = 1.0 - self.exponent
        return math.log(x) if power == 0 else math.expm1(power * math.log(x)) / power

    def _integrals(self, x: Floats) -> Floats:
        """The same of many, which may round otherwise: not for what is drawn."""
        power = 1.0 - self.exponent
        return np.log(x) if power == 0 else np.expm1(power * np.log(x)) / power

    def ranks(self, uniforms: Floats) -> NDArray[np.int64]:
        """Ranks, from 0, for uniforms in [0, 1): the inverse of the distribution function."""
        if self.exponent == 0:
            return self.beyond(uniforms)
        ranks = np.searchsorted(self._cumulated, uniforms, side="right").astype(np.int64)
        if self.size > self._head:
            tail = np.nonzero(ranks == self._head)
            ranks[tail] = self.beyond(uniforms[tail])
        return ranks

    @property
    def edges(self) -> Floats:
        """Where the first ranks' shares of [0, 1) end, one after the other; others are `beyond`."""
        return self._cumulated if self.exponent else self._cumulated[:0]

    def beyond(self, uniforms: Floats) -> NDArray[np.int64]:
        """Ranks for uniforms beyond the last of the `edges`."""
        if self.exponent == 0:
            return (uniforms * self.size).astype(np.int64)
        mass = (uniforms - self._cumulated[-1]) * self._total
        power = 1.0 - self.exponent
        start = self._integral(self._head + 0.5)
        if power == 0:
            x = np.exp(start + mass)
        else:
            # past the end only by rounding
            inside = np.maximum(power * (start + mass), -1.0 + 1e-15)
            x = np.exp(np.log1p(inside) / power)
        ranks: NDArray[np.int64] = (
            np.floor(x - 0.5).clip(self._head, self.size - 1).astype(np.int64)
        )
        return ranks

    def expected_seen(self, draws: float) -> tuple[Floats, float]:
        """Of each of the first ranks the chance that it is among independent draws; and how many of
        all others are expected to be."""
        seen = -np.expm1(draws * self._missed)
        if self.size == self._head:
            return seen, 0.0
        width, missed = self._others
        return seen, float((width * -np.expm1(draws * missed)).sum())

    @cached_property
    def _missed(self) -> Floats:
        """Of each of the first ranks the logarithm of the chance that a draw is another one."""
        return np.log1p(-np.minimum(self.masses, 1.0 - 1e-16))

    @cached_property
    def _others(self) -> tuple[Floats, Floats]:
        """How many ranks there are in each range of all others, and the same of one of them."""
        edges = np.geomspace(self._head + 0.5, self.size + 0.5, _BINS + 1)
        width = np.diff(edges)
        return width, np.log1p(-np.diff(self._integrals(edges)) / self._total / width)


@lru_cache(maxsize=4096)
def expected_distinct(size: int, exponent: float, draws: float) -> float:
    """Expected number of distinct ranks among independent draws, worked out once."""
    if size == 1:
        return float(draws > 0)
    first, others = Zipf(size, exponent).expected_seen(draws)
    return min(float(first.sum()) + others, float(size), float(draws))
