"""Sweep directories: a description, and a table with one row per point.

While a sweep is unfinished its finished points are in a memo, so that nothing is lost.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_train.config.dump import resolved
from recsim_train.config.errors import UserError
from recsim_train.config.validate import plain
from recsim_train.evaluate.evaluator import Memo, entries, evaluate
from recsim_train.evaluate.levels import FINAL
from recsim_train.report import naming
from recsim_train.report.caveats import elsewhere
from recsim_train.results.environment import code_of, machine, made_anew, repeatable
from recsim_train.results.folder import (
    RUNS,
    SWEEP,
    base_path,
    clean_document,
    csv_bytes,
    free_path,
    is_sweep,
    json_bytes,
    newest_first,
    put,
    read_json,
    writable,
    writing,
)
from recsim_train.results.row import (
    COLUMNS,
    COMPLETE,
    DOES_NOT_FIT,
    FAILED,
    Row,
    flat_settings,
    row_from,
    row_of,
)
from recsim_train.results.rundir import Keep
from recsim_train.results.tables import read_parquet, write_parquet
from recsim_train.session.job import Caller, Job
from recsim_train.signals import note_finished

FORMAT = 1
TABLE, CSV, POINTS = "sweep.parquet", "sweep.csv", "points.jsonl"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A sweep that was read."""

    path: Path
    header: dict[str, Any]
    rows: list[Row]
    """Finished points, in order."""

    @property
    def keys(self) -> list[str]:
        """The swept settings."""
        return list(self.header["axes"])

    @property
    def complete(self) -> bool:
        """Whether every point is there."""
        return len(self.rows) == len(self.header["points"])


def simulate_all(
    jobs: Sequence[Job], refused: Mapping[int, str], keep: Keep, processes: int, caller: Caller
) -> SweepRecord:
    """Simulate all points but those that are ``refused``, whose rows say why.

    What is finished is kept whatever happens; of a new sweep of which nothing is, nothing stays.
    """
    first = jobs[0].loaded
    header = header_of(jobs, keep.command)
    base = base_path(keep.out, first.experiment.name, "sweep")
    started = find_started(base, header, caller.say) if keep.resume else None
    path = free_path(base) if started is None else started.path
    known = () if started is None else started.rows
    rows = {row.number or 0: row for row in known if row.status != FAILED}
    try:
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            put(path / SWEEP, json_bytes(header, indent=1))
        memo = Memo(path / POINTS, header["code"], resume=started is not None)
        for number in refused.keys() - rows.keys():
            job = jobs[number]
            rows[number] = row_of(job.plan, job.profile, None, DOES_NOT_FIT, refused[number])
            memo.add(job.identity, FINAL, rows[number])
        todo = [number for number in range(len(jobs)) if number not in rows]
        if len(todo) < len(jobs) - len(refused):
            caller.say(f"{len(jobs) - len(todo)} of {len(jobs)} points are there already")
        kept = None
        if first.sweep is not None and first.sweep.keep_runs:
            kept = Keep(path / RUNS, command=keep.command)
            writable(kept.out)
        cases = [jobs[number].case for number in todo]
        title = f"simulating {len(todo)} point{'' if len(todo) == 1 else 's'}"
        with (
            caller.progress(title) as progress,
            contextlib.closing(
                evaluate(cases, FINAL, processes=processes, memo=memo, keep=kept, meter=progress)
            ) as finished,
        ):
            for done, (place, row) in enumerate(finished, start=1):
                rows[todo[place]] = row
                progress(done, len(todo))
    except BaseException as error:
        if not rows:
            if started is None:
                shutil.rmtree(path, ignore_errors=True)
            raise
        record = write_sweep(path, header, rows)
        if isinstance(error, KeyboardInterrupt):
            caller.say(f"{len(record.rows)} of {len(jobs)} points are kept in {path}")
        raise
    return write_sweep(path, header, rows)


