"""Text, and Parquet of large row groups, as Parquet that is read in runs.

It is made once: a file of row groups of one size beside what it was made from, or in
``data.converted``, which names that by its size, time of change, first and last bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.data.mapping import is_text
from recsim_train.data.text import BLOCK, Text, text_rows

GROUP = 65_536
"""Rows of a row group that is written: a footer takes some 20 kB of memory for each."""
MOST_GROUP = 256 << 20
"""Bytes of a row group, unpacked: of a file with larger ones others are made."""
_ENDS = 1 << 16
"""Bytes of a file's beginning and end by which it is known again."""
_ORIGIN = b"recsim_train.origin"
_VERSION = 1


class FileState(NamedTuple):
    """What a converted file was made from."""

    version: int
    size: int
    changed_ns: int
    ends: str
    """Hash of its first and last bytes."""

    @classmethod
    def of(cls, path: str) -> FileState:
        """Raises OSError."""
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            ends = file.read(_ENDS)
            file.seek(max(0, found.st_size - _ENDS))
            ends += file.read(_ENDS)
        digest = hashlib.sha256(ends).hexdigest()[:16]
        return cls(_VERSION, found.st_size, found.st_mtime_ns, digest)


def target_of(path: str, folder: str | None) -> Path:
    """Where a file's conversion is."""
    own = Path(path)
    if folder is None:
        return own.parent / ".recsim-train" / f"{own.name}.parquet"
    digest = hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:8]
    return Path(folder) / f"{own.name}-{digest}.parquet"


def is_fresh(path: str, target: Path) -> bool:
    """Whether a conversion is there that was made from the file as it is."""
    with suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        said = pq.read_metadata(target).metadata[_ORIGIN]
        return FileState(*json.loads(said)) == FileState.of(path)
    return False


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A file to write to that has its name when it is whole; missing parent directories are made.

    Raises RunFailed (and leaves nothing) if writing fails.
    """
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        os.replace(aside, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFailed(f"{target} could not be written ({reason}); nothing was left") from None
    finally:
        with suppress(OSError):
            aside.unlink()


def write_rows(
    target: Path,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    origin: FileState | None = None,
    group: int | None = None,
) -> int:
    """Write rows as Parquet, in groups of one size (None: `GROUP`); how many there were. As
    `appearing`."""
    rows, held, group = 0, 0, group or GROUP
    waiting: list[pa.RecordBatch] = []
    # text is decoded in two thirds of the time without a dictionary
    others = [field.name for field in schema if not is_text(field.type)]
    own = schema.with_metadata({_ORIGIN: json.dumps(origin)} if origin else None)
    with (
        appearing(target) as aside,
        pq.ParquetWriter(
            aside, own, compression="lz4", write_statistics=False, use_dictionary=others
        ) as writer,
    ):
        for batch in batches:
            rows, held = rows + batch.num_rows, held + batch.num_rows
            waiting.append(batch)
            while held >= group:
                table = pa.Table.from_batches(waiting)
                writer.write_table(table.slice(0, group))
                waiting, held = table.slice(group).to_batches(), held - group
        if held:
            writer.write_table(pa.Table.from_batches(waiting))
    return rows


def check_space(path: str, target: Path) -> None:
    """Raise UserError where a conversion may not fit onto its disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(target.parent).free, os.path.getsize(path)
    if free < needed:
        raise UserError(
            f"{path}: its conversion to Parquet needs up to {needed / 1e9:.1f} GB in "
            f"{target.parent}, where {free / 1e9:.1f} GB are free; data.converted names another "
            "folder"
        )


def convert_text(
    text: Text, target: Path, progress: Callable[[int, int], None] | None = None
) -> int:
    """Convert a text; how many rows it has. Raises UserError and RunFailed."""
    origin = FileState.of(text.path)
    batches = text_rows(text, progress)
    first = next(batches, None)
    if first is None:
        raise UserError(f"{text.path} has no rows")
    rows = write_rows(target, first.schema, chain([first], batches), origin)
    if FileState.of(text.path) != origin:
        target.unlink()
        raise RunFailed(f"{text.path} has changed while it was converted")
    return rows


def rewrite(path: str, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write a Parquet file anew, in smaller row groups. Raises RunFailed."""
    origin = FileState.of(path)
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=BLOCK) as file:
        rows, done = file.metadata.num_rows, 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal done
            for batch in file.iter_batches(GROUP, use_threads=False):
                yield batch
                done += batch.num_rows
                if progress is not None:
                    progress(done, rows)

        write_rows(target, file.schema_arrow, batches(), origin)


def has_large_groups(found: pq.FileMetaData) -> bool:
    """Whether a Parquet file is to be rewritten."""
    groups: Sequence[int] = range(found.num_row_groups)
    return any(found.row_group(n).total_byte_size > MOST_GROUP for n in groups)
