"""Folders that results go into: names in them, files written whole by one process, read back."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from pydantic_core import to_jsonable_python

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.signals import held

_LONGEST = 100
"""Characters of a name in a path: file systems take 255, of which others follow."""
_PROBE = 4096
"""Bytes that a folder must take."""
SWEEP, PREDICTIONS = "sweep.json", "predictions.json"
"""The files by which the folders of sweeps and of validations are known."""
RUNS = "runs"
"""The folder within these in which their runs are kept, where they are."""


def slug(name: str, otherwise: str) -> str:
    """A name as part of a path; ``otherwise``: where nothing of it can be.

    Of a long one the beginning, and a digest by which it differs from others that begin alike.
    """
    text = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or otherwise
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: _LONGEST - 9]}-{digest}"


def numbered(name: str) -> Iterator[str]:
    """The names to try until one is free: name, name-2, name-3 ..."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def base_path(out: Path, name: str, kind: str) -> Path:
    """Where a sweep, validation or recommendation of an experiment goes: experiment-kind, of which
    further ones have "-2" and so on behind it."""
    return out / f"{slug(name, 'experiment')}-{kind}"


def free_path(base: Path) -> Path:
    """``base``, or the first of the names after it, that is not taken."""
    paths = map(base.with_name, numbered(base.name))
    return next(path for path in paths if not path.exists())


def newest_first(base: Path) -> list[Path]:
    """What exists of ``base`` and the names numbered after it, the highest number first."""
    names = re.compile(re.escape(base.name) + r"(?:-(\d+))?\Z")
    paths = base.parent.iterdir() if base.parent.is_dir() else ()
    numbers = {path: int(m[1] or 1) for path in paths if (m := names.match(path.name))}
    return sorted(numbers, key=lambda path: numbers[path], reverse=True)


def writable(folder: Path, name: str = "") -> None:
    """Make a folder, parents too, and see that it takes something of this ``name``: before work
    whose result is to go there. Raises UserError where it cannot be used."""
    try:
        str(folder).encode()  # libraries that write there take no other names
        folder.mkdir(parents=True, exist_ok=True)
    except UnicodeEncodeError:
        raise UserError(f"{str(folder)!a}: a folder's name has to be text in UTF-8") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be used as a folder: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: no permission to write there")
    try:
        aside = tempfile.TemporaryDirectory(
            prefix=".writing-",
            suffix=f"-{name}" * bool(name),
            dir=folder,
            ignore_cleanup_errors=True,
        )
        with aside as path:
            Path(path, "probe").write_bytes(bytes(_PROBE))
    except OSError as error:
        raise UserError(
            f"{folder / name}: nothing can be written there: {error.strerror}"
        ) from None


def put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also when Ctrl-C or SIGTERM come meanwhile: a reader never
    meets half of it. Raises OSError, which names ``path``, and leaves nothing then."""
    part = path.with_name(f".{path.name}.part")
    with held():
        try:
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        finally:
            with suppress(OSError):
                part.unlink()


@contextmanager
def writing(path: Path, what: str = "") -> Iterator[None]:
    """Raise RunFailed, which names ``path``, where the disk does not take what is written. ``what``
    is written there, such as "the report "."""
    try:
        yield
    except OSError as error:
        said = f"{path}: {what}could not be written: {error.strerror or error}"
        raise RunFailed(said) from None


def json_bytes(content: object, indent: int = 2) -> bytes:
    """A document as `read_json` reads it; ValueError for NaN and infinity."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def csv_bytes(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A table for spreadsheets, of some of the rows' columns."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    cells = ([row[column] for column in columns] for row in rows)
    shown = ([json.dumps(c) if isinstance(c, dict | list) else c for c in row] for row in cells)
    writer.writerows([columns, *shown])
    return stream.getvalue().encode()


def read_json(path: Path) -> Any:
    """A document that results were written as. Raises OSError, and ValueError, which says what is
    wrong, for anything that is no JSON: NaN and infinity too, which Python would read."""

    def refused(text: str) -> NoReturn:
        raise ValueError(f"{path.name} holds {text}, which is no number")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refused(text)

    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_constant=refused, parse_float=finite)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"{path.name} cannot be read") from None


def clean(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinity become null, tuples lists."""

    def other(value: Any) -> Any:  # a numpy scalar, or what has no form in JSON
        return value.item() if getattr(value, "shape", None) == () else str(value)

    return to_jsonable_python(value, inf_nan_mode="null", fallback=other)


def clean_document(content: Mapping[str, Any]) -> dict[str, Any]:
    """`clean` of a mapping."""
    return {str(key): clean(value) for key, value in content.items()}


def hash_of(content: object) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(clean(content), sort_keys=True).encode()).hexdigest()


def is_sweep(path: Path) -> bool:
    """Whether a folder looks like a sweep's, which is no run."""
    return (path / SWEEP).is_file()


def is_validation(path: Path) -> bool:
    """Whether a folder looks like a validation's, which is no run."""
    return (path / PREDICTIONS).is_file()


@contextmanager
def turn(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Inside, no other process of this machine is about to make the file at ``path``.

    ``waiting``: called before the first wait. Where the file system has no locks, all make it: the
    file appears whole, and once more.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("wb")
    except OSError:  # whoever writes will say why
        yield
        return
    with file:
        _lock(file, waiting)
        try:
            yield
        finally:
            # who waits for it still gets its turn, and finds the file made
            with suppress(OSError):
                lock.unlink()


def _lock(file: IO[bytes], waiting: Callable[[], object]) -> None:
    with suppress(OSError):  # there are no locks here
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
