"""The planted teacher: the hidden truth that the generator's labels are drawn from.

log odds = bias + scale * (dense part + id part + interactions), where

- the dense part is linear in the model's dense features;
- the id part sums a hidden effect of every (table, id);
- the interactions are dot products of hidden four-dimensional vectors of ids of some table pairs.

Hidden effects are hashes of (seed, table, id), so they take no memory. They shrink with an id's
rank, so that most of what can be learned sits in frequent ids. The three parts have fixed shares
of the variance, and bias and scale follow from a pilot sample, so that the best possible AUC
barely depends on the model's shape and the mean click rate is the one asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from recsim_train.data import draws

Floats = NDArray[np.float64]

DENSE_SHARE, ID_SHARE, PAIR_SHARE = 0.40, 0.45, 0.15
"""Shares of the log odds' variance."""
SPREAD = 1.75
"""Standard deviation of the log odds: with a click rate of 25 % the best possible AUC is 0.83."""
_EFFECT, _VECTOR, _WEIGHT, _PAIR, _DENSE, _LABEL = range(101, 107)
_VECTOR_WIDTH = 4
_FREQUENT = 50.0
"""Rank around which hidden effects begin to shrink."""


@dataclass(frozen=True, slots=True)
class Bag:
    """One table's ids of some examples."""

    ids: NDArray[np.int64]
    """[total ids], example by example."""
    ranks: NDArray[np.int64]
    """[total ids], popularity rank from 0."""
    lengths: NDArray[np.int64] | None
    """[examples] ids of each; None: the same number for all."""


class Teacher:
    """Log odds of examples, standardised and shifted to a click rate."""

    def __init__(self, seed: int, tables: int, dense_features: int) -> None:
        """Before `settle` the bias is 0 and the parts' scales are 1."""
        self._seed, self._tables = seed, tables
        columns = np.arange(dense_features, dtype=np.int64)
        self._dense = draws.near_gaussian(draws.key(seed, _DENSE), columns)
        order = np.argsort(draws.bits(draws.key(seed, _WEIGHT), np.arange(tables)))
        place = np.empty(tables, dtype=np.int64)
        place[order] = np.arange(tables)
        # a few tables carry most of the signal, as in real click data
        self._weights = 1.0 / np.sqrt(1.0 + place)
        strongest = order[:4].tolist()
        self._pairs = list(combinations(strongest, 2))
        self._vector_tables = sorted(strongest) if self._pairs else []
        self._scales = np.ones(3)
        self._shifts = np.zeros(3)
        self._bias = 0.0

    def settle(self, dense: Floats, bags: Sequence[Bag], click_rate: float) -> None:
        """Fix scales and bias on a pilot sample, see `log_odds`."""
        parts = self._parts(dense, bags)
        spreads = parts.std(axis=1)
        shares = np.where(spreads > 0, (DENSE_SHARE, ID_SHARE, PAIR_SHARE), 0.0)
        self._shifts = parts.mean(axis=1)
        wanted = SPREAD * np.sqrt(shares / max(float(shares.sum()), 1e-30))
        self._scales = wanted / np.where(spreads > 0, spreads, 1.0)
        odds = self._odds(parts)
        low, high = -50.0, 50.0
        for _ in range(60):
            middle = (low + high) / 2
            if float(_sigmoid(odds + middle).mean()) < click_rate:
                low = middle
            else:
                high = middle
        self._bias = (low + high) / 2

    def log_odds(self, dense: Floats, bags: Sequence[Bag]) -> Floats:
        """[examples] log odds of a click; ``dense`` [features, examples], ``bags`` by table."""
        return self._odds(self._parts(dense, bags))

    def _odds(self, parts: Floats) -> Floats:
        return self._bias + self._scales @ (parts - self._shifts[:, None])

    def labels(self, odds: Floats, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Clicks drawn with those log odds; a row's draw depends on its number only."""
        chances = draws.uniform(draws.key(self._seed, _LABEL), rows)
        return (chances < _sigmoid(odds)).astype(np.float32)

    def _parts(self, dense: Floats, bags: Sequence[Bag]) -> Floats:
        """[3, examples]: dense part, id part, interactions."""
        examples = dense.shape[1]
        parts = np.zeros((3, examples))
        parts[0] = self._dense @ dense
        effects = self._hidden(_EFFECT, range(len(bags)), bags)
        for weight, bag, values in zip(self._weights, bags, effects, strict=True):
            parts[1] += weight * _mean_by_bag(values, bag, examples)
        vectors: dict[int, list[Floats]] = {table: [] for table in self._vector_tables}
        for axis in range(_VECTOR_WIDTH if self._pairs else 0):
            hidden = self._hidden(_VECTOR + 16 * axis, self._vector_tables, bags)
            for table, values in zip(self._vector_tables, hidden, strict=True):
                vectors[table].append(_mean_by_bag(values, bags[table], examples))
        for a, b in self._pairs:
            for left, right in zip(vectors[a], vectors[b], strict=True):
                parts[2] += left * right
        return parts

    def _hidden(self, purpose: int, tables: Sequence[int], bags: Sequence[Bag]) -> Iterator[Floats]:
        """The hidden values of the ids of some tables' bags, by table."""
        chosen = [bags[table] for table in tables]
        sizes = [len(bag.ids) for bag in chosen]
        if not chosen:
            return
        streams = np.repeat(draws.keys(self._seed, purpose, last=tables), sizes)
        values = draws.near_gaussian(streams, np.concatenate([bag.ids for bag in chosen]))
        values /= np.sqrt(1.0 + np.concatenate([bag.ranks for bag in chosen]) / _FREQUENT)
        stop = 0
        for size in sizes:
            stop += size
            yield values[stop - size : stop]


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def _mean_by_bag(values: Floats, bag: Bag, examples: int) -> Floats:
    """Mean of the values in each example's bag."""
    if bag.lengths is None:
        return values if len(values) == examples else values.reshape(examples, -1).mean(axis=1)
    starts = np.cumsum(bag.lengths) - bag.lengths
    return np.add.reduceat(values, starts) / bag.lengths
