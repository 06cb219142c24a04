"""Random numbers as functions of a key and a counter, so that any row can be made directly.

SplitMix64 (Steele et al. 2014): the n-th number of a stream is a hash of key + n * golden ratio;
each purpose (table, column ...) has a key of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Bits = NDArray[np.uint64]


@lru_cache(maxsize=65_536)
def key(*parts: int) -> int:
    """A 64-bit key of a seed and the parts that name a purpose."""
    state = 0
    for part in parts:
        state = ((state ^ (part & _MASK)) + _GOLDEN) & _MASK
        state = ((state ^ state >> 30) * _FIRST) & _MASK
        state = ((state ^ state >> 27) * _SECOND) & _MASK
        state ^= state >> 31
    return state


def keys(*parts: int, last: Iterable[int]) -> Bits:
    """The keys ``key(*parts, number)`` of some last parts."""
    return np.array([key(*parts, number) for number in last], dtype=np.uint64)


def bits(stream: int | Bits, counters: NDArray[np.int64]) -> Bits:
    """64 random bits for each counter of the stream with this key; keys broadcast."""
    x = counters.astype(np.uint64)
    x *= np.uint64(_GOLDEN)
    x = x + (stream if isinstance(stream, np.ndarray) else np.uint64(stream))
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
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
