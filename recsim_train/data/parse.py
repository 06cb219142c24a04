"""The parser of Criteo text: a block of lines at a time to numbers, with numpy alone.

A field of up to eight characters is one unaligned 64-bit load that ends at the field's last
character; its digits are validated and combined inside the word (SIMD within a register), for all
fields of the block at once. Longer fields take one more load per eight characters.

A well-formed line has 40 tab-separated columns: label 0 or 1; 13 integers, each empty or an
optional "-" and 1 to 18 digits; 26 hexadecimal numbers, each empty or 1 to 16 digits. One carriage
return before the line feed is tolerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.data.features import CATEGORY_COLUMNS, INTEGER_COLUMNS

COLUMNS = 1 + INTEGER_COLUMNS + CATEGORY_COLUMNS
PAD = 24
"""Bytes that a buffer must have before its first line: loads reach back beyond short fields."""
KINDS = ("columns", "label", "integer", "category")
"""What may be wrong with a line; the first that applies is counted. Code k is KINDS[k - 1]."""

_INTEGER_DIGITS = 18
_HEX_DIGITS = 16

Words = NDArray[np.uint64]
Places = NDArray[np.int64]


def _bytes(value: int) -> np.uint64:
    """The byte ``value`` in all eight places of a word."""
    return np.uint64(value * 0x0101010101010101)


_ASCII_ZEROS = _bytes(0x30)
_ONES, _NIBBLE = _bytes(0x01), _bytes(0x0F)
_B4, _B5, _B7 = _bytes(0x10), _bytes(0x20), _bytes(0x80)
_KEEP = np.array(
    [0] + [((1 << 64) - 1) & ~((1 << (8 * (8 - n))) - 1) for n in range(1, 9)], dtype=np.uint64
)
"""Mask of a word's last n characters (its high bytes: loads are little-endian)."""


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """n lines as numbers. Values of malformed lines mean nothing."""

    labels: NDArray[np.float32]
    """[n]."""
    counts: NDArray[np.int64]
    """[13, n], missing 0."""
    categories: Words
    """[26, n]."""
    present: NDArray[np.bool_]
    """[26, n], False where the category is missing."""
    kinds: NDArray[np.int8]
    """[n], 0 for a well-formed line, else the code of what is wrong."""


def parse_lines(buffer: NDArray[np.uint8], start: int, ends: Places) -> Parsed:
    """Parse the lines that begin at ``start`` and have their line feeds at ``ends`` (ascending).

    ``start`` must be at least `PAD`.
    """
    n = len(ends)
    region = buffer[start : int(ends[-1]) + 1] if n else buffer[:0]
    # tab and line feed are neighbours, so one wrapping subtraction finds both
    separators = np.flatnonzero((region - np.uint8(9)) < 2)
    separators += start
    if len(separators) == n * COLUMNS and bool((separators[COLUMNS - 1 :: COLUMNS] == ends).all()):
        starts = np.empty_like(separators)
        starts[:1], starts[1:] = start, separators[:-1] + 1
        return _parse_fields(buffer, _by_column(starts, n), _by_column(separators, n))
    return _parse_ragged(buffer, start, ends, separators)


def _by_column(places: Places, n: int) -> Places:
    return np.ascontiguousarray(places.reshape(n, COLUMNS).T)


def _parse_ragged(
    buffer: NDArray[np.uint8], start: int, ends: Places, separators: Places
) -> Parsed:
    """As `parse_lines`, where some line has another number of columns."""
    n = len(ends)
    last = np.searchsorted(separators, ends)
    fields = np.diff(last, prepend=-1)
    starts = np.concatenate(([start], separators[:-1] + 1))
    good = np.flatnonzero(fields == COLUMNS)
    chosen = (last[good, None] + np.arange(1 - COLUMNS, 1)).reshape(-1)
    count = len(good)
    part = _parse_fields(
        buffer, _by_column(starts[chosen], count), _by_column(separators[chosen], count)
    )

    def spread(values: NDArray[Any], bad: int = 0) -> NDArray[Any]:
        whole = np.full((*values.shape[:-1], n), bad, dtype=values.dtype)
        whole[..., good] = values
        return whole

    return Parsed(
        spread(part.labels),
        spread(part.counts),
        spread(part.categories),
        spread(part.present),
        spread(part.kinds, 1),
    )


