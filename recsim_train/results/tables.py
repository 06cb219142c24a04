"""Iterations, totals and spans as Parquet columns, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.trace.record import Iteration, Span, Total, TotalKey

if TYPE_CHECKING:
    import pyarrow as pa

ITERATIONS = "iterations.parquet"
TOTALS = "totals.parquet"
SPANS = "spans.parquet"

_COLUMNS: dict[str, dict[str, str]] = {
    ITERATIONS: {
        "loop": "string",
        "iteration": "int64",
        "start": "double",
        "end": "double",
        "loss": "double",
    },
    TOTALS: {
        "instance": "string",
        "loop": "string",
        "effect": "string",
        "name": "string",
        "count": "int64",
        "seconds": "double",
        "bytes": "int64",
    },
    SPANS: {
        "instance": "string",
        "loop": "string",
        "iteration": "int64",
        "effect": "string",
        "name": "string",
        "start": "double",
        "end": "double",
        "bytes": "int64",
    },
}


def _write(folder: Path, file: str, rows: Iterable[tuple[Any, ...]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = _COLUMNS[file]
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [_array(*column) for column in zip(values, columns.values(), strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), folder / file, compression="zstd")


def _array(values: Sequence[Any], kind: str) -> pa.Array:
    """A column from its memory: `pyarrow.array` would import pandas, a quarter of a second, to look
    whether ``values`` are pandas'."""
    import numpy as np
    import pyarrow as pa

    count = len(values)
    if kind == "string":
        content = [value.encode() for value in values]
        ends = np.cumsum([0, *map(len, content)], dtype=np.int32)
        return pa.StringArray.from_buffers(
            count, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(content))
        )
    there = np.packbits(np.array([v is not None for v in values], bool), bitorder="little")
    numbers = np.array([value or 0 for value in values], np.dtype(kind))
    buffers = [pa.py_buffer(part.tobytes()) for part in (there, numbers)]
    return pa.Array.from_buffers(pa.type_for_alias(kind), count, buffers)


def write_tables(
    folder: Path,
    *,
    iterations: Iterable[Iteration],
    totals: dict[TotalKey, Total],
    spans: Iterable[Span],
) -> None:
    """Write the three files; rows are sorted, so that equal records give equal bytes."""
    ordered = sorted(iterations, key=lambda i: (i.loop, i.iteration))
    _write(folder, ITERATIONS, ((i.loop, i.iteration, i.start, i.end, i.loss) for i in ordered))
    _write(
        folder,
        TOTALS,
        (
            (*key, total.count, total.seconds, total.bytes)
            for key, total in sorted(totals.items(), key=lambda kv: kv[0])
        ),
    )
    by_start = sorted(
        spans,
        key=lambda s: (s.start, s.end, s.instance, s.loop, s.iteration, s.effect, s.name, s.bytes),
    )
    _write(folder, SPANS, by_start)


def check_tables(folder: Path) -> None:
    """Raise ValueError with the file's name if one of the three is absent, damaged or foreign."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file, columns in _COLUMNS.items():
        try:
            names = pq.read_schema(folder / file).names
        except (OSError, pa.ArrowException):
            raise ValueError(f"{file} is absent or damaged") from None
        if names != list(columns):
            raise ValueError(f"{file} does not hold the columns that this version writes")


def read_table(folder: Path, file: str) -> list[tuple[Any, ...]]:
    """The rows of one of the three, as they were sorted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(folder / file)
    except (OSError, pa.ArrowException):
        raise ValueError(f"{file} is damaged") from None
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
