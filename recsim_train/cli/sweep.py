"""``simulate`` of a sweep: every point checked before the first starts, then one row for each."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from recsim_train.cli import common
from recsim_train.results.folder import writable

if TYPE_CHECKING:
    from recsim_train.config.cluster import Cluster
    from recsim_train.config.experiment import StrategyChoice
    from recsim_train.config.load import Loaded
    from recsim_train.config.options import Schemas
    from recsim_train.placement.plan import Plan
    from recsim_train.results.sweep import SweepFolder, SweepRecord

_MOST_ERRORS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy of one point."""

    loaded: Loaded
    choice: StrategyChoice
    plan: Plan
    cluster: Cluster | None
    """None where there is no profile yet and none is needed."""
    values: dict[str, Any]
    """Swept settings; None for an option that the strategy does not have."""
    identity: str


@dataclass(slots=True)
class Profiles:
    """Cluster profiles, each read once."""

    name: str | None
    measure: bool
    """Whether this machine's profile is measured when it is missing."""
    known: dict[str, Cluster | None] = field(default_factory=dict)

    def of(self, loaded: Loaded) -> Cluster | None:
        """The profile of a point."""
        key = f"{self.name or loaded.experiment.cluster} {loaded.profile_sets!r}"
        if key not in self.known:
            find = common.profile if self.measure else common.known_profile
            self.known[key] = find(loaded, self.name)
        return self.known[key]


def rows_of(points: Sequence[Loaded], profiles: Profiles) -> list[Row]:
    """Every point and strategy with its checked plan, those that are the same only once.

    Raises UserError with everything that is wrong with any of them.
    """
    from recsim_train.config.errors import UserError
    from recsim_train.placement.build import build_plan
    from recsim_train.results.rundir import identity
    from recsim_train.strategy.registry import schemas

    known = schemas()
    rows: dict[str, Row] = {}
    errors: dict[str, str] = {}
    notes: dict[str, None] = {}
    total = 0
    for loaded in points:
        for choice in loaded.experiment.strategies:
            total += 1
            items = [i for i in loaded.point.items if i.key == "cluster"]
            try:
                cluster = profiles.of(loaded)  # its problems name their own places
                items = list(loaded.point.items)
                plan = build_plan(loaded.experiment, choice)
            except UserError as error:
                where = f"{items[0].mark}: where {loaded.point}: " if items else ""
                errors.setdefault(str(error), f"{where}{error}")
                continue
            notes |= dict.fromkeys(plan.notes)
            key = identity(plan, "simulated", cluster)
            row = Row(loaded, choice, plan, cluster, _values(loaded, choice, known), key)
            rows.setdefault(key, row)
    if errors:
        shown = list(errors.values())[:_MOST_ERRORS]
        more = [f"and {len(errors) - _MOST_ERRORS} more"] if len(errors) > _MOST_ERRORS else []
        raise UserError("\n".join([*shown, *more]))
    for note in notes:
        common.say(f"note: {note}")
    if total > len(rows):
        common.say(f"note: {total - len(rows)} of {total} points equal another one: done once")
    return list(rows.values())


def _values(loaded: Loaded, choice: StrategyChoice, known: Schemas) -> dict[str, Any]:
    from recsim_train.config.sets import option_names

    own = {
        f"strategy.{name}" for name in option_names({"kind": choice.kind, **choice.options}, known)
    }
    return {
        key: value if key in own or not key.startswith("strategy.") else None
        for key, value in loaded.point.values.items()
        if key != "strategy"
    }


def simulate_sweep(
    experiment: Path,
    *,
    cluster: str | None,
    sets: Sequence[str] | None,
    seed: int | None,
    out: Path,
    jobs: int | None,
    json: bool,
    dry_run: bool,
    resume: bool,
) -> None:
    """Simulate all points. Exit code 1 if one fails."""
    points = common.load_points(experiment, sets, seed)
    rows = rows_of(points, Profiles(cluster, measure=not dry_run))
    if dry_run:
        show_points(rows, json)
        return
    folder = _folder(rows, experiment, out, resume)
    try:
        refused = _too_large(rows)
        for number, message in refused.items():
            if number not in folder.rows:
                _refuse(folder, rows, number, message)
        _ensure_data(rows)
        todo = [number for number in range(len(rows)) if number not in folder.rows]
        if len(todo) < len(rows) - len(refused):
            common.say(f"{len(rows) - len(todo)} of {len(rows)} points are there already")
        with contextlib.closing(_simulated(rows, todo, jobs, folder.path)) as finished:
            title = f"simulating {len(todo)} point{'' if len(todo) == 1 else 's'}"
            with common.progress_bar(title) as progress:
                for done, (number, row) in enumerate(finished, start=1):
                    folder.add(number, row)
                    progress(done, len(todo))
    except BaseException as error:
        if not folder.rows:
            folder.abandon()
            raise
        record = folder.finish()
        if isinstance(error, KeyboardInterrupt):
            common.say(f"{len(record.rows)} of {len(rows)} points are kept in {record.path}")
        raise
    show_sweep(folder.finish(), json)


