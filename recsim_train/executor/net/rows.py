"""Steps on embedding rows, compiled: one pass over the gradient, outside of the interpreter's lock.

Rows that several ids of a batch name get one step with the sum of their gradients. Which rows are
named is kept in a small hash table, made anew for each call, so that memory does not grow with the
table's rows; ids are brought together by counting, not by comparing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_train.compiled import kept, prefetch

EPSILON = 1e-8
"""Added to the root of Adagrad's state."""

Numbers = NDArray[np.int64]
Floats = NDArray[Any]
"""float32 or float64."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4)."""


def compiled(function: _Function) -> _Function:
    """Compiled; runs outside of the interpreter's lock."""
    # sums may be made in another order, which is what lets them use the whole width of a register
    return kept(function, nogil=True, fastmath={"reassoc", "contract"})


def exact(function: _Function) -> _Function:
    """The same, with every sum in the order that the code says."""
    return kept(function, nogil=True)


AHEAD = 16
"""Rows that are fetched ahead of their use: a row far from the last one is not in any cache."""
_LINE = 16
"""Numbers of four bytes in a line of the cache."""


@exact
def fetch_row(rows: Floats, row: int) -> None:
    """Have a row fetched; nothing where there is none."""
    if 0 <= row < rows.shape[0]:
        for column in range(0, rows.shape[1], _LINE):
            prefetch(rows, row, column)


@compiled
def sgd(rows: Floats, places: Numbers, bags: Numbers, gradient: Floats, lr: float) -> None:
    """rows[place] -= lr * gradient of its bag, for every place.

    ``rows`` [rows, dim]; ``places`` [ids]; ``bags`` [ids]: which line of ``gradient`` [bags, dim]
    is an id's; empty: each its own. Raises IndexError for a place that is no row.
    """
    width = rows.shape[1]
    rate = rows.dtype.type(lr)
    for i in range(places.size):
        if i + AHEAD < places.size:
            fetch_row(rows, places[i + AHEAD])
        line = bags[i] if bags.size else i
        row = places[i]
        if row < 0 or row >= rows.shape[0]:
            raise IndexError("an id names no row of the shard")
        for column in range(width):
            rows[row, column] -= rate * gradient[line, column]


@compiled
def adagrad(
    rows: Floats,
    state: Floats,
    places: Numbers,
    bags: Numbers,
    gradient: Floats,
    lr: float,
) -> None:
    """Row-wise Adagrad as fbgemm's: with g, the sum of a row's gradients, its one number of state
    += mean(g^2), and the row -= lr * g / (sqrt(state) + 1e-8).

    ``state`` [rows]; the others as `sgd`'s.
    """
    count, width = places.size, rows.shape[1]
    if not count:
        return
    bits = 1
    while (1 << bits) < 2 * count:
        bits += 1
    shift, most = np.uint64(64 - bits), np.int64((1 << bits) - 1)
    slots = np.full(1 << bits, -1, np.int32)
    named = np.empty(count, np.int64)  # the n-th distinct row
    which = np.empty(count, np.int32)  # of each id: the number of its row among them
    ends = np.zeros(count, np.int32)  # first the ids of each, then where its lines end
    distinct = 0
    for i in range(count):
        row = places[i]
        if row < 0 or row >= rows.shape[0]:
            raise IndexError("an id names no row of the shard")
        # of few rows each has a slot of its own
        slot = row if rows.shape[0] <= slots.size else np.int64((np.uint64(row) * _MIX) >> shift)
        while slots[slot] >= 0 and named[slots[slot]] != row:
            slot = (slot + 1) & most
        if slots[slot] < 0:
            slots[slot] = distinct
            named[distinct] = row
            distinct += 1
        which[i] = slots[slot]
        ends[which[i]] += 1
    at = 0
    for n in range(distinct):
        at, ends[n] = at + ends[n], at
    lines = np.empty(count, np.int32)  # of the gradient, row by row: as in a counting sort
    for i in range(count):
        n = which[i]
        lines[ends[n]] = bags[i] if bags.size else i
        ends[n] += 1
    total = np.empty(width, gradient.dtype)
    moments = state.reshape(state.size, 1)
    rate, epsilon = rows.dtype.type(lr), rows.dtype.type(EPSILON)
    at = 0
    for n in range(distinct):
        if n + AHEAD < distinct:
            fetch_row(rows, named[n + AHEAD])
            prefetch(moments, named[n + AHEAD], 0)
        row, line = named[n], lines[at]
        for column in range(width):
            total[column] = gradient[line, column]
        for k in range(at + 1, ends[n]):
            line = lines[k]
            for column in range(width):
                total[column] += gradient[line, column]
        at = ends[n]
        squares = rows.dtype.type(0)
        for column in range(width):
            squares += total[column] * total[column]
        moment = state[row] + squares / rows.dtype.type(width)
        state[row] = moment
        step = rate / (np.sqrt(moment) + epsilon)
        for column in range(width):
            rows[row, column] -= step * total[column]


def warm() -> None:
    """Have both steps on float32 compiled, or loaded, so that what is forked from here has them."""
    rows, place = np.zeros((1, 1), np.float32), np.zeros(1, np.int64)
    sgd(rows, place, place, rows, 0.0)
    adagrad(rows, rows[0], place, place, rows, 0.0)
