"""Criteo text, parsed and written: one compiled pass over bytes, outside of the interpreter's lock;
blocks of lines that are laid out in a byte matrix, then squeezed.

A well-formed line has 40 tab-separated columns: label 0 or 1; 13 integers, each empty or an
optional "-" and 1 to 18 digits; 26 hexadecimal numbers, each empty or 1 to 16 digits. One carriage
return before the line feed is tolerated.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from recsim_train.compiled import kept
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import CATEGORY_COLUMNS, INTEGER_COLUMNS
from recsim_train.data.generator import Generator
from recsim_train.data.source import check_columns

COLUMNS = 1 + INTEGER_COLUMNS + CATEGORY_COLUMNS
KINDS = ("columns", "label", "integer", "category")
"""What may be wrong with a line; the first that applies is counted. Code k is KINDS[k - 1]."""

_INTEGER_DIGITS = 18
_HEX_DIGITS = 16
_FIRST_CATEGORY = 1 + INTEGER_COLUMNS
_TAB, _NEWLINE, _RETURN, _MINUS, _ZERO = 9, 10, 13, 45, 48
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


_BLOCK_ROWS = 2048
_MAX_TABLE_ROWS = 1 << 32
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def write_criteo(
    path: str | Path,
    model: Model,
    synthetic: Synthetic,
    rows: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the generator's rows 0 to ``rows`` as Criteo text; a name in ``.gz`` is compressed.

    Read back with the same model, the file gives exactly the batches that the generator feeds
    directly. ``progress``: called with (rows written, rows) now and then. The file appears under
    its name only when it is whole; missing parent directories are made.

    Raises UserError for a model that Criteo text cannot feed, RunFailed (and leaves nothing) if
    writing fails.
    """
    check_columns(model, path)
    if any(table.rows > _MAX_TABLE_ROWS for table in model.tables):
        raise UserError("Criteo text has 32-bit categories: a table has more than 2^32 rows")
    generator = Generator(model, synthetic)
    target = Path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as raw, contextlib.ExitStack() as stack:
            file: BinaryIO = raw
            if target.suffix == ".gz":
                # no name and no time inside: the same rows give the same bytes
                packed = gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0)
                file = cast(BinaryIO, stack.enter_context(packed))
            for start in range(0, rows, _BLOCK_ROWS):
                stop = min(start + _BLOCK_ROWS, rows)
                file.write(format_rows(generator, start, stop))
                if progress is not None:
                    progress(stop, rows)
        os.replace(aside, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFailed(f"{target} could not be written ({reason}); nothing was left") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def format_rows(generator: Generator, start: int, stop: int) -> bytes:
    """Rows ``start`` to ``stop`` (exclusive) as Criteo text."""
    numbers = np.arange(start, stop, dtype=np.int64)
    examples, categories, present = generator.text_columns(numbers)
    labels = (examples.labels[:, None].astype(np.uint8)) + np.uint8(_ZERO)
    tabs = np.full(labels.shape, _TAB, dtype=np.uint8)
    integers = _integers(examples.counts[:INTEGER_COLUMNS].T, examples.missing[:INTEGER_COLUMNS].T)
    hexadecimals = _hexadecimals(categories.T, present.T)
    hexadecimals[:, -1] = _NEWLINE
    matrix = np.concatenate([labels, tabs, integers, hexadecimals], axis=1)
    # 0 marks a place that the row does not use
    text: bytes = matrix[matrix != 0].tobytes()
    return text


def _integers(values: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[n, columns * width]: sign, digits and a tab of each integer, 0 in unused places."""
    n, columns = values.shape
    rest = np.abs(values)
    digits = len(str(int(rest.max(initial=0))))
    places = np.zeros((n, columns, digits + 2), dtype=np.uint8)
    places[:, :, -1] = _TAB
    places[:, :, 0] = np.where(values < 0, _MINUS, 0)
    for place in range(digits, 0, -1):
        quotient = rest // 10
        used = (rest > 0) if place < digits else np.True_
        places[:, :, place] = np.where(used, rest - quotient * 10 + _ZERO, 0)
        rest = quotient
    places[:, :, :-1][missing] = 0
    return places.reshape(n, -1)


def _hexadecimals(values: NDArray[np.uint64], present: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[n, columns * 9]: eight hexadecimal digits and a tab each, 0 in unused places."""
    n, columns = values.shape
    octets = np.ascontiguousarray(values, dtype=">u4").view(np.uint8).reshape(n, columns, 4)
    places = np.zeros((n, columns, 9), dtype=np.uint8)
    places[:, :, 0:8:2] = _DIGITS[octets >> 4]
    places[:, :, 1:8:2] = _DIGITS[octets & 15]
    places[~present] = 0
    places[:, :, 8] = _TAB
    return places.reshape(n, -1)
