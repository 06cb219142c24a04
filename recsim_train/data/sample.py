"""A bounded sample of a log: at most 64 pieces of it, which are 8,192 rows at the beginning of a
row group, or a block of text (1 MiB). Of text nothing is converted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from recsim_train.config.columns import Categorical, Numeric
from recsim_train.config.errors import UserError
from recsim_train.data.files import beginning
from recsim_train.data.input import CRITEO_TEXT, WITH_COLUMNS, files_of, is_parquet
from recsim_train.data.log import PIECE, ParquetFile, is_list, unfit
from recsim_train.data.mapping import MARK, is_text
from recsim_train.data.text import CRITEO, criteo_text, csv_text, text_rows

PIECES = 64
"""That are read at most; from many row groups or texts one each, else further ones of each."""
CELLS = 1 << 25
"""Values that are read of row groups at most: of more than 64 columns there are fewer pieces."""


class LogSample(NamedTuple):
    """What was read, and of how much."""

    format: str
    """Parquet, CSV or Criteo text."""
    parts: int
    """Row groups of Parquet files, or texts, in all."""
    parts_read: int
    """Of which something was read."""
    rows: int
    """In all; of texts about, by bytes."""
    rows_read: int
    malformed: int
    """Of the rows read: those that are no rows of their text's columns."""
    columns: dict[str, list[pa.Array]]
    """By piece; without malformed rows."""
    left_out: dict[str, str]
    """Columns that no model can have, and why."""

    @property
    def share(self) -> float:
        """Of the rows, that were read."""
        return min(1.0, self.rows_read / self.rows)

    def __str__(self) -> str:
        what = "row groups" if self.format == "Parquet" else "texts, each from its beginning"
        about = "about " if self.format != "Parquet" and self.share < 1.0 else ""
        malformed = f" ({self.malformed:,} malformed)" if self.malformed else ""
        rows = f"{self.rows_read:,} rows{malformed} of {about}{self.rows:,}"
        return f"{rows}, {self.parts_read:,} of {self.parts:,} {what}"


def sample_of(paths: Sequence[str]) -> LogSample:
    """A sample of the files that are named as in ``data.path``, which are of one format.

    Raises UserError where one cannot be opened, or nothing can be read.
    """
    files = files_of(paths)
    formats = {_format_of(path): path for path in files}
    if len(formats) > 1:
        some = " and ".join(f"{path} ({name})" for name, path in formats.items())
        raise UserError(f"{some} are not of one format: describe those of each apart")
    (form,) = formats
    if form == "Parquet":
        tables = [ParquetFile(path) for path in files]
        names, left_out = _readable([table.schema for table in tables])
        parts = [(table, n) for table in tables for n in range(len(table.groups))]
        pieces = max(1, min(PIECES, CELLS // (PIECE * max(1, len(names)))))
        chosen = _spread(parts, pieces)
        each = pieces // max(1, len(chosen))
        batches = [b for table, n in chosen for b in islice(table.read(n, names), each)]
        of_parts, rows = (len(chosen), len(parts)), sum(sum(table.groups) for table in tables)
    else:
        texts = _spread(files, PIECES)
        begun = [_begun(path, form, PIECES // len(texts)) for path in texts]
        batches = [batch for own, _ in begun for batch in own]
        names, left_out = _readable([own[0].schema for own, _ in begun if own])
        of_parts = len(texts), len(files)
        in_all = sum(map(os.path.getsize, files)) / max(1, sum(done for _, done in begun))
        rows = round(in_all * sum(batch.num_rows for batch in batches))
    rows_read = sum(batch.num_rows for batch in batches)
    if form != "Parquet":
        batches = [batch.filter(pc.is_null(batch.column(MARK))) for batch in batches]
    fine = sum(batch.num_rows for batch in batches)
    if not fine:
        raise UserError(f"{files[0]}: there are no well-formed rows in what is named")
    if not names:
        raise UserError(
            f"{files[0]}: no column can be read: "
            f"{'; '.join(f'{name} {why}' for name, why in left_out.items())}"
        )
    columns = {name: [batch.column(name) for batch in batches] for name in names}
    return LogSample(
        form, of_parts[1], of_parts[0], max(rows, rows_read), rows_read, rows_read - fine, columns,
        left_out,
    )  # fmt: skip


def _format_of(path: str) -> str:
    """Of Criteo text the first line tells: as many columns, the first of which is a click."""
    if is_parquet(path, WITH_COLUMNS):
        return "Parquet"
    head, _ = beginning(path, f"{WITH_COLUMNS}; or {CRITEO_TEXT}")
    fields = head.split(b"\n", 1)[0].split(b"\t")
    return "Criteo text" if len(fields) == len(CRITEO) and fields[0] in (b"0", b"1") else "CSV"


def _spread(several: Sequence[Any], most: int) -> list[Any]:
    """So many of them, at equal distances."""
    count = min(most, len(several))
    return [several[n * len(several) // count] for n in range(count)]


def _begun(path: str, form: str, blocks: int) -> tuple[list[pa.RecordBatch], int]:
    """A text's first blocks, and how many of the file's bytes they are."""
    told = [0]
    text = csv_text(path) if form == "CSV" else criteo_text(path)
    rows = text_rows(text, lambda done, size: told.append(done))
    batches = list(islice(rows, blocks))
    return batches, told[: len(batches) + 1][-1]  # what is read further is ahead


def _readable(schemas: Sequence[pa.Schema]) -> tuple[list[str], dict[str, str]]:
    """The columns that a model can have, in order, and why not the others."""
    left_out = {}
    names = dict.fromkeys(name for schema in schemas for name in schema.names if name != MARK)
    for name in names:
        fields = [schema.get_all_field_indices(name) for schema in schemas]
        types = {s.field(n).type for s, own in zip(schemas, fields, strict=True) for n in own}
        odd = [one for one in types if unfit(one, _LIST if is_list(one) else _NUMBER)]
        if any(len(own) != 1 for own in fields):
            left_out[name] = "is not there once in each file"
        elif name.startswith("__index_level_"):
            left_out[name] = "is the index of a pandas frame"
        elif odd:
            said = ascii(str(odd[0]))[1:-1]
            left_out[name] = f"is of type {said}; expected numbers, text, or lists of these"
        elif len({(is_list(t), is_text(t)) for t in types if not of.is_null(t)}) > 1:
            left_out[name] = "is of another type in some files"
    return [name for name in names if name not in left_out], left_out


_NUMBER, _LIST = Numeric("", 0.0, False), Categorical("", 2, "hash", 1)
