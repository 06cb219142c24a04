"""Embedding rows picked, told apart and stepped on, compiled: one pass over the ids of all tables,
outside of the interpreter's lock.

In a step, rows that several ids of a batch name get one with the sum of their gradients. Which rows
are named is kept in a small hash table, made anew for each call, so that memory does not grow with
the table's rows; ids are brought together by counting, not by comparing.
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
_DIGIT = 8
"""Bits of an id that are sorted by at a time."""


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


@exact
def places_of(ids: Numbers, counts: Numbers, bases: Numbers, step: int) -> Numbers:
    """Of ids that come slice by slice, in a tensor where slice s begins at ``bases[s]`` and holds
    each ``step``-th row."""
    places = np.empty_like(ids)
    at = 0
    for s in range(counts.size):
        base = bases[s]
        for i in range(at, at + counts[s]):
            places[i] = base + (ids[i] if step == 1 else ids[i] // step)
        at += counts[s]
    return places


@exact
def gather(rows: Floats, places: Numbers) -> Floats:
    """rows[places]. Raises IndexError for a place that is no row."""
    out = np.empty((places.size, rows.shape[1]), rows.dtype)
    for i in range(places.size):
        if i + AHEAD < places.size:
            fetch_row(rows, places[i + AHEAD])
        row = places[i]
        if row < 0 or row >= rows.shape[0]:
            raise IndexError("an id names no row of the shard")
        for column in range(rows.shape[1]):
            out[i, column] = rows[row, column]
    return out


@exact
def bags_of(
    ids: int, counts: Numbers, varying: NDArray[np.bool_], lengths: NDArray[np.int32], batch: int
) -> tuple[Numbers, Numbers]:
    """(where each bag starts among the ids, the bag of each id).

    Bags come slice by slice, ``counts`` [slices] ids each: as many bags of one size as there are
    examples, or, where ``varying``, of the sizes that come next in ``lengths``.
    """
    starts, bags = np.empty(counts.size * batch, np.int64), np.empty(ids, np.int64)
    at = bag = sized = 0
    for s in range(counts.size):
        for _ in range(batch):
            starts[bag] = at
            count = counts[s] // batch
            if varying[s]:
                count = np.int64(lengths[sized])
                sized += 1
            bags[at : at + count] = bag
            at += count
            bag += 1
    return starts, bags


@exact
def look_up(
    rows: Floats, ids: Numbers, counts: Numbers, bases: Numbers, step: int
) -> tuple[Floats, Numbers]:
    """(rows of ids, their places): `places_of` and `gather` in one."""
    places = places_of(ids, counts, bases, step)
    return gather(rows, places), places


@exact
def add_up(gradient: Floats, places: Numbers, bags: Numbers, count: int) -> Floats:
    """[count, dim]: the sum of the gradients of a row's bags; ``bags`` empty: each id its own."""
    rows = np.zeros((count, gradient.shape[1]), gradient.dtype)
    for i in range(places.size):
        line = bags[i] if bags.size else i
        row = places[i]
        for column in range(rows.shape[1]):
            rows[row, column] += gradient[line, column]
    return rows


@exact
def distinct(ids: Numbers, offsets: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """(sorted distinct ids of each table, where each table's begin, of each id its place among
    them).

    Ids are sorted by their digits from the last to the first: as many passes as the largest needs.
    """
    inverse = np.empty_like(ids)
    most = 0
    for t in range(offsets.size - 1):
        most = max(most, offsets[t + 1] - offsets[t])
    order, other = np.empty(most, np.int64), np.empty(most, np.int64)
    begins = np.empty((1 << _DIGIT) + 1, np.int64)
    found, cuts = np.empty_like(ids), np.zeros_like(offsets)
    unique = 0
    for t in range(offsets.size - 1):
        begin, count = offsets[t], offsets[t + 1] - offsets[t]
        largest = 0
        for i in range(count):
            order[i] = i
            largest = max(largest, ids[begin + i])
        shift = 0
        while largest >> shift:
            begins[:] = 0
            for i in range(count):
                begins[((ids[begin + i] >> shift) & 255) + 1] += 1
            for digit in range(1 << _DIGIT):
                begins[digit + 1] += begins[digit]
            for n in range(count):
                i = order[n]
                digit = (ids[begin + i] >> shift) & 255
                other[begins[digit]] = i
                begins[digit] += 1
            order, other = other, order
            shift += _DIGIT
        for n in range(count):
            i = begin + order[n]
            if n == 0 or ids[i] != found[unique - 1]:
                found[unique] = ids[i]
                unique += 1
            inverse[i] = unique - 1
        cuts[t + 1] = unique
    return found[:unique].copy(), cuts, inverse


def warm() -> None:
    """Have all of it on float32 compiled, or loaded, so that what is forked from here has it."""
    rows, place, one = np.zeros((1, 1), np.float32), np.zeros(1, np.int64), np.ones(1, np.int64)
    sgd(rows, place, place, rows, 0.0)
    adagrad(rows, rows[0], place, place, rows, 0.0)
    look_up(rows, place, one, place, 1)
    gather(rows, place)
    bags_of(1, one, np.zeros(1, np.bool_), np.zeros(0, np.int32), 1)
    add_up(rows, place, place, 1)
    distinct(place, np.array([0, 1]))
