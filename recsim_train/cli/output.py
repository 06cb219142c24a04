"""What happens to what is printed: characters that an encoding lacks, output that is not taken, and
errors that nobody foresaw. The standard library alone, as `recsim_train.__main__` asks for."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
import tempfile
import traceback
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

CLOSED = "standard output is closed: send it to a file, or to /dev/null"
_STDOUT, _NAME = 1, "standard output"
_PLAIN = {
    "±": "+-", "→": "->", "←": "<-", "–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "…": "...",
    "µ": "u", "μ": "u", "≤": "<=", "≥": ">=", "≈": "~", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip
_HANDLER = "recsim_train.plain"


class _Stdout(io.FileIO):
    """Standard output, whose errors say that they are of it."""

    def write(self, content: Any) -> int:
        rest = memoryview(content).cast("B")
        try:
            while rest:
                if (written := super().write(rest)) is None:  # who reads it made it non-blocking
                    select.select([], [self], [])
                else:
                    rest = rest[written:]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, _NAME) from None
        return len(content)


def prepare() -> None:
    """Have every character printed somehow, and no file take a standard stream's number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    codecs.register_error(_HANDLER, _plain)
    if isinstance(given := sys.stdout, io.TextIOWrapper) and given is sys.__stdout__:
        given.flush()
        raw, at_once = _Stdout(_STDOUT, "w", closefd=False), given.write_through
        sys.stdout = io.TextIOWrapper(
            cast(BinaryIO, raw) if at_once else io.BufferedWriter(raw),
            encoding=given.encoding,
            errors=_HANDLER,
            line_buffering=given.line_buffering,
            write_through=at_once,
        )
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=_HANDLER)
    if sys.stderr is None:  # `print` would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - while we live


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """The first character that cannot be encoded, in others; a byte of a file's name as it is."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    letters = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    escaped = character.encode("ascii", "backslashreplace").decode()
    return _PLAIN.get(character) or letters or escaped, error.start + 1


def drop() -> None:
    """What is still to be printed goes nowhere, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


def unable(error: OSError) -> str:
    """A sentence on what the system did not do. If it is to print, nothing is printed any more."""
    if error.filename == _NAME:
        drop()
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{'' if where else f' ({place(error)})'}"


def place(error: BaseException) -> str:
    """The line of the code that raised it: "file.py:12"."""
    found = traceback.extract_tb(error.__traceback__)
    return f"{Path(found[-1].filename).name}:{found[-1].lineno}" if found else "unknown place"


def fault(error: BaseException) -> str:
    """A sentence on an error that nobody foresaw. The traceback goes to a file; where none can be
    written, it is in the sentence."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    lines = "".join(traceback.format_exception(error))
    kept = f"\n{lines}"
    with suppress(OSError):
        number, path = tempfile.mkstemp(prefix="recsim-train-", suffix=".txt")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(lines)
        kept = f"the traceback is in {path}"
    text = " ".join(str(first).split())
    what = f"{type(first).__name__}: {text}" if text else type(first).__name__
    return f"this is a fault of recsim-train: {what} ({place(first)}); {kept}"
