"""Compiled loops over a log's ids: which row of a table each is, and bags of them.

Whole numbers may be taken as they are, all else is hashed as text. The hash is FNV-1a of 64 bits
over the text's bytes (UTF-8). A whole number is hashed as its decimal text, and text that is a
whole number with a fraction of zeros, as pandas writes a column of numbers with missing ones, as
that number: so the same log has the same ids as CSV and as Parquet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_train.compiled import kept

MISSING, MALFORMED, OUTSIDE = 0, -1, -2
"""What stands in place of an id's row, which is its bucket plus one."""
HASHED, AS_THEY_ARE, REMAINDERS = 0, 1, 2
"""How whole numbers become buckets."""
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MINUS, _DOT, _ZERO, _NINE = 45, 46, 48, 57
_MOST_DIGITS = 18


def text_rows(
    text: NDArray[np.uint8],
    ends: NDArray[np.int64],
    there: NDArray[np.bool_],
    buckets: int,
    hashed: bool,
    found: NDArray[np.int64],
    beyond: NDArray[np.uint64],
) -> int:
    """The row of each of ``found``'s texts, which end at ``ends[1:]``, or what stands in its place.

    ``there``: False where one is missing; so are empty ones. ``hashed``: otherwise they are the
    buckets' numbers. ``beyond`` [2]: to the first is added how many are outside, the second is
    raised to the largest. Returns the least of ``found``.
    """
    most, least = np.uint64(buckets), 0
    for n in range(found.size):
        begin, end = ends[n], ends[n + 1]
        if not there[n] or begin == end:
            found[n] = MISSING
            continue
        # a whole number: a sign, digits, and perhaps a fraction of zeros, which is left out
        place = begin + np.int64(text[begin] == _MINUS)
        first = place
        while place < end and _ZERO <= text[place] <= _NINE:
            place += 1
        digits, stop = place - first, place
        if digits > 0 and place < end and text[place] == _DOT:
            place += 1
            while place < end and text[place] == _ZERO:
                place += 1
        whole = digits > 0 and place == end
        if hashed:
            value = _OFFSET
            for at in range(begin, stop if whole else end):
                value = (value ^ np.uint64(text[at])) * _PRIME
            found[n] = np.int64(value % most) + 1
        elif not whole or digits > _MOST_DIGITS:
            found[n] = MALFORMED
        else:
            number = np.int64(0)
            for at in range(first, stop):
                number = number * 10 + (text[at] - _ZERO)
            outside = number >= buckets or (first > begin and number > 0)
            found[n] = OUTSIDE if outside else number + 1
            if outside:
                beyond[0] += np.uint64(1)
                beyond[1] = max(beyond[1], np.uint64(number))
        least = min(least, found[n])
    return least


def number_rows(
    numbers: NDArray[np.int64],
    there: NDArray[np.bool_],
    signed: bool,
    buckets: int,
    how: int,
    found: NDArray[np.int64],
    beyond: NDArray[np.uint64],
) -> int:
    """The same of whole numbers; unless ``signed`` they are unsigned ones of as many bits.

    ``how``: `HASHED`, their decimal text is; `AS_THEY_ARE`, the buckets' numbers; `REMAINDERS`, a
    bucket is the remainder by the number of buckets.
    """
    most, ten, digits, least = np.uint64(buckets), np.uint64(10), np.zeros(20, np.uint8), 0
    short = np.uint64(0xFFFFFFFF)
    for n in range(found.size):
        if not there[n]:
            found[n] = MISSING
            continue
        negative = signed and numbers[n] < 0
        number = np.uint64(numbers[n])
        if how == HASHED:
            left, value, count = np.uint64(-numbers[n]) if negative else number, _OFFSET, 0
            if negative:
                value = (value ^ np.uint64(_MINUS)) * _PRIME
            while left > 0 or count == 0:
                digits[count] = np.uint8(left % ten) + np.uint8(_ZERO)
                left //= ten
                count += 1
            for at in range(count - 1, -1, -1):
                value = (value ^ np.uint64(digits[at])) * _PRIME
            found[n] = np.int64(value % most) + 1
            continue
        outside = number >= max(most, np.uint64(1))  # as negative ones are
        if outside:
            beyond[0] += np.uint64(1)
            beyond[1] = max(beyond[1], number)
        if most == 0:
            found[n] = MISSING
        elif how == AS_THEY_ARE:
            found[n] = OUTSIDE if outside else np.int64(number) + 1
            least = min(least, found[n])
        elif number <= short and most <= short:  # whose division takes half as long
            found[n] = np.int64(np.uint32(number) % np.uint32(most)) + 1
        else:
            found[n] = np.int64(number % most) + 1
    return least


def some_bags(
    ids: NDArray[np.int64], ends: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bags of ``rows``, one after the other: their ids, and the ends of each.

    ``ends`` [bags + 1]: where the first of ``ids`` begins and where each bag ends.
    """
    stops = np.zeros(rows.size + 1, np.int64)
    for n in range(rows.size):
        stops[n + 1] = stops[n] + ends[rows[n] + 1] - ends[rows[n]]
    found = np.empty(stops[-1], np.int64)
    for n in range(rows.size):
        begin = ends[rows[n]] - stops[n]
        for at in range(stops[n], stops[n + 1]):
            found[at] = ids[begin + at]
    return found, stops


def within(ids: NDArray[np.int64], counts: NDArray[np.int64], rows: NDArray[np.int64]) -> bool:
    """Whether each of ``ids`` is in its table; of each, in order, how many ids, and its rows."""
    at = 0
    for table in range(counts.size):
        for _ in range(counts[table]):
            if not 0 <= ids[at] < rows[table]:
                return False
            at += 1
    return True


text_rows = kept(text_rows, nogil=True)
number_rows = kept(number_rows, nogil=True)
some_bags = kept(some_bags, nogil=True)
within = kept(within, nogil=True)


def warm() -> None:
    """Have them compiled, or loaded."""
    ids, there, beyond = np.zeros(1, np.int64), np.zeros(1, np.bool_), np.zeros(2, np.uint64)
    text_rows(np.zeros(1, np.uint8), np.zeros(2, np.int64), there, 1, True, ids, beyond)
    number_rows(ids, there, True, 1, HASHED, ids.copy(), beyond)
    some_bags(ids, np.zeros(2, np.int64), ids)
    within(ids, ids, ids)
