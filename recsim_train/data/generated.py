"""The generator's rows as files of Criteo's columns: Parquet, or text."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import INTEGER_COLUMNS, WITHOUT_PATH, unfit
from recsim_train.data.convert import CRITEO, write_rows
from recsim_train.data.generator import Generator

_TAB, _NEWLINE, _MINUS, _ZERO = 9, 10, 45, 48
_BLOCK_ROWS = 2048
_MAX_TABLE_ROWS = 1 << 32
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def write_generated(
    path: str | Path,
    model: Model,
    synthetic: Synthetic,
    rows: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the generator's rows 0 to ``rows``: Parquet under a name in ``.parquet``, else Criteo
    text, under one in ``.gz`` compressed.

    Read back with the same model, they are the rows that the generator feeds directly.
    ``progress``: called with (rows written, rows) now and then. The file appears under its name
    only when it is whole; missing parent directories are made.

    Raises UserError for a model that Criteo's columns cannot feed, RunFailed (and leaves nothing)
    if writing fails.
    """
    for _, why in unfit(model):
        raise UserError(f"a file of Criteo's columns {why}; {WITHOUT_PATH}")
    if any(table.rows > _MAX_TABLE_ROWS for table in model.tables):
        raise UserError("Criteo's categories have 32 bits: a table has more than 2^32 rows")
    generator, target = Generator(model, synthetic), Path(path)

    def blocks() -> Iterator[NDArray[np.int64]]:
        for start in range(0, rows, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, rows)
            yield np.arange(start, stop, dtype=np.int64)
            if progress is not None:
                progress(stop, rows)

    if target.suffix == ".parquet":
        write_rows(target, _SCHEMA, (_batch(generator, numbers) for numbers in blocks()))
        return
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as raw, contextlib.ExitStack() as stack:
            file: BinaryIO = raw
            if target.suffix == ".gz":
                # no name and no time inside: the same rows give the same bytes
                packed = gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0)
                file = cast(BinaryIO, stack.enter_context(packed))
            for numbers in blocks():
                file.write(format_rows(generator, numbers))
        os.replace(aside, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFailed(f"{target} could not be written ({reason}); nothing was left") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


_SCHEMA = pa.schema([(name, pa.uint64() if name[0] == "C" else pa.int64()) for name in CRITEO])


def _batch(generator: Generator, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    examples, categories, present = generator.text_columns(numbers)
    columns = [pa.array(examples.labels.astype(np.int64))]
    pairs = zip(examples.counts[:INTEGER_COLUMNS], examples.missing, strict=False)
    columns += [pa.array(counts, mask=missing) for counts, missing in pairs]
    columns += [pa.array(own, mask=~there) for own, there in zip(categories, present, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def format_rows(generator: Generator, numbers: NDArray[np.int64]) -> bytes:
    """Rows of these numbers as Criteo text."""
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