def caveats_of(jobs: Sequence[Job]) -> list[str]:
    """Where the profiles are of another machine or torch than there are."""
    clusters = [job.cluster for job in jobs if job.cluster is not None]
    profiles = {f"{cluster.name}: {cluster.calibration}": cluster for cluster in clusters}
    here, every = machine(), (cluster.model_dump(mode="json") for cluster in profiles.values())
    return list(dict.fromkeys(said for cluster in every for said in elsewhere(cluster, here)))


def write_sweep(path: Path, header: dict[str, Any], rows: Mapping[int, Row]) -> SweepRecord:
    """Write the tables of what is finished, by its number; once all points are, the memo goes."""
    record = _record(path, header, rows)
    lines = [row.document for row in record.rows]
    wide = set(_as_json(COLUMNS)) - {"options", "notes"}  # no figures by name for spreadsheets
    columns = [column for column in _types(header) if column not in wide]
    with writing(path):
        put(path / TABLE, _parquet(lines, header))
        put(path / CSV, csv_bytes(columns, lines))
        if record.complete:
            (path / POINTS).unlink(missing_ok=True)
    if any(row.status == COMPLETE for row in record.rows):
        note_finished()
    return record


def _record(path: Path, header: dict[str, Any], rows: Mapping[int, Row]) -> SweepRecord:
    """With what tells each point from the others, and what binds it in words."""
    found = []
    for number in sorted(rows):
        row, values = rows[number], header["points"][number]["values"]
        settings = {key: values.get(key) for key in header["axes"]}
        said = naming.bottleneck(row.what_binds)
        found.append(replace(row, number=number, settings=settings, bottleneck=said))
    return SweepRecord(path, header, found)


def header_of(jobs: Sequence[Job], command: Sequence[str]) -> dict[str, Any]:
    """The description of a sweep: what its points are, and what they share, flat, of the first
    point, to say what changed."""
    axes: dict[str, list[Any]] = {}
    for job in jobs:
        for key, value in job.settings.items():
            if value is not None and value not in axes.setdefault(key, []):
                axes[key].append(value)
    first = jobs[0].loaded
    cluster = {} if jobs[0].cluster is None else plain(jobs[0].cluster, digits=None)
    settings = flat_settings({**resolved(first.experiment), "cluster": cluster})
    return clean_document(
        {
            "tool": "recsim-train",
            "format": FORMAT,
            "name": first.experiment.name,
            "file": first.path.as_posix(),
            "code": code_of(job.plan.strategy for job in jobs),
            "axes": axes,
            "points": [
                {
                    "values": job.settings,
                    "strategy": job.plan.strategy.kind,
                    "options": job.plan.strategy.options,
                    "identity": job.identity,
                }
                for job in jobs
            ],
            "settings": {key: value for key, value in settings.items() if key not in axes},
            "command": repeatable(command),
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
        rows: dict[int, Row] = {}
        if (path / TABLE).is_file():
            lines = _read_parquet(path / TABLE, header)
            rows = {line["point"]: row_from(line) for line in lines}
        simulated = {entry["case"]: entry["row"] for entry in entries(path / POINTS)}
        for number, point in enumerate(header["points"]):
            if (known := simulated.get(point.get("identity"))) is not None:
                rows[number] = known
        return _record(path, header, rows)
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
    types, stream = _types(header), io.BytesIO()
    values = {column: [row[column] for row in rows] for column in types}
    for column in _as_json(types):
        texts = (None if v is None else json.dumps(v, ensure_ascii=False) for v in values[column])
        values[column] = list(texts)
    plain_types = {column: kind.replace("json", "string") for column, kind in types.items()}
    write_parquet(stream, plain_types, values.values())
    return stream.getvalue()


def _read_parquet(path: Path, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_parquet(path).to_pylist()
    written = _as_json(_types(header))
    for row in rows:
        row |= {c: json.loads(row[c]) for c in written if row.get(c) is not None}
    return rows


def _as_json(types: Mapping[str, str]) -> list[str]:
    return [column for column, kind in types.items() if kind == "json"]
