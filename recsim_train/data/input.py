"""What ``data.path`` names: which files, in which order, and the log that they are."""

from __future__ import annotations

import glob
import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from recsim_train.config.columns import Categorical, Layout, Numeric, layout_of
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data.convert import (
    CRITEO,
    Text,
    criteo_text,
    csv_text,
    has_large_groups,
    is_fresh,
    target_of,
    text_rows,
)
from recsim_train.data.files import open_bytes
from recsim_train.data.log import Log, LogFile, ParquetFile, TextBeginning

PARQUET = b"PAR1"
ENDINGS = (".parquet", ".parq", ".csv", ".tsv", ".txt", ".gz")
"""Of the files that are taken of a folder."""
BEGINNING = 1 << 16
"""Rows of a text that are looked at where it was not converted."""
CRITEO_TEXT = "Criteo text (label, 13 integer and 26 categorical columns, tab-separated)"
WITH_COLUMNS = "Parquet, or CSV with a header"
_PATTERN = set("*?[")


def layout_for(model: Model, data: Data) -> Layout:
    """What is read of the files: the data's columns, or Criteo's, of which a model may take the
    first ones of each kind."""
    if data.columns:
        return layout_of(data.label or "", data.columns)
    features, tables = model.dense_features, model.tables
    return Layout(
        CRITEO[0],
        tuple(Numeric(f"I{n + 1}", 0.0, True) for n in range(features)),
        tuple(
            Categorical(f"C{n + 1}", table.rows, "remainder", strict=False)
            for n, table in enumerate(tables)
        ),
    )


def files_of(paths: Sequence[str]) -> list[str]:
    """The files of names, patterns and folders, those of each in order of name.

    Raises UserError where there is none, or one twice.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            names = sorted(name for name in os.listdir(path) if name[:1] not in "._")
            inside = [os.path.join(path, name) for name in names if name.endswith(ENDINGS)]
            if not inside:
                raise UserError(f"{path}: the folder has no file *{', *'.join(ENDINGS)}")
            found += inside
        elif _PATTERN & set(path) and not os.path.lexists(path):
            matching = sorted(name for name in glob.glob(path) if not os.path.isdir(name))
            if not matching:
                raise UserError(f"{path}: no file has a name like this")
            found += matching
        else:
            found.append(path)
    real = [os.path.realpath(path) for path in found]
    for path, other in zip(found, real, strict=True):
        if real.count(other) > 1:
            raise UserError(f"{path}: is named twice in data.path")
    return found


def text_of(path: str, data: Data) -> Text | None:
    """How a file is to be read that is text; None: it is Parquet. Raises UserError for a file that
    cannot be opened, or is neither."""
    if is_parquet(path, WITH_COLUMNS if data.columns else CRITEO_TEXT):
        if not data.columns:
            raise UserError(
                f"{path}: is Parquet, of which data.columns has to say what is read; "
                "`recsim-train data describe` writes them"
            )
        return None
    return csv_text(path) if data.columns else criteo_text(path)


def is_parquet(path: str, expected: str) -> bool:
    """By a file's first bytes; other files are text, or refused as such where they are read.

    ``expected``: what it should hold, in words. Raises UserError where it cannot be opened.
    """
    with open_bytes(path, expected) as file, suppress(EOFError, zlib.error, gzip.BadGzipFile):
        return file.read(len(PARQUET)) == PARQUET
    return False


def to_convert(data: Data) -> Iterator[tuple[str, Text | None, Path]]:
    """Each file of which no conversion is there and that cannot be read as it is: its name, how its
    text is read, and where its conversion goes. Raises UserError."""
    for path in input_files(data):
        text, target = text_of(path, data), target_of(path, data.converted)
        if text is None and not has_large_groups(pq.read_metadata(path)):
            continue
        if not is_fresh(path, target):
            yield path, text, target


def input_files(data: Data) -> list[str]:
    """All files, held-out ones too."""
    return [name for paths in (data.path, data.eval_path) if paths for name in files_of(paths)]


def open_log(layout: Layout, data: Data, paths: Sequence[str]) -> Log:
    """The log of some files; of text that was not converted, its beginning.

    Raises UserError for what cannot be opened, or lacks one of the layout's columns.
    """
    files: list[LogFile] = []
    left = BEGINNING
    for path in files_of(paths):
        text, target = text_of(path, data), target_of(path, data.converted)
        if is_fresh(path, target):
            first = text.first_line if text else 0
            files.append(ParquetFile(str(target), path, first))
        elif text is None:
            files.append(ParquetFile(path))
        elif left > 0:
            files.append(text_beginning(text, left))
            left -= sum(files[-1].groups)
    return Log(files, layout)


def text_beginning(
    text: Text, rows: int, progress: Callable[[int, int], None] | None = None
) -> TextBeginning:
    """A text's first rows. ``progress``: called with (bytes read, bytes). Raises UserError where
    there is none."""
    batches, count = [], 0
    try:
        for batch in text_rows(text, progress):
            batches.append(batch.slice(0, rows - count))
            count += batches[-1].num_rows
            if count == rows:
                break
    except RunFailed as error:
        if not batches:
            raise UserError(str(error)) from None
    if not count:
        raise UserError(f"{text.path} has no rows")
    return TextBeginning(text.path, batches, text.first_line)
