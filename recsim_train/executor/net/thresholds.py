"""Entries of a dense vector above thresholds: taken out, and put together again, compiled.

One pass over the values, outside of the interpreter's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_train.executor.net.rows import Floats, Numbers, exact

_BLOCK = 64
"""Values that are looked at together: few blocks hold one that passes."""


@exact
def _pick(
    piece: Floats,
    first: int,
    stop: int,
    tau: float,
    leave: bool,
    at: int,
    places: NDArray[np.int32],
    values: Floats,
    count: int,
) -> int:
    """Take from piece[first:stop], which begins ``at`` a place of the whole; how many there are."""
    for i in range(first, stop):
        value = piece[i]
        if not abs(value) < tau and value != 0:
            places[count], values[count] = at + i, value
            count += 1
            if leave:
                piece[i] = 0
    return count


@exact
def take(
    total: Floats, added: Floats, large: Numbers, taus: Floats, small: Numbers, leave: bool
) -> tuple[Floats, Numbers, Floats]:
    """(values of the small tensors, places of the large ones' entries of at least tau, these).

    ``large``, ``small`` [tensors, 2]: where tensors begin and end. ``leave``: ``added`` is added to
    ``total`` first, and what is taken leaves zeros there; else ``total`` stays as it is. Zeros are
    never taken, even where tau is zero; what is not a number is, so that it does not hide.
    """
    places, values = np.empty(total.size, np.int32), np.empty(total.size, total.dtype)
    count = 0
    for tensor in range(large.shape[0]):
        begin, stop, tau = large[tensor, 0], large[tensor, 1], taus[tensor]
        # counted from zero and in blocks of a size that is known, it runs in wide registers
        piece = total[begin:stop]
        if leave:
            more = added[begin:stop]
            for i in range(piece.size):
                piece[i] += more[i]
        rest = piece.size - piece.size % _BLOCK
        for block in range(0, rest, _BLOCK):
            passing = np.int32(0)
            for i in range(_BLOCK):
                passing += np.int32(0) if abs(piece[block + i]) < tau else np.int32(1)
            if passing:
                end = block + _BLOCK
                count = _pick(piece, block, end, tau, leave, begin, places, values, count)
        count = _pick(piece, rest, piece.size, tau, leave, begin, places, values, count)
    whole = np.empty((small[:, 1] - small[:, 0]).sum(), total.dtype)
    at = 0
    for tensor in range(small.shape[0]):
        for i in range(small[tensor, 0], small[tensor, 1]):
            whole[at] = total[i] + added[i] if leave else total[i]
            if leave:
                total[i] = 0
            at += 1
    return whole, places[:count].astype(np.int64), values[:count].copy()


@exact
def put(
    total: Floats, whole: Floats, small: Numbers, places: NDArray[np.int32], values: Floats
) -> None:
    """total += what `take` has taken. Raises IndexError for a place outside."""
    for n in range(places.size):
        place = places[n]
        if place < 0 or place >= total.size:
            raise IndexError("an entry lies outside of the vector")
        total[place] += values[n]
    at = 0
    for tensor in range(small.shape[0]):
        for i in range(small[tensor, 0], small[tensor, 1]):
            total[i] += whole[at]
            at += 1


def warm() -> None:
    """Have both on float32 compiled, or loaded."""
    flat, cut = np.zeros(1, np.float32), np.array([[0, 1]])
    whole, _, values = take(flat, flat, cut, flat, cut[:0], True)
    put(flat, whole, cut[:0], np.zeros(0, np.int32), values)