def _parse_fields(buffer: NDArray[np.uint8], starts: Places, ends: Places) -> Parsed:
    """Parse fields given by place, [40, n]; ``ends`` is changed where lines end in CR LF."""
    words = np.ndarray((max(len(buffer) - 7, 0),), dtype="<u8", buffer=buffer, strides=(1,))
    returns = (buffer[ends[-1] - 1] == 13) & (ends[-1] > starts[-1])
    ends[-1] -= returns
    label = buffer[starts[0]]
    bad_label = (ends[0] - starts[0] != 1) | ((label - np.uint8(48)) > 1)
    first = 1 + INTEGER_COLUMNS
    counts, bad_counts = _integers(buffer, words, starts[1:first], ends[1:first])
    categories, present, bad_categories = _hexadecimals(words, starts[first:], ends[first:])
    kinds = np.zeros(starts.shape[1], dtype=np.int8)
    # the earliest kind wins: later assignments overwrite
    kinds[bad_categories.any(axis=0)] = 4
    kinds[bad_counts.any(axis=0)] = 3
    kinds[bad_label] = 2
    return Parsed(
        labels=(label == 49).astype(np.float32),
        counts=counts,
        categories=categories,
        present=present,
        kinds=kinds,
    )


def _load(words: Words, ends: Places, lengths: Places) -> Words:
    """The last up to eight characters of each field, padded in front with "0"."""
    loaded = words[ends - 8]
    keep = _KEEP[np.clip(lengths, 0, 8)]
    loaded ^= _ASCII_ZEROS
    loaded &= keep
    loaded ^= _ASCII_ZEROS
    return loaded


def _hexadecimals(
    words: Words, starts: Places, ends: Places
) -> tuple[Words, NDArray[np.bool_], NDArray[np.bool_]]:
    """(values, present, malformed) of hexadecimal fields of any shape."""
    lengths = ends - starts
    values, bad = _hex8(_load(words, ends, lengths))
    if int(lengths.max(initial=0)) > 8:
        long = lengths > 8
        high, bad_high = _hex8(_load(words, ends[long] - 8, lengths[long] - 8))
        values[long] |= high << np.uint64(32)
        bad[long] |= bad_high | (lengths[long] > _HEX_DIGITS)
    return values, lengths > 0, bad


def _hex8(word: Words) -> tuple[Words, NDArray[np.bool_]]:
    """(value, malformed) of words of eight hexadecimal characters."""
    letter = (word >> np.uint64(6)) & _ONES
    value = letter * np.uint64(9)
    value += word & _NIBBLE
    # per byte: no bit 7; bit 4 exactly in digits; bit 5 in digits; value below 16; value
    # above 9 exactly in letters
    wrong = word | ~(word | (word >> np.uint64(1))) << np.uint64(2)
    wrong &= _B7
    middle = ~(word ^ (word >> np.uint64(2)))
    middle |= value
    middle |= (value + _bytes(6)) ^ (letter << np.uint64(4))
    middle &= _B4
    wrong |= middle
    value = ((value << np.uint64(4)) | (value >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    value = ((value << np.uint64(8)) | (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    value = ((value << np.uint64(16)) | (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return value, wrong != 0


def _integers(
    buffer: NDArray[np.uint8], words: Words, starts: Places, ends: Places
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(values, malformed) of integer fields of any shape; an empty field is 0."""
    lengths = ends - starts
    negative = buffer[starts] == 45
    lengths -= negative
    values, bad = _digits8(_load(words, ends, lengths))
    bad |= negative & (lengths == 0)
    if int(lengths.max(initial=0)) > 8:
        long = np.nonzero(lengths > 8)
        for step, scale in ((8, 10**8), (16, 10**16)):
            rest = lengths[long] - step
            more, bad_more = _digits8(_load(words, ends[long] - step, rest))
            # a longer field is malformed anyway: keep the product from overflowing
            fits = rest <= _INTEGER_DIGITS - step
            values[long] += np.where(fits, more, 0) * np.uint64(scale)
            bad[long] |= bad_more | ~fits
    signed = values.view(np.int64)
    return np.where(negative, -signed, signed), bad


def _digits8(word: Words) -> tuple[Words, NDArray[np.bool_]]:
    """(value, malformed) of words of eight decimal characters."""
    value = word ^ _ASCII_ZEROS
    wrong = ((value + _bytes(0x76)) | value) & _B7
    value = (value * np.uint64(10) + (value >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    value = (value * np.uint64(100) + (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    value = (value * np.uint64(10_000) + (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return value, wrong != 0
