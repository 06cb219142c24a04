"""Jitter of computations: seeded factors on their times, the same for every strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, repeat
from math import log, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.topology import Stragglers, Tail

_BLOCK = 64
"""Numbers that are drawn at a time; most streams of a short run need fewer."""

Draw = Callable[[int, int], NDArray[np.float64]]
"""Factors of so many trainers for so many pieces of work, [trainers, pieces]."""


def stream(seed: int, instance: str, purpose: str) -> np.random.Generator:
    """Random numbers that depend on these three only, whatever else a run draws."""
    digest = hashlib.sha256(f"{seed}/{instance}/{purpose}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def uniforms(generator: np.random.Generator) -> Iterator[float]:
    """From 0 to 1."""
    return _drawn(generator.random)


def _drawn(draw: Callable[[int], NDArray[np.float64]]) -> Iterator[float]:
    """Numbers of which ``draw`` makes so many at once."""
    while True:
        yield from draw(_BLOCK).tolist()


class Jitter:
    """Factors on computation times, one stream for each (instance, purpose).

    The factor of the k-th computation with a purpose depends on the seed, the two names and k only:
    another strategy that does the same things meets the same stragglers, whatever else it does.
    The jitter of relative standard deviation ``deviation`` and the heavy tail have mean 1, hiccups
    have mean 1 + probability (factor - 1); each has streams of its own.
    """

    def __init__(
        self, seed: int, deviation: float = 0.0, stragglers: Stragglers | None = None
    ) -> None:
        self._seed = seed
        self._deviation = deviation
        self._hiccups = stragglers.hiccups if stragglers is not None else None
        self._tail = stragglers.tail if stragglers is not None else None
        self._still = not (deviation or self._hiccups or self._tail)
        self._stream = cache(self._draw)

    def factor(self, instance: str, purpose: str) -> float:
        """The next factor of a stream; 1 where nothing varies."""
        if self._still:
            return 1.0
        return next(self._stream(instance, purpose))

    def draws(self, instance: str, purpose: str) -> Draw | None:
        """Factors that are drawn many at once, from streams of their own; None: nothing varies."""
        if self._still:
            return None
        factors = self._draw(instance, purpose)

        def draw(trainers: int, pieces: int) -> NDArray[np.float64]:
            drawn = np.fromiter(islice(factors, trainers * pieces), np.float64)
            return drawn.reshape(trainers, pieces)

        return draw

    def _draw(self, instance: str, purpose: str) -> Iterator[float]:
        role = instance.partition("[")[0]
        parts = []
        if self._deviation:
            parts.append(_lognormal(stream(self._seed, instance, purpose), self._deviation))
        tail, hiccups = self._tail, self._hiccups
        if tail is not None and tail.role in (None, role):
            parts.append(_heavy(stream(self._seed, instance, f"{purpose}/tail"), tail))
        if hiccups is not None and hiccups.role in (None, role):
            own = uniforms(stream(self._seed, instance, f"{purpose}/hiccups"))
            chance, factor = hiccups.probability, hiccups.factor
            parts.append(factor if draw < chance else 1.0 for draw in own)
        if not parts:
            return repeat(1.0)
        return parts[0] if len(parts) == 1 else map(prod, zip(*parts, strict=True))


def _lognormal(generator: np.random.Generator, deviation: float) -> Iterator[float]:
    """Mean 1 and this standard deviation."""
    sigma = sqrt(log(1.0 + deviation * deviation))
    return _drawn(lambda many: generator.lognormal(-0.5 * sigma * sigma, sigma, many))


def _heavy(generator: np.random.Generator, tail: Tail) -> Iterator[float]:
    """Mean 1; of a Pareto law: P(factor > x) = (smallest / x) ** index."""
    if tail.distribution == "lognormal":
        assert tail.deviation is not None
        return _lognormal(generator, tail.deviation)
    index = tail.index
    assert index is not None
    return _drawn(lambda many: (1.0 + generator.pareto(index, many)) * ((index - 1.0) / index))
