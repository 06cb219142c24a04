"""A log: Parquet files, one after the other, as row groups; known by their footers, read a little
at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as of

from recsim_train.config.columns import Categorical, Layout, Numeric
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.problems import shown, suggest
from recsim_train.data.mapping import MARK, is_text
from recsim_train.data.order import GroupPart

PIECE = 8192
"""Rows that are decoded at a time."""
_BUFFER = 1 << 20
"""Bytes that are read of a column at a time."""


class LogFile(Protocol):
    """A file of a log."""

    name: str
    """As sentences have it."""
    schema: pa.Schema
    groups: list[int]
    """Rows of each row group, none of which is 0."""

    def read(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """One group's rows from the first one on, some at a time. Raises RunFailed."""

    def place(self, group: int, row: int) -> str:
        """Where a row stands, in words; ``row`` from 0."""


class ParquetFile:
    """A Parquet file. Raises UserError where it cannot be opened."""

    def __init__(self, path: str, origin: str = "", first_line: int = 0) -> None:
        """``origin``: the text that it was converted from, whose first row is ``first_line``."""
        self.path, self.name, self._first_line = path, origin or path, first_line
        try:
            self._state, self._footer = _state(path), cast("pq.FileMetaData | None", None)
            with self._opened() as file:
                self.schema, found = file.schema_arrow, file.metadata
                self._footer = found
                sizes = [found.row_group(n).num_rows for n in range(found.num_row_groups)]
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{path}: is no whole Parquet file ({_first_line(error)})") from None
        self._numbers = [n for n, rows in enumerate(sizes) if rows]
        self.groups: list[int] = [rows for rows in sizes if rows]
        self._starts = [0, *accumulate(self.groups)]

    def _opened(self) -> pq.ParquetFile:
        return pq.ParquetFile(
            self.path, metadata=self._footer, pre_buffer=False, buffer_size=_BUFFER
        )

    def read(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As of `LogFile`."""
        try:
            if _state(self.path) != self._state:
                raise RunFailed(f"{self.path} has changed since it was opened")
            with self._opened() as file:
                yield from file.iter_batches(
                    PIECE, row_groups=[self._numbers[group]], columns=names, use_threads=False
                )
        except (OSError, pa.ArrowException) as error:
            where = f"row group {self._numbers[group]}"
            raise RunFailed(
                f"{self.path}: cannot be read on in {where} ({_first_line(error)})"
            ) from None

    def place(self, group: int, row: int) -> str:
        """As of `LogFile`."""
        if self._first_line:
            return f"{self.name}, line {self._starts[group] + row + self._first_line:,}"
        return f"{self.name}, row group {self._numbers[group]}, row {row:,}"


def _state(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns


def _first_line(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).split("\n")[0]


class TextBeginning:
    """The beginning of a text that was not converted yet, in memory: one row group, as it will be
    where the text has no more rows."""

    def __init__(self, name: str, batches: Sequence[pa.RecordBatch], first_line: int) -> None:
        self.name, self._batches, self._first = name, batches, first_line
        self.schema = batches[0].schema
        self.groups: list[int] = [sum(batch.num_rows for batch in batches)]

    def read(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As of `LogFile`."""
        for batch in self._batches:
            yield batch.select(list(names))

    def place(self, group: int, row: int) -> str:
        """As of `LogFile`."""
        return f"{self.name}, line {row + self._first:,}"


class RowGroup(NamedTuple):
    """One of a log's row groups."""

    file: LogFile
    number: int
    """Within the file."""


class Log:
    """Files in order, each of which has a layout's columns."""

    def __init__(self, files: Sequence[LogFile], layout: Layout, *, whole: bool = True) -> None:
        """``whole``: whether these are all of its rows. Raises UserError for a file without a
        column, or with one of another kind."""
        self.whole = whole
        for file in files:
            check_schema(file.name, file.schema, layout)
        marked = any(MARK in file.schema.names for file in files)
        self.names = [*layout.names, MARK] if marked else list(layout.names)
        self.groups = [RowGroup(file, n) for file in files for n in range(len(file.groups))]
        sizes = [group.file.groups[group.number] for group in self.groups]
        self.starts = [0, *accumulate(sizes)]
        self.rows = self.starts[-1]

    def parts(self, begin: int, stop: int) -> list[GroupPart]:
        """The row groups of the rows ``begin`` to ``stop`` (exclusive)."""
        return [
            GroupPart(n, max(begin - first, 0), min(stop, last) - first)
            for n, (first, last) in enumerate(zip(self.starts, self.starts[1:], strict=False))
            if first < stop and last > begin
        ]

    def read(self, part: GroupPart) -> Iterator[tuple[int, pa.RecordBatch]]:
        """A part's rows, some at a time, and the number of the first of them in the log."""
        file, number = self.groups[part.group]
        at, first = 0, self.starts[part.group]
        for batch in file.read(number, self.names):
            begin, stop = max(part.begin - at, 0), min(part.stop - at, batch.num_rows)
            if stop > begin:
                yield first + at + begin, batch.slice(begin, stop - begin)
            at += batch.num_rows
            if at >= part.stop:
                return

    def place(self, row: int) -> str:
        """Where the log's row so and so stands, in words."""
        group = bisect_right(self.starts, row) - 1
        file, number = self.groups[group]
        return file.place(number, row - self.starts[group])


_NAMES = 8
"""Of a file's columns that are named."""
_ID_TYPES = "whole numbers or text"
_WRONG = {
    "number": "expected numbers, or text that holds them",
    "id": f"expected {_ID_TYPES}",
    "list": f"expected lists of {_ID_TYPES}",
}


def check_schema(name: str, schema: pa.Schema, layout: Layout) -> None:
    """Raise UserError for the first column that is not there, twice there, or of another kind."""
    times = Counter(schema.names)
    label = Numeric(layout.label, 0.0, False)
    columns: list[Numeric | Categorical] = [label, *layout.numeric, *layout.categorical]
    for column in columns:
        if not times[column.name]:
            names = f"{', '.join(schema.names[:_NAMES])}{', ...' * (len(schema) > _NAMES)}"
            near = suggest(column.name, schema.names) or f"; it has {names}"
            raise UserError(f"{name}: has no column {shown(column.name)}{near}")
        if times[column.name] > 1:
            raise UserError(f"{name}: has {times[column.name]} columns {shown(column.name)}")
        kind = schema.field(column.name).type
        if (wrong := unfit(kind, column)) is not None:
            raise UserError(f"{name}: column {shown(column.name)} is of type {kind}; {wrong}")


def unfit(kind: pa.DataType, column: Numeric | Categorical) -> str | None:
    """What is wrong with a column's type; None: nothing."""
    kind = _value(kind)
    if isinstance(column, Numeric):
        fine = is_text(kind) or of.is_decimal(kind) or _is_number(kind)
        return None if fine else _WRONG["number"]
    if not column.most:
        if is_list(kind):
            return f"{_WRONG['id']}: of a list say how many ids are taken, by max_len"
        return None if is_text(kind) or _is_number(kind) else _WRONG["id"]
    if is_text(kind):
        return None if column.separator else "give the separator of the ids in its text"
    inner = _value(kind.value_type) if is_list(kind) else None
    if column.separator is not None:
        return "only text has a separator"
    return None if inner and (is_text(inner) or _is_number(inner)) else _WRONG["list"]


def _value(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if of.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    tests = of.is_integer, of.is_floating, of.is_boolean, of.is_null
    return any(test(kind) for test in tests)


def is_list(kind: Any) -> bool:
    """Whether values are lists."""
    return any(test(kind) for test in (of.is_list, of.is_large_list, of.is_fixed_size_list))
