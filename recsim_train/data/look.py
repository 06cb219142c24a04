"""The first look at a data file, before anything starts: is it Criteo text?"""

from __future__ import annotations

import gzip
import stat
import zlib
from pathlib import Path

from recsim_train.config.errors import UserError
from recsim_train.data.causes import container, layout
from recsim_train.data.lines import GZIP_MAGIC, check_regular
from recsim_train.data.parse import COLUMNS

_LINES = 1000
_LOOK = 1 << 20
"""Bytes of text that are looked at."""
_BINARY_LOOK = 1 << 16
_PATTERN = set("*?[~$,")
"""Signs of whoever means another file than the one of that name, or several."""
EXPECTED = "Criteo text (label, 13 integer and 26 categorical columns, tab-separated)"


def look(path: Path) -> None:
    """Check a data file by its beginning.

    Raises UserError with one sentence. What is wrong further in is the reader's to find.
    """
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise UserError(f"{path}: is a directory; expected a file of {EXPECTED}")
        check_regular(path)
        with path.open("rb") as stream:
            head = stream.read(_BINARY_LOOK)
        if not head:
            raise UserError(f"{path}: the file is empty; expected {EXPECTED}")
        packed = head.startswith(GZIP_MAGIC)
        if path.suffix == ".gz" and not packed:
            other = container(head)
            seems = f" but {other}" if other else ""
            raise UserError(f"{path}: the name ends in .gz, but the file is not gzip data{seems}")
        text = _beginning(path, packed=packed)
    except FileNotFoundError:
        literal = " of that very name, whose signs stand for themselves"
        seems = literal if _PATTERN & set(str(path)) else ""
        raise UserError(f"{path}: no such file{seems}; expected {EXPECTED}") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read the file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if not text:
        raise UserError(f"{path}: the file holds no text once unpacked; expected {EXPECTED}")
    lines = text.removesuffix(b"\n").split(b"\n")[:_LINES]
    binary = b"\0" in text[:_BINARY_LOOK]
    if binary or not any(line.count(b"\t") == COLUMNS - 1 for line in lines):
        what = container(text)
        if what is not None and packed:
            what = f"gzip data that holds {what}"
        if what is None and binary:
            what = "a binary file"
        if what is None:
            like = layout(lines, COLUMNS)
            what = (
                f"no line among the first {len(lines)} has {COLUMNS} tab-separated columns"
                f"{f' ({like})' if like else ''}"
            )
        raise UserError(f"{path}: {what}; expected {EXPECTED}")


def _beginning(path: Path, *, packed: bool) -> bytes:
    if not packed:
        with path.open("rb") as stream:
            return stream.read(_LOOK)
    pieces: list[bytes] = []
    try:
        with gzip.open(path, "rb") as unpacked:
            while sum(map(len, pieces)) < _LOOK and (piece := unpacked.read1(_BINARY_LOOK)):
                pieces.append(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        # A truncated file may still give many rows: the reader says what it met and where.
        if not pieces:
            raise UserError(f"{path}: damaged gzip data; nothing of it can be unpacked") from None
    return b"".join(pieces)
