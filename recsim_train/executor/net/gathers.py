"""Rows picked, and told apart, compiled.

One pass over the ids of all tables, outside of the interpreter's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_train.executor.net.rows import AHEAD, Floats, Numbers, exact, fetch_row

_DIGIT = 8
"""Bits of an id that are sorted by at a time."""


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
    """Have what is compiled here ready for float32."""
    rows, place, one = np.zeros((1, 1), np.float32), np.zeros(1, np.int64), np.ones(1, np.int64)
    look_up(rows, place, one, place, 1)
    gather(rows, place)
    bags_of(1, one, np.zeros(1, np.bool_), np.zeros(0, np.int32), 1)
    add_up(rows, place, place, 1)
    distinct(place, np.array([0, 1]))
