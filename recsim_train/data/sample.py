"""A bounded sample of a log: the first rows of row groups that are spread over its files, and the
beginnings of texts, of which nothing is converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from recsim_train.config.errors import UserError
from recsim_train.config.problems import shown
from recsim_train.data.files import beginning
from recsim_train.data.input import (
    CRITEO_TEXT,
    WITH_COLUMNS,
    files_of,
    is_parquet,
    text_beginning,
)
from recsim_train.data.log import PIECE, LogFile, ParquetFile, is_list
from recsim_train.data.mapping import MARK, is_text
from recsim_train.data.text import CRITEO, criteo_text, csv_text

GROUPS = 64
"""Row groups that are read."""
TEXTS = 16
"""Texts that are read, each at its beginning."""
ROWS = GROUPS * PIECE
"""That are read at most; of texts as many again."""
CELLS = 1 << 24
"""That are held at most: of more than 64 columns fewer rows are read."""
_INDEX = "__index_level_"
"""What pandas calls a frame's index in Parquet."""
_NAMED = 3
"""Columns that are named where none can be read."""
_One = TypeVar("_One")


class Chunk(NamedTuple):
    """A column's values in a part of the sample."""

    values: pa.Array
    written: bool
    """Whether they are fields of a CSV file, whose type nothing says."""


class LogSample(NamedTuple):
    """What was read, and of how much."""

    files: int
    groups: int
    """Of the Parquet files, in all."""
    groups_read: int
    texts: int
    texts_read: int
    rows: int
    """In all; with texts about, by bytes."""
    rows_read: int
    malformed: int
    """Of the rows read: those that are no rows of their text's columns."""
    criteo: bool
    """Whether it is Criteo text."""
    columns: dict[str, list[Chunk]]
    left_out: dict[str, str]
    """Columns that no model can have, and why."""

    @property
    def share(self) -> float:
        """Of the rows, that were read."""
        return min(1.0, self.rows_read / self.rows)

    def __str__(self) -> str:
        parts = []
        if self.groups:
            parts.append(f"{self.groups_read:,} of {self.groups:,} row groups")
        if self.texts:
            parts.append(f"the beginning of {self.texts_read:,} of {self.texts:,} texts")
        about = "about " if self.texts and self.share < 1.0 else ""
        malformed = f" ({self.malformed:,} malformed)" if self.malformed else ""
        rows = f"{self.rows_read:,} rows{malformed} of {about}{self.rows:,}"
        return f"{rows}, {' and '.join(parts)}"


def sample_of(paths: Sequence[str]) -> LogSample:
    """A sample of the files that are named as in ``data.path``.

    Raises UserError where one cannot be opened, or there are no rows.
    """
    files = files_of(paths)
    tables, texts = [], []
    for path in files:
        if is_parquet(path, WITH_COLUMNS):
            tables.append(ParquetFile(path))
        else:
            texts.append(path)
    groups = [(file, n) for file in tables for n in range(len(file.groups))]
    chosen, some_texts = _spread(groups, GROUPS), _spread(texts, TEXTS)
    criteo = [_is_criteo(path) for path in some_texts]
    if any(criteo) and (tables or not all(criteo)):
        raise UserError(f"{some_texts[criteo.index(True)]}: is {CRITEO_TEXT}, and others are not")
    begun, of_texts = _beginnings(some_texts, any(criteo))
    rows = sum(sum(file.groups) for file in tables)
    rows += round(of_texts * len(texts) / max(1, len(some_texts)))
    names, left_out = _readable([*tables, *begun])
    if not names:
        some = "; ".join(f"{shown(name)} {why}" for name, why in [*left_out.items()][:_NAMED])
        raise UserError(f"{files[0]}: no column can be read: {some or 'there is none'}")
    parts: list[tuple[LogFile, int, int, bool]] = [
        (file, n, _most_rows(len(names), len(chosen)), False) for file, n in chosen
    ]
    parts += [(file, n, rows, not any(criteo)) for file in begun for n in range(len(file.groups))]
    columns: dict[str, list[Chunk]] = {name: [] for name in names}
    rows_read = malformed = 0
    for file, number, most, written in parts:
        for batch in _first_rows(file, number, names, most):
            rows_read += batch.num_rows
            fine = batch
            if MARK in batch.schema.names:
                fine = batch.filter(pc.is_null(batch.column(MARK)))
            malformed += batch.num_rows - fine.num_rows
            for name in names:
                columns[name].append(Chunk(fine.column(name), written))
    if rows_read == malformed:
        raise UserError(
            f"{files[0]}: there are no well-formed rows{' in these files' * (len(files) > 1)}"
        )
    return LogSample(
        len(files), len(groups), len(chosen), len(texts), len(begun), max(rows, rows_read),
        rows_read, malformed, any(criteo), columns, left_out,
    )  # fmt: skip


