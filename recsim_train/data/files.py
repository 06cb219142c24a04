"""Data files, whatever they hold: opened in one place, looked at (what one that is no Criteo text
seems to be, by its first bytes), and compared with each other."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from recsim_train.config.errors import UserError

_MAGIC = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x1f\x9d", "data compressed by compress"),
    (b"BZh", "data compressed by bzip2"),
    (b"\xfd7zXZ\x00", "data compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "data compressed by zstd"),
    (b"\x04\x22\x4d\x18", "data compressed by lz4"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"ARROW1", "an Arrow (Feather) file"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file that it stands for"),
)
_TAR = (257, b"ustar")
_SEPARATORS = (
    (b",", "commas", "a CSV file"),
    (b";", "semicolons", "a CSV file"),
    (b"|", "bars", "a table"),
    (b"\x01", "control-A", "a Hive table"),
    (b" ", "blanks", "a table"),
)
_ALIKE = 0.8
"""Share of the lines that have equally many fields where these are fields."""
_ZEROS_LOOK = 1 << 12
"""Bytes of text whose zeros are counted."""
_ZEROS = 0.4
"""Share of them in UTF-16 of mostly ASCII characters: nearly half."""


def container(text: bytes) -> str | None:
    """What the beginning of a file says that it is; None: nothing that is known here."""
    for magic, what in _MAGIC:
        if text.startswith(magic):
            return what
    place, mark = _TAR
    if text[place : place + len(mark)] == mark:
        return "a tar archive"
    head = text[:_ZEROS_LOOK]
    if any(head[first::2].count(0) > _ZEROS * len(head) for first in (0, 1)):
        return "UTF-16 text"
    start = head.lstrip()[:1]
    if start == b"<":
        return "an HTML or XML page"
    if start in (b"{", b"["):
        return "JSON"
    return None


def is_header(line: bytes, separator: bytes) -> bool:
    """Whether the fields of a line are names."""
    fields = line.strip().split(separator)
    return len(fields) > 1 and all(field[:1].strip(b"\"'").isalpha() for field in fields[:2])


def layout(lines: Sequence[bytes], columns: int) -> str | None:
    """What the lines of a text seem to be, of which none has ``columns`` columns between tabs."""
    header = " with a header" if lines and is_header(lines[0], b"\t") else ""
    if (tabs := _fields(lines, b"\t")) > 1:
        hint = {columns - 1: ": is the label missing?", columns + 1: ": is there an index?"}
        return f"they have {tabs}{header}{hint.get(tabs, '')}"
    for separator, name, what in _SEPARATORS:
        if (fields := _fields(lines, separator)) > 2:
            header = " with a header" if is_header(lines[0], separator) else ""
            return f"{what}{header}, whose {fields} columns are separated by {name}"
    return None


def _fields(lines: Sequence[bytes], separator: bytes) -> int:
    """Into how many fields nearly all lines fall; 1: into none, or not alike."""
    counts = Counter(line.count(separator) + 1 for line in lines if line.strip())
    fields, times = next(iter(counts.most_common(1)), (1, 0))
    return fields if times >= _ALIKE * counts.total() else 1


GZIP_MAGIC = b"\x1f\x8b"
_HEAD = 1 << 16
_LOOK = 1 << 20
"""Bytes, once unpacked, of a file's beginning."""
_PATTERN = set("*?[~$,")
"""Signs of whoever means another file than the one of that name, or several."""
_NOT_REGULAR = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MOST_LINKS = 40
_COMPARED = 16 << 20
"""Bytes of two files' beginnings that are compared: about 70,000 rows."""
_BLOCK = 1 << 20


def open_bytes(path: str | Path, expected: str = "rows of data") -> BinaryIO:
    """A data file, opened for reading what it holds: gzip data, told by its content, is unpacked.

    ``expected``: what it should hold, in words. Raises UserError with one sentence where the file
    cannot be opened.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise UserError(f"{path}: is a directory; expected a file of {expected}")
        _check_regular(path)
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(GZIP_MAGIC):
            return gzip.GzipFile(path, "rb")  # type: ignore[return-value]
        if head and path.suffix == ".gz":
            other = container(head)
            seems = f" but {other}" if other else ""
            raise UserError(f"{path}: the name ends in .gz, but the file is not gzip data{seems}")
        return path.open("rb")
    except FileNotFoundError:
        literal = " of that very name, whose signs stand for themselves"
        seems = literal if _PATTERN & set(str(path)) else ""
        raise UserError(f"{path}: no such file{seems}; expected {expected}") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read the file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {_reason(error)}") from None


def beginning(path: str | Path, expected: str, most: int = _LOOK) -> tuple[bytes, bool]:
    """What a file holds at its beginning, unpacked, ``most`` bytes or a few more; and whether it is
    gzip data.

    ``expected``: as of `open_bytes`. Raises UserError where there is nothing to be read.
    """
    text = b""
    with open_bytes(path, expected) as file:
        packed = isinstance(file, gzip.GzipFile)
        try:
            while len(text) < most and (piece := file.read1(_HEAD)):  # type: ignore[attr-defined]
                text += piece
        except (EOFError, zlib.error, gzip.BadGzipFile):
            # A truncated file may still give many rows: the reader says what it met and where.
            if not text:
                raise UserError(
                    f"{path}: damaged gzip data; nothing of it can be unpacked"
                ) from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {_reason(error)}") from None
    if not text:
        what = "the file holds no text once unpacked" if packed else "the file is empty"
        raise UserError(f"{path}: {what}; expected {expected}")
    return text, packed


def _reason(error: Exception) -> object:
    return getattr(error, "strerror", None) or error


def _check_regular(path: Path) -> None:
    """Raise UserError for what a reader would wait for, or find empty: a pipe, a device, a name
    that means another file in each process. Raises OSError where there is nothing.
    """
    mode = path.stat().st_mode
    what = next((name for test, name in _NOT_REGULAR if test(mode)), None)
    if what is None and _of_a_process(os.fspath(path)):
        what = "what one process has open"
    if what is not None:
        raise UserError(
            f"{path}: is {what}; expected a regular file, because each process of a run reads it "
            "for itself and from its beginning: write the data to a file first"
        )


def _of_a_process(path: str) -> bool:
    """Whether a name leads through /proc, as /dev/stdin and /dev/fd/3 do."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(os.path.abspath(path))
        path = os.path.join(os.path.realpath(folder), name)
        if path.startswith("/proc/"):
            return True
        if not os.path.islink(path):
            return False
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return False


def same_rows(path: str, other: str) -> bool:
    """Whether two files are one, copies of each other, or the same text packed differently.

    Longer files than `_COMPARED` count as the same where they begin alike for so long: then the
    first rows of one are rows of the other, which is what matters.
    """
    if os.path.samefile(path, other):
        return True
    alike = os.path.getsize(path) == os.path.getsize(other)
    return (alike and _begin_alike(path, other, _raw)) or _begin_alike(path, other, open_bytes)


def _raw(path: str) -> BinaryIO:
    return open(path, "rb")


def _begin_alike(path: str, other: str, opened: Callable[[str], BinaryIO]) -> bool:
    """Whether both have the same bytes, the last line feed aside. Damaged ones do not."""
    try:
        with opened(path) as one, opened(other) as two:
            for _ in range(_COMPARED // _BLOCK):
                left, right = one.read(_BLOCK), two.read(_BLOCK)
                if left != right:
                    ended = max(len(left), len(right)) < _BLOCK
                    return ended and left.removesuffix(b"\n") == right.removesuffix(b"\n")
    except (OSError, EOFError, zlib.error):
        return False
    return True
