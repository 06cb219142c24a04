"""``simulate`` of claims and of whole folders: every variant a run, one after the other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from recsim_train.cli import common

if TYPE_CHECKING:
    from recsim_train.config.cluster import Cluster
    from recsim_train.config.load import Loaded
    from recsim_train.placement.plan import Plan
    from recsim_train.results.claims import ClaimRuns
    from recsim_train.results.rundir import RunRecord

SUFFIXES = (".yaml", ".yml")


@dataclass(slots=True)
class Settings:
    """What the command line says about all files."""

    cluster: str | None
    sets: Sequence[str]
    seed: int | None
    out: Path
    resume: bool
    records: dict[str, RunRecord] = field(default_factory=dict)
    """Finished runs by identity: variants with the same settings are one run."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a claim: a variant as it is, with one input changed, or at a point of the grid."""

    variant: str
    overrides: tuple[str, ...]
    change: tuple[str, str] | None = None
    """(input, change) of a sensitivity."""
    point: tuple[tuple[str, str], ...] = ()
    """(input, value) of every axis of the grid."""

    @property
    def title(self) -> str:
        where = (self.change,) if self.change is not None else self.point
        return ", ".join((self.variant, *(f"{name} {value}" for name, value in where)))


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make."""

    title: str
    plan: Plan
    profile: Cluster
    loaded: Loaded


def files(folder: Path) -> list[Path]:
    """The experiments of a folder, sorted. Raises UserError if there are none."""
    from recsim_train.config.errors import UserError

    found = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and p.is_file())
    if not found:
        raise UserError(f"{folder}: no experiment (*.yaml) in this folder")
    return found


def simulate_files(paths: Sequence[Path], settings: Settings, json: bool, dry_run: bool) -> None:
    """Simulate every file; one that fails is named and the others go on. Exit code 1 then."""
    from recsim_train.config.errors import RunFailed, UserError
    from recsim_train.report.claims import Judged, judge

    records: list[RunRecord] = []
    judged: list[Judged] = []
    failed: list[Path] = []
    for number, path in enumerate(paths, start=1):
        common.say(f"{path} ({number} of {len(paths)})")
        try:
            loaded = common.load(path, settings.sets, settings.seed)
            if loaded.sweep is not None:
                common.say("  left out: it is a sweep, which is simulated by itself")
            elif dry_run:
                check(loaded, settings)
            elif loaded.claim is None:
                records += [perform(job, settings) for job in plain_jobs(loaded, settings)]
            else:
                judged.append(judge(simulate_claim(loaded, settings)))
        except (UserError, RunFailed) as error:
            common.say(f"error: {error}")
            failed.append(path)
    if not dry_run:
        show(records, judged, json)
    if failed:
        common.say(f"{len(failed)} of {len(paths)} failed: {', '.join(map(str, failed))}")
        raise typer.Exit(common.FAILED)


def plain_jobs(loaded: Loaded, settings: Settings) -> list[Job]:
    """One for each strategy of an experiment."""
    profile = common.profile(loaded, settings.cluster)
    return [Job(p.strategy.kind, p, profile, loaded) for p in common.plans(loaded)]


def check(loaded: Loaded, settings: Settings) -> None:
    """Make every plan and run none."""
    if loaded.claim is None:
        common.show_plans(common.plans(loaded), False)
        return
    for step in steps(loaded):
        if step.change is None:
            job = claim_job(step, loaded, settings)
            common.say(f"  {job.title}: {len(job.plan.instances)} processes, {job.profile.name}")


def steps(loaded: Loaded) -> Iterator[Step]:
    """All runs of a claim."""
    claim = loaded.claim
    assert claim is not None

    def step(name: str, *more: str, **where: Any) -> Step:
        return Step(name, (*claim.common, *claim.variants[name], *more), **where)

    for name in claim.variants:
        yield step(name)
    first = claim.checks[0]
    for varied in claim.sensitivity:
        for change, more in varied.changes.items():
            for name in dict.fromkeys((*first.of, *first.over)):
                yield step(name, *more, change=(varied.input, change))
    if claim.grid:
        judged = (c for c in claim.checks if c.up_to is not None)
        names = dict.fromkeys(name for c in judged for name in (*c.of, *c.over))
        axes = ([(axis, *item) for item in values.items()] for axis, values in claim.grid.items())
        for point in itertools.product(*axes):
            more = tuple(override for _, _, overrides in point for override in overrides)
            for name in names:
                yield step(name, *more, point=tuple((axis, value) for axis, value, _ in point))


def claim_job(step: Step, loaded: Loaded, settings: Settings) -> Job:
    """The run of one step. The command line's own overrides come last. Raises UserError."""
    from recsim_train.config.errors import UserError

    try:
        own = common.load(loaded.path, [*step.overrides, *settings.sets], settings.seed)
        made = common.plans(own)
        if len(made) != 1:
            raise UserError(f"it has {len(made)} strategies, expected one (set strategy=...)")
        return Job(step.title, made[0], common.profile(own, settings.cluster), own)
    except UserError as error:
        raise UserError(f"{loaded.path}: variant {step.title!r}: {error}") from None


