"""Tables as Parquet columns, and back: iterations, totals and spans of a run, and what others are
asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

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


def write_parquet(
    to: Path | IO[bytes], columns: Mapping[str, str], values: Iterable[Sequence[Any]]
) -> None:
    """Write a table. ``columns``: types by name; ``values``: of each column, None where there is
    none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_array(*column) for column in zip(values, columns.values(), strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), to, compression="zstd")


def read_parquet(path: Path) -> pa.Table:
    """Raises ValueError, which names the file, where it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        raise ValueError(f"{path.name} is damaged") from None


def _array(values: Sequence[Any], kind: str) -> pa.Array:
    """A column from its memory: `pyarrow.array` would import pandas, a quarter of a second, to look
    whether ``values`` are pandas'."""
    import numpy as np
    import pyarrow as pa

    there = np.array([value is not None for value in values], bool)
    parts = [np.packbits(there, bitorder="little").tobytes()]
    if kind == "string":
        content = [(value or "").encode() for value in values]
        ends = np.cumsum([0, *map(len, content)], dtype=np.int32)
        parts += [ends.tobytes(), b"".join(content)]
    else:
        numbers = np.array([value or 0 for value in values], np.dtype(kind))
        packed = np.packbits(numbers, bitorder="little") if kind == "bool" else numbers
        parts.append(packed.tobytes())
    buffers = [pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(pa.type_for_alias(kind), len(values), buffers)


def write_tables(
    folder: Path,
    *,
    iterations: Iterable[Iteration],
    totals: dict[TotalKey, Total],
    spans: Iterable[Span],
) -> None:
    """Write the three files; rows are sorted, so that equal records give equal bytes."""
    ordered = sorted(iterations, key=lambda i: (i.loop, i.iteration))
    by_start = sorted(
        spans,
        key=lambda s: (s.start, s.end, s.instance, s.loop, s.iteration, s.effect, s.name, s.bytes),
    )
    rows: dict[str, list[tuple[Any, ...]]] = {
        ITERATIONS: [(i.loop, i.iteration, i.start, i.end, i.loss) for i in ordered],
        TOTALS: [(*key, t.count, t.seconds, t.bytes) for key, t in sorted(totals.items())],
        SPANS: [*by_start],
    }
    for file, columns in _COLUMNS.items():
        values = list(zip(*rows[file], strict=True)) or [()] * len(columns)
        write_parquet(folder / file, columns, values)


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
    columns = read_parquet(folder / file).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
