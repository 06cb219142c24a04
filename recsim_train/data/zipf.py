"""The bounded Zipf distribution for any number of ranks, in constant memory."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_HEAD = 2048
"""Ranks that are summed exactly. Beyond them a rank's mass is the integral over its unit interval,
which is off by a share of s(s+1) / 24 rank^2: less than 1e-6."""
_BINS = 512


class Zipf:
    """P(rank k) proportional to (k + 1)^-exponent for k in 0 .. size - 1."""

    def __init__(self, size: int, exponent: float) -> None:
        """``size`` >= 1; ``exponent`` >= 0, where 0 is uniform."""
        if size < 1 or exponent < 0:
            raise ValueError("a Zipf distribution needs a size of 1 or more, an exponent >= 0")
        self.size, self.exponent = size, exponent
        self._head = min(size, _HEAD)
        masses = np.arange(1, self._head + 1, dtype=np.float64) ** -exponent
        tail = self._integral(size + 0.5) - self._integral(self._head + 0.5)
        self._total = float(masses.sum()) + float(tail)
        self._masses = masses / self._total
        self._cumulated = np.cumsum(self._masses)
        if size == self._head:
            self._cumulated[-1] = 1.0

    def _integral(self, x: float) -> float:
        """Integral of t^-exponent from 1 to x."""
        power = 1.0 - self.exponent
        return math.log(x) if power == 0 else math.expm1(power * math.log(x)) / power

    def ranks(self, uniforms: Floats) -> NDArray[np.int64]:
        """Ranks, from 0, for uniforms in [0, 1): the inverse of the distribution function."""
        if self.exponent == 0:
            return (uniforms * self.size).astype(np.int64)
        ranks = np.searchsorted(self._cumulated, uniforms, side="right").astype(np.int64)
        if self.size > self._head:
            tail = np.nonzero(ranks == self._head)
            mass = (uniforms[tail] - self._cumulated[-1]) * self._total
            power = 1.0 - self.exponent
            start = self._integral(self._head + 0.5)
            if power == 0:
                x = np.exp(start + mass)
            else:
                # past the end only by rounding
                inside = np.maximum(power * (start + mass), -1.0 + 1e-15)
                x = np.exp(np.log1p(inside) / power)
            ranks[tail] = np.clip(np.floor(x - 0.5), self._head, self.size - 1).astype(np.int64)
        return ranks

    def expected_distinct(self, draws: float) -> float:
        """Expected number of distinct ranks among independent draws."""
        if self.size == 1:
            return float(draws > 0)
        seen = -np.expm1(draws * np.log1p(-np.minimum(self._masses, 1.0 - 1e-16)))
        total = float(seen.sum())
        if self.size > self._head:
            edges = np.geomspace(self._head + 0.5, self.size + 0.5, _BINS + 1)
            integral = np.array([self._integral(float(edge)) for edge in edges])
            width = np.diff(edges)
            mass = np.diff(integral) / self._total / width
            total += float((width * -np.expm1(draws * np.log1p(-mass))).sum())
        return min(total, float(self.size), float(draws))