def simulate_claim(loaded: Loaded, settings: Settings) -> ClaimRuns:
    """Simulate all variants of a claim and write down which runs belong to it."""
    from recsim_train.results.claims import Change, ClaimRuns, GridPoint, write_claim_runs

    claim = loaded.claim
    assert claim is not None
    # All are checked before the first one starts.
    todo = [(step, claim_job(step, loaded, settings)) for step in steps(loaded)]
    runs: dict[str, str] = {}
    changed: dict[tuple[str, str], dict[str, str]] = {}
    points: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for number, (step, job) in enumerate(todo, start=1):
        start = time.monotonic()
        record = perform(job, settings, quiet=step.change is not None or bool(step.point))
        made = runs
        if step.change is not None:
            made = changed.setdefault(step.change, {})
        elif step.point:
            made = points.setdefault(step.point, {})
        made[step.variant] = record.run_id
        took = time.monotonic() - start
        common.say(f"  {number} of {len(todo)}: {job.title}: {took:.1f} s")
    found = ClaimRuns(
        loaded.experiment.name,
        loaded.path.as_posix(),
        claim,
        runs,
        tuple(Change(*change, ids) for change, ids in changed.items()),
        tuple(GridPoint(dict(point), ids) for point, ids in points.items()),
        settings.out,
    )
    write_claim_runs(settings.out, found)
    return found


def perform(job: Job, settings: Settings, *, quiet: bool = False) -> RunRecord:
    """Simulate and write one run, or take it where it is there already."""
    from recsim_train.results.rundir import find_complete, identity, write_run
    from recsim_train.sim.run import simulate as predict

    key = identity(job.plan, "simulated", job.profile)
    record = settings.records.get(key)
    if record is None and settings.resume:
        record = find_complete(settings.out, job.plan, "simulated", job.profile)
    if record is None:
        common.ensure_data(job.loaded, only_if=common.needs_ids(job.plan))
        outcome = predict(job.plan, job.profile)
        if not quiet:
            common.say_warnings(outcome)
        record = write_run(
            settings.out,
            plan=job.plan,
            world="simulated",
            outcome=outcome,
            cluster=job.profile,
            environment=common.simulated_environment(),
            command=common.command_line(),
        )
    settings.records[key] = record
    return record


def show(records: Sequence[RunRecord], judged: Sequence[object], json: bool) -> None:
    """One JSON document, or tables."""
    from recsim_train.report.claim_text import published
    from recsim_train.report.claims import Judged
    from recsim_train.report.document import Document
    from recsim_train.report.terminal import show as show_document

    claims = [c for c in judged if isinstance(c, Judged)]
    if json:
        document = common.document(records)
        common.print_json({**document, "claims": [c.document() for c in claims]})
        return
    if records:
        common.show_records(records, False)
    if claims:
        show_document(Document(items=[published(claims)]))
