"""The likely cause why a file is no Criteo text, by its first bytes: what else it seems to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
_LOOK = 1 << 12
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
    head = text[:_LOOK]
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