def _folder(rows: Sequence[Row], experiment: Path, out: Path, resume: bool) -> SweepFolder:
    """A new sweep's folder, or one that is gone on with."""
    from recsim_train import __version__
    from recsim_train.config.identity import resolved
    from recsim_train.results import sweep as results
    from recsim_train.results.commands import repeatable

    axes: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.values.items():
            if value is not None and value not in axes.setdefault(key, []):
                axes[key].append(value)
    first = rows[0]
    settings = {**resolved(first.loaded.experiment), "cluster": _plain(first.cluster)}
    settings = {k: v for k, v in results.flat_settings(settings).items() if k not in axes}
    header = results.header_of(
        first.loaded.experiment.name,
        experiment.as_posix(),
        axes,
        [
            {
                "values": row.values,
                "strategy": row.choice.kind,
                "options": row.choice.options,
                "identity": row.identity,
            }
            for row in rows
        ],
        settings,
        __version__,
        repeatable(common.command_line()),
    )
    writable(out)
    base = results.base_path(out, first.loaded.experiment.name)
    found = results.find_started(base, header) if resume else None
    folder = results.SweepFolder(found.path if found else results.free_path(base), header)
    if found is not None:
        done = results.figures_of(found)
        folder.rows = {n: row for n, row in done.items() if row["status"] != results.FAILED}
    folder.start()
    return folder


def _plain(cluster: Cluster | None) -> dict[str, Any]:
    from recsim_train.config.dump import plain

    return {} if cluster is None else plain(cluster, digits=None)


def _too_large(rows: Sequence[Row]) -> dict[int, str]:
    """Points that do not fit into memory, by number. Raises UserError if none does."""
    from recsim_train.config.errors import UserError
    from recsim_train.sim.fit import check_memory

    refused = {}
    for number, row in enumerate(rows):
        assert row.cluster is not None
        try:
            check_memory(row.plan, row.cluster)
        except UserError as error:
            refused[number] = str(error)
    if refused:
        first = next(iter(refused.values()))
        if len(refused) == len(rows):
            raise UserError(f"no point fits into memory; the first: {first}")
        common.say(
            f"note: {len(refused)} of {len(rows)} points do not fit into memory, which their rows "
            f"say; the first: {first}"
        )
    return refused


def _refuse(folder: SweepFolder, rows: Sequence[Row], number: int, message: str) -> None:
    from recsim_train.results.sweep import DOES_NOT_FIT, row_of

    row = rows[number]
    assert row.cluster is not None
    folder.add(number, row_of(row.plan, row.cluster, {}, DOES_NOT_FIT, message))


def _ensure_data(rows: Sequence[Row]) -> None:
    """The data files that points need, each once."""
    seen = set()
    for row in rows:
        key = (row.loaded.experiment.model, row.loaded.experiment.data)
        if common.needs_ids(row.plan) and key not in seen:
            seen.add(key)
            common.ensure_data(row.loaded)


def _simulated(
    rows: Sequence[Row], todo: Sequence[int], jobs: int | None, path: Path
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    from recsim_train.results.environment import cores
    from recsim_train.results.sweep import RUNS
    from recsim_train.sim.sweep import Keep, Task, simulate_points

    tasks = []
    for number in todo:
        row = rows[number]
        assert row.cluster is not None
        tasks.append(Task(number, row.loaded.experiment, row.choice, row.cluster))
    sweep = rows[0].loaded.sweep
    keep = None
    if sweep is not None and sweep.keep_runs:
        keep = Keep(path / RUNS, tuple(common.command_line()))
        writable(keep.folder)
    yield from simulate_points(tasks, jobs or cores(), keep)


def show_points(rows: Sequence[Row], json: bool) -> None:
    """What would be simulated."""
    from recsim_train.config.sweep import written
    from recsim_train.report.runs import title
    from recsim_train.sim.fit import fit

    if json:
        points = [
            {
                "values": row.values,
                "strategy": row.choice.kind,
                "options": row.choice.options,
                "processes": len(row.plan.instances),
                "memory": None if row.cluster is None else fit(row.plan, row.cluster).document(),
            }
            for row in rows
        ]
        common.print_json({"points": points})
        return
    print(f"{rows[0].loaded.experiment.name}: {len(rows)} points")
    for number, row in enumerate(rows, start=1):
        name = title(row.choice.kind, {"strategy_options": row.choice.options})
        values = ", ".join(f"{k}={written(v)}" for k, v in row.values.items() if v is not None)
        found = None if row.cluster is None else fit(row.plan, row.cluster)
        said = f": {found.phrase}" if found is not None and found.problem else ""
        print(f"  {number}  {name}{', ' if values else ''}{values}{said}")


def show_sweep(record: SweepRecord, json: bool) -> None:
    """A finished sweep: one JSON document, or its best points and where it lies."""
    from recsim_train.report.sweep import SweepFindings
    from recsim_train.report.swept import swept
    from recsim_train.report.terminal import show
    from recsim_train.results.sweep import FAILED

    failed = [row for row in record.rows if row["status"] == FAILED]
    if json:
        common.print_json(
            {
                "sweep": {
                    "name": record.header["name"],
                    "sweep_dir": record.path.as_posix(),
                    "axes": record.header["axes"],
                },
                "points": record.rows,
            }
        )
    else:
        show(swept(SweepFindings(record)))
    if failed:
        common.say(f"{len(failed)} of {len(record.rows)} points failed: {failed[0]['message']}")
        raise typer.Exit(common.FAILED)
