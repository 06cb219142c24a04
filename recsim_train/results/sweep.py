"""Sweep directories: a description, and a table with one row per point.

While a sweep is unfinished each finished point has a small file, so that nothing is lost.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import Plan
from recsim_train.results.figures import Summary, document_of
from recsim_train.results.folder import (
    clean,
    json_bytes,
    newest_first,
    numbered,
    put,
    read_json,
    slug,
    writing,
)
from recsim_train.signals import held, note_finished

FORMAT = 1
HEADER, TABLE, CSV, POINTS = "sweep.json", "sweep.parquet", "sweep.csv", "points"
RUNS = "runs"
COMPLETE, DOES_NOT_FIT, FAILED = "complete", "does not fit", "failed"

COLUMNS: Mapping[str, str] = {
    "strategy": "string",
    "options": "json",
    "profile": "string",
    "status": "string",
    "message": "string",
    "examples_per_second": "double",
    "eps_low": "double",
    "eps_high": "double",
    "calibration_low": "double",
    "calibration_high": "double",
    "bound_eps": "double",
    "bottleneck": "string",
    "bytes_per_step": "double",
    "seconds_per_iteration": "double",
    "steps": "int64",
    "elp": "int64",
    "examples_per_step": "int64",
    "sync_gap": "double",
    "sync_gap_per_thread": "double",
    "staleness": "double",
    "trainers": "int64",
    "embedding_servers": "int64",
    "dense_servers": "int64",
    "readers": "int64",
    "cores": "double",
    "threads": "int64",
    "operation_threads": "int64",
    "batch_size": "int64",
    "seed": "int64",
    "memory_bytes": "double",
    "memory_share": "double",
    "simulated_seconds": "double",
    "wall_seconds": "double",
    "stopped": "string",
    "run_id": "string",
    "utilisation": "json",
    "bounds": "json",
    "time_by_effect": "json",
    "bytes_by_effect": "json",
    "memory": "json",
    "elasticities": "json",
    "cpu_per_example": "json",
    "calibration_errors": "json",
    "notes": "json",
}
"""Columns beside the swept settings, and their types. ``bytes_per_step``: payload of one counted
iteration of every training loop, background rounds in proportion; ``memory_bytes``: the largest
process; ``memory_share``: the fullest host's; ``cores``: of all hosts together;
``examples_per_step``: that one step of the whole job processes, an iteration of every training
loop; ``notes``: what a reader must know of it, one sentence each;
``cpu_per_example``: seconds by "role.what"."""


def row_of(
    plan: Plan,
    cluster: Cluster | None,
    summary: Summary | None,
    status: str,
    message: str = "",
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The figures of one point, by column; those of a point without a run are None.

    ``cluster``: None of a measurement that has no profile.
    """
    spec = plan.experiment
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    if summary is not None:
        row |= _figures(summary, cluster is not None and cluster.colocate)
    row |= {
        "strategy": plan.strategy.kind,
        "options": plan.strategy.options,
        "profile": None if cluster is None else cluster.name,
        "status": status,
        "message": message or None,
        "trainers": spec.roles.trainers,
        "embedding_servers": len(plan.of_role("embedding_server")),
        "dense_servers": len(plan.of_role("dense_server")),
        "readers": len(plan.of_role("reader")),
        "threads": plan.worker_threads,
        "operation_threads": plan.operation_threads,
        "batch_size": spec.training.batch_size,
        "examples_per_step": len(plan.training) * spec.training.batch_size,
        "notes": list(notes) or None,
        "seed": spec.seed,
        "wall_seconds": None,
        "run_id": None,
    }
    cleaned: dict[str, Any] = clean(row)
    return cleaned


def _figures(summary: Summary, colocate: bool) -> dict[str, Any]:
    """The columns that a run fills."""
    facts, document = summary.facts, document_of(summary)
    synchronisation = summary.synchronisation
    gap, staleness = synchronisation.sync_gap, synchronisation.staleness
    per_step = [size for size in summary.bytes_by_effect.values() if size is not None]
    uses = facts.memory.values()
    shares = [use.bytes / use.available for use in uses if use.available]
    named = document["facts"] | document
    low, high = summary.ci95 or (None, None)
    least, most = facts.calibration_ci95 or (None, None)
    return {key: named[key] for key in COLUMNS.keys() & named.keys()} | {
        "eps_low": low,
        "eps_high": high,
        "calibration_low": least,
        "calibration_high": most,
        "bytes_per_step": sum(per_step) if per_step else None,
        "elp": synchronisation.elp,
        "sync_gap": gap and gap.mean,
        "sync_gap_per_thread": synchronisation.sync_gap_per_thread,
        "staleness": staleness and staleness.mean,
        "cores": cores_of(facts.cores, colocate),
        "cpu_per_example": cpu_by_line(summary),
        "memory_bytes": max((use.bytes for use in uses), default=None),
        "memory_share": (sum if colocate else max)(shares) if shares else None,
    }


def cpu_by_line(summary: Summary) -> dict[str, float] | None:
    """CPU seconds of one example by "role.what"; None without a ledger."""
    lines = summary.cpu_per_example
    if lines is None:
        return None
    return {".".join(filter(None, key)): seconds for key, seconds in lines.items()}


def cores_of(by_process: Mapping[str, float], colocate: bool) -> float | None:
    """Cores of all hosts, from those of each process's host; where they share one, its own."""
    if not by_process:
        return None
    return float((max if colocate else sum)(by_process.values()))


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


