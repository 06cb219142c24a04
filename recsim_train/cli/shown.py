"""The output of `simulate` and `run`: one JSON document on standard output, or tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from recsim_train.cli import common

if TYPE_CHECKING:
    from recsim_train.calls import Run
    from recsim_train.config.experiment import Validation
    from recsim_train.report.write import Reported
    from recsim_train.results.rundir import RunRecord
    from recsim_train.session.job import Job
    from recsim_train.sweep.folder import SweepRecord


def show_report(made: Reported, json: bool) -> None:
    """What was found."""
    from recsim_train.report.terminal import show

    if json:
        common.print_json(made.document)
    else:
        show(made.report)


def show_plans(jobs: Sequence[Job], json: bool) -> None:
    """What would be started, with what can be said of it beforehand; raises UserError for what does
    not fit into the hosts."""
    from recsim_train.config.errors import UserError
    from recsim_train.placement.describe import describe, plan_document
    from recsim_train.placement.hosts import types_said
    from recsim_train.session.making import verdicts as verdicts_of

    fits = [job.memory() for job in jobs]
    known = [
        None if memory is None or memory.problem else job.asymptotic_bounds()
        for job, memory in zip(jobs, fits, strict=True)
    ]
    types = [
        []
        if memory is None or memory.problem or job.world == "real"
        else types_said(job.plan.instances, job.profile)
        for job, memory in zip(jobs, fits, strict=True)
    ]
    if json:
        documents = [
            plan_document(job.plan)
            | ({} if memory is None else {"memory": memory.document()})
            | ({} if before is None else {"beforehand": before.document()})
            | ({"host_types": on} if on else {})
            for job, memory, before, on in zip(jobs, fits, known, types, strict=True)
        ]
        common.print_json({"plans": documents})
    for job, memory, before, on in zip(jobs, fits, known, types, strict=True):
        if not json:
            verdicts = [*([] if before is None else verdicts_of(before)), *on]
            if memory is not None:
                said = "does not fit" if memory.problem else memory.phrase  # the error says why
                verdicts.insert(0, f"{memory.asked}: {said}")
            common.tell(describe(job.plan, verdicts))
        for warning in () if memory is None else memory.warnings:
            common.say(f"note: {warning}")
    problems = [f.problem for f in fits if f is not None and f.problem]
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))


def show_hosts(jobs: Sequence[Job]) -> None:
    """The emulated hosts of runs. Raises UserError where there can be none."""
    from recsim_train.executor.emulation.capacity import check_carried, measured_here, said
    from recsim_train.executor.emulation.cluster import check_here
    from recsim_train.executor.emulation.layout import layout_of, lines_of
    from recsim_train.placement.hosts import types_said

    check_here()
    capacity = measured_here()
    for job in jobs:
        layout = layout_of(job.plan, job.profile)
        for on in types_said(job.plan.instances, job.profile):
            common.tell(f"  {on}")
        common.tell("  emulated hosts:")
        for line in lines_of(layout):
            common.tell(f"    {line}")
        if capacity is not None:
            check_carried(layout, capacity)
    for line in said(capacity) if capacity is not None else ():
        common.tell(f"  this machine carries: {line}")


def show_points(jobs: Sequence[Job], json: bool) -> None:
    """The points of a sweep, and which do not fit."""
    from recsim_train.config.sweep import written
    from recsim_train.report.runs import title
    from recsim_train.session.prepare import sources

    fits = [job.memory() for job in jobs]
    if json:
        points = [
            {
                "values": job.settings,
                "strategy": job.plan.strategy.kind,
                "options": job.plan.strategy.options,
                "processes": len(job.plan.instances),
                "memory": None if memory is None else memory.document(),
            }
            for job, memory in zip(jobs, fits, strict=True)
        ]
        common.print_json({"points": points})
        return
    common.tell(f"{jobs[0].loaded.experiment.name}: {len(jobs)} points")
    for said in sources(jobs):
        common.tell(f"  data: {said}")
    for number, (job, memory) in enumerate(zip(jobs, fits, strict=True), start=1):
        chosen = job.plan.strategy
        name = title(chosen.kind, chosen.options)
        values = ", ".join(f"{k}={written(v)}" for k, v in job.settings.items() if v is not None)
        said = f": {memory.phrase}" if memory is not None and memory.problem else ""
        common.tell(f"  {number}  {name}{', ' if values else ''}{values}{said}")


def show_validation(jobs: Sequence[Job], wanted: Validation, json: bool) -> None:
    """The configurations of a validation, how often they are measured, and the gates."""
    from recsim_train.session.prepare import sources
    from recsim_train.validation.configurations import key_of, label_of

    many, tier = wanted.repeats, wanted.tier
    gates = wanted.gates.model_dump(exclude_unset=True)
    if json:
        found = [{"key": key_of(job, tier), "label": label_of(job, tier)} for job in jobs]
        common.print_json({"configurations": found, "repeats": many, "gates": gates})
        return
    name = jobs[0].loaded.experiment.name
    common.tell(f"{name}: {len(jobs)} configurations, {many} runs of each, {many * len(jobs)} runs")
    for said in sources(jobs):
        common.tell(f"  data: {said}")
    for number, job in enumerate(jobs, start=1):
        common.tell(f"  {number}  {label_of(job, tier)}")
    common.tell(f"  gates: {', '.join(f'{key} {bar:g}' for key, bar in gates.items()) or 'none'}")


def show_sweep(record: SweepRecord, json: bool, caveats: Sequence[str] = ()) -> None:
    """A finished sweep: all points, or the best ones. Exit code 1 if one failed. ``caveats``: of
    all its points, beside those in their rows."""
    from recsim_train.report.terminal import show
    from recsim_train.results.row import FAILED
    from recsim_train.sweep.findings import SweepFindings
    from recsim_train.sweep.page import swept

    if json:
        sweep = {
            "name": record.header["name"],
            "sweep_dir": record.path.as_posix(),
            "axes": record.header["axes"],
        }
        common.print_json(
            {
                "sweep": sweep,
                "caveats": list(caveats),
                "points": [row.document for row in record.rows],
            }
        )
    else:
        show(swept(SweepFindings(record)))
    failed = [row for row in record.rows if row.status == FAILED]
    if failed:
        common.say(f"{len(failed)} of {len(record.rows)} points failed: {failed[0].message}")
        raise typer.Exit(common.FAILED)


def show_runs(runs: Iterable[Run], json: bool, examples: float | None = None) -> None:
    """Finished runs. ``examples``: of a whole training, whose time is asked. Exit code 1 if a model
    diverged."""
    from recsim_train.trace.facts import beyond_said

    records = [run.record for run in runs]
    for record in records:
        malformed = record.facts.malformed
        replaced = [f"malformed rows were replaced: {malformed}"] if malformed else []
        for said in [*replaced, *beyond_said(record.facts.ids_beyond)]:
            common.say(f"note: {record.run_id}: {said}")
    if json:
        common.print_json(_document(records, examples))
    else:
        from recsim_train.report.runs import finished
        from recsim_train.report.terminal import show

        show(finished(records, examples))
    failed = [(r.run_id, r.facts.diverged) for r in records if r.facts.diverged is not None]
    for name, found in failed:
        common.say(f"failed: {name} {found.phrase}: {found.why}; it has no held-out figures")
    if failed:
        raise typer.Exit(common.FAILED)


def _document(records: Sequence[RunRecord], examples: float | None) -> dict[str, Any]:
    from dataclasses import asdict

    from recsim_train.report.cost import whole_training
    from recsim_train.report.naming import bottleneck
    from recsim_train.results.rundir import run_document
    from recsim_train.session.making import caveats_here

    documents = []
    for record in records:
        said = {"caveats": caveats_here(record)} if record.world == "simulated" else {}
        document = run_document(record) | {"bottleneck": bottleneck(record.summary.binding)} | said
        if examples is not None:
            whole = whole_training(record.summary, examples)
            document["whole_training"] = None if whole is None else asdict(whole)
        documents.append(document)
    return {"runs": documents}