def _spread(several: Sequence[_One], most: int) -> list[_One]:
    """So many of them, at equal distances."""
    count = min(most, len(several))
    return [several[n * len(several) // count] for n in range(count)]


def _most_rows(columns: int, parts: int) -> int:
    """Of each part."""
    return max(1, min(ROWS, CELLS // max(1, columns)) // parts)


def _is_criteo(path: str) -> bool:
    """By the first line: as many columns, the first of which is a click."""
    head, _ = beginning(path, f"{WITH_COLUMNS}; or {CRITEO_TEXT}")
    fields = head.split(b"\n", 1)[0].split(b"\t")
    return len(fields) == len(CRITEO) and fields[0] in (b"0", b"1")


def _beginnings(paths: Sequence[str], criteo: bool) -> tuple[list[LogFile], float]:
    """The first rows of each text; and how many they have in all, as their bytes say."""
    begun: list[LogFile] = []
    bytes_read = [0, 1]

    def tell(done: int, size: int) -> None:
        bytes_read[:] = done, size

    rows = 0.0
    for path in paths:
        text = criteo_text(path) if criteo else csv_text(path)
        most = _most_rows(len(text.names), len(paths))
        begun.append(text_beginning(text, most, tell))
        count = sum(begun[-1].groups)
        rows += count if count < most else count * bytes_read[1] / max(1, bytes_read[0])
    return begun, rows


def _readable(files: Sequence[LogFile]) -> tuple[list[str], dict[str, str]]:
    """The columns that a model can have, in order, and why not the others."""
    types: dict[str, list[pa.DataType]] = {}
    twice: set[str] = set()
    for file in files:
        twice |= {name for name, times in Counter(file.schema.names).items() if times > 1}
        for field in file.schema:
            types.setdefault(field.name, []).append(field.type)
    types.pop(MARK, None)
    left_out = {}
    for name, own in types.items():
        kinds = {kind_of(one) for one in own} - {"null"}
        if name in twice:
            left_out[name] = "several columns have this name"
        elif len(own) < len(files):
            left_out[name] = f"only {len(own):,} of {len(files):,} files have it"
        elif name.startswith(_INDEX):
            left_out[name] = "is the index of a pandas frame"
        elif None in kinds:
            other = next(one for one in own if kind_of(one) is None)
            left_out[name] = f"is of type {other}; expected numbers, text, or lists of these"
        elif "list" in kinds and len(kinds) > 1:
            left_out[name] = "holds lists in some files only"
    return [name for name in types if name not in left_out], left_out


_KINDS = (
    (is_text, "text"), (of.is_boolean, "bool"), (of.is_integer, "whole"),
    (of.is_floating, "real"), (of.is_decimal, "decimal"), (of.is_null, "null"),
)  # fmt: skip


def kind_of(kind: pa.DataType) -> str | None:
    """The kind of a column of this type, in one word; None: a model can have no such column."""
    if of.is_dictionary(kind):
        return "text" if kind_of(kind.value_type) in ("text", "whole") else None
    if is_list(kind):
        inner = kind.value_type
        return "list" if kind_of(inner) in ("text", "bool", "whole", "real") else None
    return next((name for test, name in _KINDS if test(kind)), None)


def _first_rows(
    file: LogFile, number: int, names: Sequence[str], most: int
) -> Iterator[pa.RecordBatch]:
    """A row group's first rows, with the marks of those that are malformed."""
    marked = [MARK] if MARK in file.schema.names else []
    for batch in file.read(number, [*names, *marked]):
        yield batch.slice(0, most)
        most -= batch.num_rows
        if most <= 0:
            return
