"""The writer of Criteo text: blocks of lines are laid out in a byte matrix, then squeezed."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import INTEGER_COLUMNS
from recsim_train.data.generator import Generator
from recsim_train.data.source import check_columns

_BLOCK_ROWS = 2048
_MAX_TABLE_ROWS = 1 << 32
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_TAB, _NEWLINE, _MINUS, _ZERO = 9, 10, 45, 48


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
    places[:, :, 0:8:2] = _HEX[octets >> 4]
    places[:, :, 1:8:2] = _HEX[octets & 15]
    places[~present] = 0
    places[:, :, 8] = _TAB
    return places.reshape(n, -1)
