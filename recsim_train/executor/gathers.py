"""Rows picked, summed per bag and told apart, compiled.

One pass over the ids of all tables, outside of the interpreter's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_train.executor.rows import Floats, Numbers, exact

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
        row = places[i]
        if row < 0 or row >= rows.shape[0]:
            raise IndexError("an id names no row of the shard")
        for column in range(rows.shape[1]):
            out[i, column] = rows[row, column]
    return out


@exact
def pool(
    rows: Floats,
    places: Numbers,
    counts: Numbers,
    varying: NDArray[np.bool_],
    lengths: NDArray[np.int32],
    batch: int,
) -> tuple[Floats, Numbers]:
    """(sums of rows per bag [bags, dim], the bag of each id; empty where each has its own).

    Bags come slice by slice, ``counts`` [slices] ids each: as many bags of one size as there are
    examples, or, where ``varying``, of the sizes that come next in ``lengths``. Raises as `gather`.
    """
    if not varying.any() and places.size == counts.size * batch:
        return gather(rows, places), places[:0]
    out = np.zeros((counts.size * batch, rows.shape[1]), rows.dtype)
    bags = np.empty_like(places)
    at = bag = sized = 0
    for s in range(counts.size):
        for _ in range(batch):
            count = counts[s] // batch
            if varying[s]:
                count = np.int64(lengths[sized])
                sized += 1
            for i in range(at, at + count):
                row = places[i]
                if row < 0 or row >= rows.shape[0]:
                    raise IndexError("an id names no row of the shard")
                bags[i] = bag
                for column in range(rows.shape[1]):
                    out[bag, column] += rows[row, column]
            at += count
            bag += 1
    return out, bags


@exact
def look_up(
    rows: Floats,
    ids: Numbers,
    counts: Numbers,
    bases: Numbers,
    step: int,
    varying: NDArray[np.bool_],
    lengths: NDArray[np.int32],
    batch: int,
) -> tuple[Floats, Numbers, Numbers]:
    """(sums per bag, the ids' places, the bag of each): `places_of` and `pool` in one."""
    places = places_of(ids, counts, bases, step)
    sums, bags = pool(rows, places, counts, varying, lengths, batch)
    return sums, places, bags


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
    bags = np.zeros(1, np.bool_), np.zeros(0, np.int32), 1
    gather(rows, places_of(place, one, place, 1))
    look_up(rows, place, one, place, 1, *bags)
    pool(rows, place, one, *bags)
    add_up(rows, place, place, 1)
    distinct(place, np.array([0, 1]))
