"""Sweep directories: a description, and a table with one row per point.

While a sweep is unfinished each finished point has a small file, so that nothing is lost.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.report import naming
from recsim_train.results.environment import made_anew
from recsim_train.results.folder import (
    SWEEP,
    clean_document,
    csv_bytes,
    is_sweep,
    json_bytes,
    newest_first,
    put,
    read_json,
    writing,
)
from recsim_train.results.row import COLUMNS, COMPLETE, binding_of
from recsim_train.signals import note_finished

FORMAT = 1
TABLE, CSV, POINTS = "sweep.parquet", "sweep.csv", "points"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A sweep that was read."""

    path: Path
    header: dict[str, Any]
    rows: list[dict[str, Any]]
    """Finished points, in order: swept settings by name, then `COLUMNS`."""

    @property
    def keys(self) -> list[str]:
        """The swept settings."""
        return list(self.header["axes"])

    @property
    def complete(self) -> bool:
        """Whether every point is there."""
        return len(self.rows) == len(self.header["points"])


@dataclass(slots=True)
class SweepFolder:
    """Writes one sweep as its points are finished."""

    path: Path
    header: dict[str, Any]
    """As `header_of` makes it."""
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Figures of finished points by number."""

    def start(self) -> None:
        """Make the folder and write the description."""
        with writing(self.path):
            (self.path / POINTS).mkdir(parents=True, exist_ok=True)
            put(self.path / SWEEP, json_bytes(self.header, indent=1))

    def add(self, number: int, row: dict[str, Any]) -> None:
        """Keep a finished point."""
        self.rows[number] = row
        with writing(self.path):
            put(self.path / POINTS / f"{number:06d}.json", json_bytes(row, indent=1))

    def finish(self) -> SweepRecord:
        """Write the tables of what is finished; once all points are, their files go."""
        rows = [self.full_row(number) for number in sorted(self.rows)]
        with writing(self.path):
            put(self.path / TABLE, _parquet(rows, self.header))
            put(self.path / CSV, _csv(rows, self.header))
            if len(rows) == len(self.header["points"]):
                shutil.rmtree(self.path / POINTS, ignore_errors=True)
        if any(row["status"] == COMPLETE for row in rows):
            note_finished()
        return SweepRecord(self.path, self.header, rows)

    def abandon(self) -> None:
        """Leave nothing of a sweep of which nothing is finished."""
        shutil.rmtree(self.path, ignore_errors=True)

    def full_row(self, number: int) -> dict[str, Any]:
        """A point's swept settings and figures."""
        values = self.header["points"][number]["values"]
        row = self.rows[number]
        full = {"point": number} | {key: values.get(key) for key in self.header["axes"]}
        said = {"bottleneck": naming.bottleneck(binding_of(row))}
        return full | {column: row.get(column) for column in COLUMNS} | said


def header_of(
    name: str,
    file: str,
    axes: Mapping[str, Sequence[Any]],
    points: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    code: str,
    command: Sequence[str],
) -> dict[str, Any]:
    """The description of a sweep.

    ``axes``: values by swept setting; ``points``: ``{"values", "strategy", "options",
    "identity"}`` of each row; ``settings``: flat, of the first point, to say what changed.
    """
    return clean_document(
        {
            "tool": "recsim-train",
            "format": FORMAT,
            "name": name,
            "file": file,
            "code": code,
            "axes": {key: list(values) for key, values in axes.items()},
            "points": list(points),
            "settings": dict(settings),
            "command": list(command),
        }
    )


def find_started(
    base: Path, header: Mapping[str, Any], say: Callable[[str], object]
) -> SweepRecord | None:
    """The newest sweep of exactly these points by this code, for ``--resume``; None: there is no
    sweep of this name, or only of other code, which ``say`` hears. Raises UserError, which says
    what changed, where there are only others."""
    others = []
    for path in filter(is_sweep, newest_first(base)):
        record = read_sweep(path)
        changed = what_changed(record.header, header)
        if not changed and record.header.get("code") == header["code"]:
            return record
        others.append((changed, path, record.header.get("code")))
    for changed, path, code in sorted(others, key=lambda other: bool(other[0]))[:1]:
        if changed:
            raise UserError(
                f"{path} cannot be resumed: {changed}; without --resume the sweep is made anew, "
                "beside it"
            )
        say(made_anew(path, code, header["code"]))
    return None


