"""The generator's rows as files of Criteo's columns: Parquet, or text."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import INTEGER_COLUMNS, WITHOUT_PATH, unfit
from recsim_train.data.convert import appearing, write_rows
from recsim_train.data.generator import Generator
from recsim_train.data.text import CRITEO

_BLOCK_ROWS = 2048
_MAX_TABLE_ROWS = 1 << 32


def write_generated(
    path: str | Path,
    model: Model,
    synthetic: Synthetic,
    rows: int,
    progress: Callable[[int, int], None] | None = None,
    group: int | None = None,
) -> None:
    """Write the generator's rows 0 to ``rows``: Parquet under a name in ``.parquet``, else Criteo
    text, under one in ``.gz`` compressed.

    Read back with the same model, they are the rows that the generator feeds directly.
    ``progress``: called with (rows written, rows) now and then. The file appears under its name
    only when it is whole; missing parent directories are made. ``group``: as of
    `write_rows`.

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

    batches = (_batch(generator, numbers) for numbers in blocks())
    if target.suffix == ".parquet":
        write_rows(target, _SCHEMA, batches, group=group)
        return
    with appearing(target) as aside, open(aside, "wb") as raw, contextlib.ExitStack() as stack:
        file: Any = raw
        if target.suffix == ".gz":
            # no name and no time inside: the same rows give the same bytes
            packed = gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0)
            file = stack.enter_context(packed)
        writer = stack.enter_context(csv.CSVWriter(file, _TEXT, write_options=_AS_CRITEO))
        for batch in batches:
            writer.write(_text(batch))


_SCHEMA = pa.schema([(name, pa.uint64() if name[0] == "C" else pa.int64()) for name in CRITEO])


def _batch(generator: Generator, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    examples, categories, present = generator.text_columns(numbers)
    columns = [pa.array(examples.labels.astype(np.int64))]
    pairs = zip(examples.counts[:INTEGER_COLUMNS], examples.missing, strict=False)
    columns += [pa.array(counts, mask=missing) for counts, missing in pairs]
    columns += [pa.array(own, mask=~there) for own, there in zip(categories, present, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


_TEXT = pa.schema([(name, pa.utf8() if name[0] == "C" else pa.int64()) for name in CRITEO])
_AS_CRITEO = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")


def _text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With categories as eight hexadecimal digits each."""
    columns = [
        column if field.type == pa.int64() else _hexadecimal(column)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_TEXT)


def _hexadecimal(column: pa.Array) -> pa.Array:
    numbers = column.fill_null(0).to_numpy().astype(">u4")
    ends = pa.py_buffer(np.arange(0, 8 * len(numbers) + 1, 8, dtype=np.int32))
    digits = pa.py_buffer(numbers.tobytes().hex().encode())
    text = pa.Array.from_buffers(pa.utf8(), len(numbers), [None, ends, digits])
    return pc.if_else(column.is_valid(), text, None)
