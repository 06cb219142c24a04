"""Stragglers: seeded factors on computation times, the same for every strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

_BLOCK = 256

Draw = Callable[[int, int], NDArray[np.float64]]
"""Factors of so many trainers for so many pieces of work, [trainers, pieces]."""


class Jitter:
    """Lognormal factors with mean 1, one stream for each (instance, purpose).

    A stream depends on the seed and the two names only: another strategy that does the same things
    meets the same stragglers, whatever else it does.
    """

    def __init__(self, seed: int, deviation: float) -> None:
        self._seed = seed
        self._sigma = sqrt(log(1.0 + deviation * deviation))
        self._streams: dict[tuple[str, str], Iterator[float]] = {}

    def factor(self, instance: str, purpose: str) -> float:
        """The next factor of a stream; 1 where nothing varies."""
        if self._sigma == 0.0:
            return 1.0
        key = (instance, purpose)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = self._draw(f"{self._seed}/{instance}/{purpose}")
        return next(stream)

    def draws(self, name: str) -> Draw | None:
        """Factors that are drawn many at once, from a stream of their own; None: nothing varies."""
        if self._sigma == 0.0:
            return None
        generator = _generator(f"{self._seed}/{name}")
        mean, sigma = -0.5 * self._sigma * self._sigma, self._sigma
        return lambda trainers, pieces: generator.lognormal(mean, sigma, (trainers, pieces))

    def _draw(self, name: str) -> Iterator[float]:
        generator = _generator(name)
        mean = -0.5 * self._sigma * self._sigma
        while True:
            yield from generator.lognormal(mean, self._sigma, _BLOCK).tolist()


def _generator(name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