def what_changed(old: Mapping[str, Any], new: Mapping[str, Any], most: int = 5) -> str:
    """The settings in which two descriptions differ, in words; empty: in none."""
    a, b = dict(old["settings"]), dict(new["settings"])
    a |= {f"the sweep of {key}": values for key, values in old["axes"].items()}
    b |= {f"the sweep of {key}": values for key, values in new["axes"].items()}
    differing = [
        f"{key} was {_shown(a.get(key))}, is {_shown(b.get(key))}"
        for key in dict.fromkeys([*a, *b])
        if a.get(key) != b.get(key)
    ]
    before, now = ([point.get("identity") for point in sweep["points"]] for sweep in (old, new))
    if not differing and before != now:
        return f"it has {len(before)} other points (now {len(now)})"
    more = f" and {len(differing) - most} more" if len(differing) > most else ""
    return "; ".join(differing[:most]) + more


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def read_sweep(path: Path) -> SweepRecord:
    """Read a sweep, finished or not. Raises UserError, one sentence, for anything else."""
    try:
        header = read_json(path / SWEEP)
        if (form := header.get("format")) != FORMAT:
            raise UserError(f"{path} was written in format {form!r}, this version reads {FORMAT}")
        for key in ("name", "axes", "points", "settings", "command"):
            if header.get(key) is None:
                raise ValueError(f"it lacks {key!r}")
        folder = SweepFolder(path, header)
        if (path / TABLE).is_file():
            folder.rows = {row["point"]: row for row in _read_parquet(path / TABLE, header)}
        for file in sorted((path / POINTS).glob("*.json")):
            folder.rows[int(file.stem)] = read_json(file)
        return SweepRecord(path, header, [folder.full_row(n) for n in sorted(folder.rows)])
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is a damaged sweep, or another version's: {error}") from None
    except (KeyError, TypeError, IndexError, AttributeError):
        raise UserError(
            f"{path} is a damaged sweep, or another version's: {SWEEP} does not hold what it should"
        ) from None


def axis_type(values: Iterable[Any]) -> str:
    """The column type of a swept setting."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    if kinds and kinds <= {int, float}:
        return "double"
    return "string" if kinds <= {str} else "json"


def _types(header: Mapping[str, Any]) -> dict[str, str]:
    axes = {key: axis_type(values) for key, values in header["axes"].items()}
    return {"point": "int64", **axes, **{k: v for k, v in COLUMNS.items() if k not in axes}}


def _parquet(rows: Sequence[Mapping[str, Any]], header: Mapping[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = _types(header)
    arrays = []
    for column, kind in types.items():
        values = [row[column] for row in rows]
        if kind == "json":
            values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
        arrays.append(pa.array(values, type=pa.type_for_alias(kind.replace("json", "string"))))
    stream = io.BytesIO()
    pq.write_table(pa.table(arrays, names=list(types)), stream, compression="zstd")
    return stream.getvalue()


def _read_parquet(path: Path, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except pa.ArrowException:
        raise ValueError(f"{path.name} is damaged") from None
    written = [column for column, kind in _types(header).items() if kind == "json"]
    for row in rows:
        row |= {c: json.loads(row[c]) for c in written if row.get(c) is not None}
    return rows


def _csv(rows: Sequence[Mapping[str, Any]], header: Mapping[str, Any]) -> bytes:
    """The table without the columns that hold figures by name, for spreadsheets."""
    wide = [c for c, kind in COLUMNS.items() if kind == "json" and c not in ("options", "notes")]
    columns = [c for c in _types(header) if c not in wide]
    return csv_bytes(columns, rows)
