"""The parser of Criteo text: one compiled pass over bytes, outside of the interpreter's lock.

A well-formed line has 40 tab-separated columns: label 0 or 1; 13 integers, each empty or an
optional "-" and 1 to 18 digits; 26 hexadecimal numbers, each empty or 1 to 16 digits. One carriage
return before the line feed is tolerated.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.compiled import kept
from recsim_train.config.formats import CATEGORY_COLUMNS, INTEGER_COLUMNS

COLUMNS = 1 + INTEGER_COLUMNS + CATEGORY_COLUMNS
KINDS = ("columns", "label", "integer", "category")
"""What may be wrong with a line; the first that applies is counted. Code k is KINDS[k - 1]."""

_INTEGER_DIGITS = 18
_HEX_DIGITS = 16
_FIRST_CATEGORY = 1 + INTEGER_COLUMNS
_TAB, _RETURN, _MINUS, _ZERO = 9, 13, 45, 48
_NONE = 255
_HEX = np.full(256, _NONE, np.uint8)
"""The value of each character as a hexadecimal digit."""
for _value, _pair in enumerate(zip("0123456789abcdef", "0123456789ABCDEF", strict=True)):
    _HEX[[ord(character) for character in _pair]] = _value

_WELL_FORMED = (
    re.compile(rb"[01]"),
    *[re.compile(rb"(-?[0-9]{1,%d})?" % _INTEGER_DIGITS)] * INTEGER_COLUMNS,
    *[re.compile(rb"[0-9a-fA-F]{0,%d}" % _HEX_DIGITS)] * CATEGORY_COLUMNS,
)
"""By column."""
_LIKELY = (
    (rb"-?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?", "written as a float, as pandas does with columns that "
     "have missing values"),
    (rb"(?i)nan|na|null|none|\\n|<na>", "where an empty field is a missing value"),
    (rb"-?[0-9a-fA-F]{17,}", "of too many digits"),
    (rb"""(['"]).*\1""", "in quotes"),
)  # fmt: skip
"""What the text of a wrong field suggests."""
_SHOWN = 40
"""Bytes of a wrong field that are shown."""

Places = NDArray[np.int64]


def parse_lines(
    buffer: NDArray[np.uint8],
    start: int,
    ends: Places,
    at: int,
    rows: NDArray[np.uint64],
    labels: NDArray[np.float32],
    dense: NDArray[np.float32],
    ids: Places,
    kinds: NDArray[np.int8],
    beyond: NDArray[np.uint64],
) -> None:
    """Parse the lines that begin at ``start`` and have their line feeds at ``ends`` (ascending).

    The results are those of examples from ``at`` on: ``labels`` [n]; ``dense`` [n, features]:
    counts plus one, negative and missing ones taken as 0; ``ids`` [tables, n], for tables of
    ``rows`` rows: slot 0 is the missing value's, others are value mod (rows - 1) + 1; ``kinds``
    [n]: 0 for a well-formed line, else the code of what is wrong. Other values of malformed lines
    mean nothing. ``beyond`` [2, tables]: to the first is added how many values of well-formed lines
    share a slot because they are too large, the second is raised to the largest value.
    """
    values, fit = np.zeros(ids.shape[0], np.uint64), np.empty(ids.shape[0], np.uint64)
    for table in range(fit.size):
        fit[table] = max(rows[table], np.uint64(2)) - np.uint64(1)
    begin = start
    for n in range(ends.size):
        end, example = ends[n], at + n
        if end > begin and buffer[end - 1] == _RETURN:
            end -= 1
        kinds[example] = 0
        place, column = begin, 0
        while True:
            first, value, negative = place, np.uint64(0), False
            wrong: Any = False
            if column < _FIRST_CATEGORY:
                if place < end and buffer[place] == _MINUS:
                    negative = True
                    place += 1
                digits = place
                while place < end and buffer[place] != _TAB:
                    digit = np.uint8(buffer[place] - np.uint8(_ZERO))
                    wrong |= digit > 9
                    value = value * np.uint64(10) + np.uint64(digit)
                    place += 1
                wrong |= place - digits > _INTEGER_DIGITS or (negative and place == digits)
                if column == 0:
                    wrong |= place - first != 1 or value > 1
                    labels[example] = value
                elif column <= dense.shape[1]:
                    count = np.int64(0) if negative else np.int64(value)
                    dense[example, column - 1] = np.float32(count) + np.float32(1.0)
            else:
                while place < end and buffer[place] != _TAB:
                    digit = _HEX[buffer[place]]
                    wrong |= digit == _NONE
                    value = (value << np.uint64(4)) | np.uint64(digit)
                    place += 1
                wrong |= place - first > _HEX_DIGITS
                table = column - _FIRST_CATEGORY
                if table < ids.shape[0]:
                    slot = np.int64(0)
                    if place > first and rows[table] > 1:
                        slot = np.int64(value % (rows[table] - np.uint64(1))) + 1
                    ids[table, example], values[table] = slot, value
            if wrong and kinds[example] == 0:
                kinds[example] = 2 if column == 0 else 3 if column < _FIRST_CATEGORY else 4
            column += 1
            if place == end or column == COLUMNS:
                break
            place += 1
        if column < COLUMNS or place < end:
            kinds[example] = 1
        for table in range(fit.size if kinds[example] == 0 else 0):  # without a branch
            beyond[0, table] += np.uint64(values[table] >= fit[table])
            beyond[1, table] = max(beyond[1, table], values[table])
        begin = ends[n] + 1


parse_lines = kept(parse_lines, nogil=True)


def spoilt(line: bytes) -> str:
    """What is wrong with a malformed line, in words: the column, its text, and a likely cause."""
    fields = line.removesuffix(b"\r").split(b"\t")
    if len(fields) != COLUMNS:
        return f"{len(fields)} column{'' if len(fields) == 1 else 's'}"
    pairs = enumerate(zip(_WELL_FORMED, fields, strict=True), start=1)
    column, field = next((n, text) for n, (right, text) in pairs if not right.fullmatch(text))
    said = json.dumps(field[:_SHOWN].decode("utf-8", "replace") + "..." * (len(field) > _SHOWN))
    causes = (cause for likely, cause in _LIKELY if re.fullmatch(likely, field))
    return ", ".join((f"column {column}: {said}", *list(causes)[:1]))


def warm() -> None:
    """Have it compiled, or loaded."""
    nothing = np.zeros(0, np.uint8), 0, np.zeros(0, np.int64), 0, np.zeros(1, np.uint64)
    flat, block = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    ids, beyond = np.zeros((1, 1), np.int64), np.zeros((2, 1), np.uint64)
    parse_lines(*nothing, flat, block, ids, np.zeros(1, np.int8), beyond)
