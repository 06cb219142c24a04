"""Text as rows: Criteo's, or CSV with a header; a block at a time, however long it is.

Values stay as they were read: of CSV as text, of Criteo text as whole numbers, a category's that of
its hexadecimal digits; missing ones stay missing. A line that is none of the format's is a row that
has nothing but a mark, which says what is wrong: so a row's number says its line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.formats import CATEGORY_COLUMNS, INTEGER_COLUMNS
from recsim_train.data.files import beginning, open_bytes
from recsim_train.data.mapping import MARK, text_of

BLOCK = 1 << 20
"""Bytes of text that are parsed at a time; no line is longer."""
CRITEO = (
    "label",
    *(f"I{n}" for n in range(1, 1 + INTEGER_COLUMNS)),
    *(f"C{n}" for n in range(1, 1 + CATEGORY_COLUMNS)),
)
"""Names of Criteo text's columns."""
_MOST_DIGITS = 18
_INTEGER = rf"^-?[0-9]{{1,{_MOST_DIGITS}}}$"
_HEXADECIMAL = r"^[0-9a-fA-F]{1,16}$"
_LIKELY = (
    (r"-?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?", "written as a float, as pandas does with columns that "
     "have missing values"),
    (r"(?i)nan|na|null|none|\\n|<na>", "where an empty field is a missing value"),
    (r"-?[0-9a-fA-F]{17,}", "of too many digits"),
    (r"""(['"]).*\1""", "in quotes"),
)  # fmt: skip
"""What the text of a wrong field suggests."""
_SHOWN = 40
"""Characters of a wrong field that are shown."""
_SEPARATORS = ",\t;|"


def _taken_for_latin_1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


_LATIN_1 = "recsim_train.latin_1"
codecs.register_error(_LATIN_1, _taken_for_latin_1)


class Text(NamedTuple):
    """How a text is to be read."""

    path: str
    separator: str
    names: tuple[str, ...]
    """Of its columns."""
    first_line: int
    """The line of its first row."""

    @property
    def criteo(self) -> bool:
        """Whether it is Criteo's."""
        return self.names == CRITEO


def criteo_text(path: str) -> Text:
    """A file of Criteo text."""
    return Text(path, "\t", CRITEO, 1)


def csv_text(path: str) -> Text:
    """A file of CSV, by its first line. Raises UserError where there is none."""
    head, _ = beginning(path, "CSV with a header, or Parquet")
    line = re.split(rb"\r?\n|\r", head, maxsplit=1)[0].decode("utf-8", _LATIN_1)
    line = line.removeprefix("\ufeff")
    separator = max(_SEPARATORS, key=line.count)
    try:
        names = tuple(next(csv.reader([line], delimiter=separator), ()))
    except csv.Error as error:
        raise UserError(f"{path}: its first line is no header of CSV ({error})") from None
    return Text(path, separator, names, 2)


class _Progress:
    """A file that is read from its beginning to its end, and how far that is.

    Where it cannot be read on it ends after its last whole line: `failure` says why. Bytes that are
    no UTF-8 are taken for Latin-1. Empty lines at its end are no rows: they are left out.
    """

    def __init__(self, path: str, tell: Callable[[int, int], None] | None) -> None:
        self.file: BinaryIO = open_bytes(path)
        self._raw: Any = getattr(self.file, "fileobj", self.file)  # of gzip, what is unpacked
        self._size, self._tell = os.path.getsize(path), tell
        self._utf_8 = codecs.getincrementaldecoder("utf-8")(_LATIN_1)
        self._ready, self._ended = bytearray(), False
        self.failure: str | None = None
        self.rows = 0

    def read(self, size: int) -> bytes:
        """The next bytes, fewer at the end only."""
        while (
            self._filled() < size
            and len(self._ready) < 2 * size  # more empty lines than that may be anything
            and not self._ended
        ):
            piece = self._piece(size)
            self._ended = not piece
            ascii_ = piece.isascii() and not self._utf_8.getstate()[0]
            self._ready += piece if ascii_ else self._utf_8.decode(piece, self._ended).encode()
            if self.failure is not None:
                del self._ready[self._ready.rfind(b"\n") + 1 :]
        if self._ended:
            del self._ready[self._filled() :]
        given = bytes(self._ready[:size])
        del self._ready[:size]
        if self._tell is not None:
            self._tell(min(self._raw.tell(), self._size), self._size)
        return given

    def _filled(self) -> int:
        """How many bytes are ready, without empty lines at their end."""
        end = len(self._ready)
        while end and self._ready[end - 1] in b"\r\n":
            end -= 1
        return end

    def _piece(self, size: int) -> bytes:
        """Some bytes; none: there are no more, or no more can be had."""
        try:
            # read1 hands out what one step of unpacking gave: an error in the next loses nothing
            return self.file.read1(size)  # type: ignore[attr-defined, no-any-return]
        except EOFError:
            self.failure = "its gzip data ends in the middle (truncated file)"
        except (zlib.error, gzip.BadGzipFile) as error:
            self.failure = f"its gzip data is damaged ({error})"
        except OSError as error:
            self.failure = f"it cannot be read ({error.strerror or error})"
        return b""

    @property
    def closed(self) -> bool:
        """As of a file."""
        return self.file.closed

    def close(self) -> None:
        """As of a file."""
        self.file.close()


