"""What ``data.path`` names: which files, in which order, and the log that they are."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recsim_train.config.columns import Categorical, Layout, Numeric, layout_of
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data.convert import has_large_groups, is_fresh, target_of
from recsim_train.data.files import beginning, container, is_header, layout
from recsim_train.data.log import Log, LogFile, ParquetFile, TextBeginning
from recsim_train.data.mapping import MARK
from recsim_train.data.text import CRITEO, Text, criteo_text, csv_text, text_rows

PARQUET = b"PAR1"
ENDINGS = (".parquet", ".parq", ".csv", ".tsv", ".txt", ".gz")
"""Of the files that are taken of a folder."""
BEGINNING = 1 << 16
"""Rows of a text that are looked at where it was not converted."""
CRITEO_TEXT = "Criteo text (label, 13 integer and 26 categorical columns, tab-separated)"
WITH_COLUMNS = "Parquet, or CSV with a header"
_PATTERN = set("*?[")
_HEAD = 1 << 16
"""Bytes of a file by which it is told what it is: a zero among them says that it is no text."""
_LINES = 1000
"""Lines of which one has to be well-formed."""


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
        return None
    return csv_text(path) if data.columns else criteo_text(path)


def is_parquet(path: str, expected: str) -> bool:
    """Whether a file is Parquet, else it is text. Raises UserError where it cannot be opened, or is
    neither. ``expected``: what it should hold, in words."""
    head, packed = beginning(path, expected, _HEAD)
    if head.startswith(PARQUET) and not packed:
        return True
    what = container(head)
    if what is not None and packed:
        what = f"gzip data that holds {what}"
    if what is None and b"\0" in head:
        what = "a binary file"
    if what is not None:
        raise UserError(f"{path}: {what}; expected {expected}")
    return False


def to_convert(data: Data) -> Iterator[tuple[str, Text | None, Path]]:
    """Each file of which no conversion is there and that cannot be read as it is: its name, how its
    text is read, and where its conversion goes. Raises UserError."""
    for path in input_files(data):
        text, target = text_of(path, data), target_of(path, data.converted)
        if text is None and not has_large_groups(pq.read_metadata(path)):
            continue
        if is_fresh(path, target):
            continue
        if text is not None:
            text_beginning(text, _LINES)
        yield path, text, target


def input_files(data: Data) -> list[str]:
    """All files that are read; of those of held-out rows none where no row is held out."""
    several = (data.path, data.eval_path if data.holds_out else None)
    return [name for paths in several if paths for name in files_of(paths)]


def open_log(layout: Layout, data: Data, paths: Sequence[str]) -> Log:
    """The log of some files; of text that was not converted, its beginning.

    Raises UserError for what cannot be opened, or lacks one of the layout's columns.
    """
    files: list[LogFile] = []
    left, whole = BEGINNING, True
    for path in files_of(paths):
        text, target = text_of(path, data), target_of(path, data.converted)
        if is_fresh(path, target):
            first = text.first_line if text else 0
            files.append(ParquetFile(str(target), path, first))
        elif text is None:
            files.append(ParquetFile(path))
        else:
            if left > 0:
                files.append(text_beginning(text, left))
                left -= sum(files[-1].groups)
            whole &= left > 0
        if text is None and not data.columns:
            _check_criteo(files[-1])
    return Log(files, layout, whole=whole)


def _check_criteo(file: LogFile) -> None:
    """Raise UserError for a Parquet file without Criteo's columns, of which nothing is said."""
    if not set(CRITEO).issubset(file.schema.names):
        raise UserError(
            f"{file.name}: is Parquet, of which data.columns has to say what is read; "
            "`recsim-train data describe` writes them"
        )


def text_beginning(text: Text, rows: int) -> TextBeginning:
    """A text's first rows, at most so many. Raises UserError where there is none, or the first ones
    of what should be Criteo text are not."""
    batches: list[pa.RecordBatch] = []
    count = 0
    try:
        for batch in text_rows(text):
            if text.criteo and not batches:
                _check_lines(text, batch.column(MARK)[:_LINES])
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


def _check_lines(text: Text, marks: pa.Array) -> None:
    """Raise UserError with the likely cause where every row has a mark."""
    if marks.null_count:
        return
    head, _ = beginning(text.path, CRITEO_TEXT)
    lines = head.removesuffix(b"\n").split(b"\n")[:_LINES]
    if not any(line.count(b"\t") == len(CRITEO) - 1 for line in lines):
        like = layout(lines, len(CRITEO))
        raise UserError(
            f"{text.path}: no line among the first {len(lines)} has {len(CRITEO)} tab-separated "
            f"columns{f' ({like})' if like else ''}; expected {CRITEO_TEXT}"
        )
    # of a column that is wrong in most lines the first one, not the header above them
    said = marks.to_pylist()
    columns = [mark.split(":")[0] for mark in said]
    line = columns.index(Counter(columns).most_common(1)[0][0])
    first = " (line 1 seems to be a header)" if is_header(lines[0], b"\t") else ""
    raise UserError(
        f"{text.path} is not Criteo text: not one of its first lines is well-formed (line "
        f"{line + 1}, {said[line]}){first}; expected {CRITEO_TEXT}"
    )