class SweepFolder:
    """Writes one sweep as its points are finished."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """``header``: as `header_of` makes it."""
        self.path = path
        self.header = header
        self.rows: dict[int, dict[str, Any]] = {}
        """Figures of finished points by number."""

    def start(self) -> None:
        """Make the folder and write the description."""
        new = not self.path.exists()
        with writing(self.path):
            (self.path / POINTS).mkdir(parents=True, exist_ok=True)
            try:
                _put(self.path / HEADER, json_bytes(self.header, indent=1))
            except OSError:
                if new:
                    self.abandon()
                raise

    def add(self, number: int, row: dict[str, Any]) -> None:
        """Keep a finished point."""
        self.rows[number] = row
        with writing(self.path):
            _put(self.path / POINTS / f"{number:06d}.json", json_bytes(row, indent=1))

    def finish(self) -> SweepRecord:
        """Write the tables of what is finished; once all points are, their files go."""
        rows = [self.full_row(number) for number in sorted(self.rows)]
        with writing(self.path):
            _put(self.path / TABLE, _parquet(rows, self.header))
            _put(self.path / CSV, _csv(rows, self.header))
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
        return full | {column: row.get(column) for column in COLUMNS}


def header_of(
    name: str,
    file: str,
    axes: Mapping[str, Sequence[Any]],
    points: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    version: str,
    command: Sequence[str],
) -> dict[str, Any]:
    """The description of a sweep.

    ``axes``: values by swept setting; ``points``: ``{"values", "strategy", "options",
    "identity"}`` of each row; ``settings``: flat, of the first point, to say what changed.
    """
    identities = [str(point["identity"]) for point in points]
    cleaned: dict[str, Any] = clean(
        {
            "tool": "recsim-train",
            "format": FORMAT,
            "name": name,
            "file": file,
            "version": version,
            "identity": hashlib.sha256("\n".join([version, *identities]).encode()).hexdigest(),
            "axes": {key: list(values) for key, values in axes.items()},
            "points": list(points),
            "settings": dict(settings),
            "command": list(command),
        }
    )
    return cleaned


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name; lists stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def base_path(out: Path, name: str) -> Path:
    """Where a sweep goes: experiment-sweep, with "-2" and so on behind it for further ones."""
    return out / f"{slug(name, 'experiment')}-sweep"


def free_path(base: Path) -> Path:
    """The first of the names that is not taken."""
    paths = map(base.with_name, numbered(base.name))
    return next(path for path in paths if not path.exists())


def find_started(base: Path, header: Mapping[str, Any]) -> SweepRecord | None:
    """The newest sweep of exactly these points, for ``--resume``; None: there is no sweep of this
    name. Raises UserError, which says what changed, where there are only others."""
    others = []
    for path in filter(is_sweep, newest_first(base)):
        record = read_sweep(path)
        if record.header["identity"] == header["identity"]:
            return record
        others.append(record)
    if others:
        raise UserError(
            f"{others[0].path} cannot be resumed: {what_changed(others[0].header, header)}; "
            "without --resume the sweep is made anew, beside it"
        )
    return None


def what_changed(old: Mapping[str, Any], new: Mapping[str, Any], most: int = 5) -> str:
    """The settings in which two descriptions differ, in words."""
    a = {**old["settings"], "recsim-train": old["version"]}
    b = {**new["settings"], "recsim-train": new["version"]}
    a |= {f"the sweep of {key}": values for key, values in old["axes"].items()}
    b |= {f"the sweep of {key}": values for key, values in new["axes"].items()}
    differing = [
        f"{key} was {_shown(a.get(key))}, is {_shown(b.get(key))}"
        for key in dict.fromkeys([*a, *b])
        if a.get(key) != b.get(key)
    ]
    if not differing:
        return f"it has {len(old['points'])} other points (now {len(new['points'])})"
    more = f" and {len(differing) - most} more" if len(differing) > most else ""
    return "; ".join(differing[:most]) + more


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def is_sweep(path: Path) -> bool:
    """Whether a folder looks like a sweep's."""
    return (path / HEADER).is_file()


def read_sweep(path: Path) -> SweepRecord:
    """Read a sweep, finished or not. Raises UserError, one sentence, for anything else."""
    try:
        header = read_json(path / HEADER)
        if header["format"] != FORMAT:
            raise UserError(
                f"{path} was written in format {header['format']!r}, this version reads {FORMAT}"
            )
        folder = SweepFolder(path, header)
        if (path / TABLE).is_file():
            folder.rows = {row["point"]: row for row in _read_parquet(path / TABLE, header)}
        for file in sorted((path / POINTS).glob("*.json")):
            folder.rows[int(file.stem)] = read_json(file)
        return SweepRecord(path, header, [folder.full_row(n) for n in sorted(folder.rows)])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{path} is a damaged sweep: {type(error).__name__}: {error}") from None


def figures_of(record: SweepRecord) -> dict[int, dict[str, Any]]:
    """Figures by point number, as `SweepFolder.rows` holds them."""
    return {row["point"]: {c: row.get(c) for c in COLUMNS} for row in record.rows}


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
        row |= {c: json.loads(row[c]) for c in written if row[c] is not None}
    return rows


def _csv(rows: Sequence[Mapping[str, Any]], header: Mapping[str, Any]) -> bytes:
    """The table without the columns that hold figures by name, for spreadsheets."""
    wide = [c for c, kind in COLUMNS.items() if kind == "json" and c not in ("options", "notes")]
    columns = [c for c in _types(header) if c not in wide]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            json.dumps(row[c]) if isinstance(row[c], dict | list) else row[c] for c in columns
        )
    return stream.getvalue().encode()


def _put(path: Path, content: bytes) -> None:
    """Whole or not at all, also when Ctrl-C or SIGTERM come meanwhile."""
    with held():
        put(path, content)