def text_rows(
    text: Text, progress: Callable[[int, int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows in order, a block at a time. ``progress``: called with (bytes read, bytes).

    Raises UserError if the file cannot be opened, RunFailed where it cannot be read on.
    """
    file = _Progress(text.path, progress)
    unlike: list[tuple[int, str]] = []

    def skipped(row: Any) -> str:
        many = f"{row.actual_columns} column{'' if row.actual_columns == 1 else 's'}"
        unlike.append((row.number, f"{many}, not {row.expected_columns}"))
        return "skip"

    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(file, mode="r"),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=BLOCK, column_names=list(text.names),
                skip_rows=text.first_line - 1,
            ),
            arrow_csv.ParseOptions(
                delimiter=text.separator, quote_char=False if text.criteo else '"',
                ignore_empty_lines=False, invalid_row_handler=skipped,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(text.names, pa.utf8()), strings_can_be_null=True,
                null_values=[""], check_utf8=False,
            ),
        )  # fmt: skip
        for batch in reader:
            given = _with_marks(batch, unlike, file.rows + text.first_line)
            file.rows += given.num_rows
            yield _criteo(given) if text.criteo else given
        if unlike:
            empty = pa.RecordBatch.from_pylist([], reader.schema)
            given = _with_marks(empty, unlike, file.rows + text.first_line)
            yield _criteo(given) if text.criteo else given
    except pa.ArrowInvalid as error:
        line, said = file.rows + text.first_line, str(error)
        if "straddling" in said:
            raise RunFailed(
                f"{text.path}: a line from {line:,} on is longer than {BLOCK:,} bytes"
            ) from None
        if not said.startswith(("Empty CSV file", "Could not skip initial")):  # it has no rows
            said = said.splitlines()[0]
            raise RunFailed(f"{text.path}: cannot be read from line {line:,} on ({said})") from None
    finally:
        file.close()
    if file.failure is not None:
        raise RunFailed(f"{text.path}: {file.failure}, after {file.rows:,} rows")


def _with_marks(batch: pa.RecordBatch, unlike: list[tuple[int, str]], first: int) -> pa.RecordBatch:
    """The rows with those between them that were skipped, as marks alone. ``first``: the line of
    the first; ``unlike``: lines that were skipped, of which those here are taken away."""
    if not unlike:
        return batch.append_column(MARK, pa.nulls(batch.num_rows, pa.utf8()))
    marks: list[str | None] = [None] * batch.num_rows
    rows: list[int | None] = list(range(batch.num_rows))
    while unlike and (unlike[0][0] <= first + len(rows) or batch.num_rows == 0):
        line, what = unlike.pop(0)
        rows.insert(line - first, None)
        marks.insert(line - first, what)
    if len(rows) > batch.num_rows:
        batch = batch.take(pa.array(rows, pa.int32()))
    return batch.append_column(MARK, pa.array(marks, pa.utf8()))


def _criteo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Text fields as whole numbers; of a row with a wrong one its mark says which."""
    marks = batch.column(MARK)
    columns: list[pa.Array] = []
    for place, name in enumerate(CRITEO):
        field = batch.column(name)
        hexadecimal = place > INTEGER_COLUMNS
        try:
            found = _hexadecimals(field) if hexadecimal else _integers(field)
        except ValueError:
            right = pc.match_substring_regex(field, _HEXADECIMAL if hexadecimal else _INTEGER)
            marks = _marked(marks, pc.invert(right), field, place)
            rest = pc.if_else(right, field, None)
            found = _hexadecimals(rest) if hexadecimal else rest.cast(pa.int64())
        if place == 0:
            clicks = pc.fill_null(pc.is_in(found, pa.array([0, 1], found.type)), False)
            marks = _marked(marks, pc.invert(clicks), field, place)
        columns.append(found)
    if marks.null_count < len(marks):
        columns = [pc.if_else(marks.is_null(), column, None) for column in columns]
    return pa.RecordBatch.from_arrays([*columns, marks], names=[*CRITEO, MARK])


def _marked(marks: pa.Array, wrong: pa.Array, field: pa.Array, place: int) -> pa.Array:
    """With marks at rows whose field is wrong and which have none yet."""
    rows = pc.fill_null(pc.and_(wrong, marks.is_null()), False)
    lacks = [_lack(place, said) for said in field.filter(rows).to_pylist()]
    return pc.replace_with_mask(marks, rows, pa.array(lacks, pa.utf8()))


def _integers(field: pa.Array) -> pa.Array:
    text, places = text_of(field)
    # what the cast takes, too: more digits, and hexadecimal ones
    if (np.diff(places) > _MOST_DIGITS).any() or b"x" in _between(text, places).lower():
        raise ValueError("of more digits, or hexadecimal")
    return field.cast(pa.int64())


def _between(text: NDArray[np.uint8], places: NDArray[np.int64]) -> bytes:
    """All of an array's texts."""
    return text[places[0] : places[-1]].tobytes()


def _hexadecimals(field: pa.Array) -> pa.Array:
    digits = pc.utf8_lpad(pc.fill_null(field, "0"), 16, "0")
    text, places = text_of(digits)
    packed = bytes.fromhex(_between(text, places).decode("ascii", "replace"))
    if (np.diff(places) != 16).any() or len(packed) != 8 * len(digits):
        raise ValueError("of more digits, or with blanks")
    numbers = np.frombuffer(packed, ">u8").astype(np.uint64)
    return pa.array(numbers, mask=field.is_null().to_numpy(zero_copy_only=False))


def _lack(place: int, field: str | None) -> str:
    """What is wrong with a field, in words: the column, its text, and a likely cause."""
    field = (field or "").removesuffix("\r")
    said = json.dumps(field[:_SHOWN] + "..." * (len(field) > _SHOWN))
    causes = (cause for likely, cause in _LIKELY if re.fullmatch(likely, field))
    return ", ".join((f"column {place + 1}: {said}", *list(causes)[:1]))
