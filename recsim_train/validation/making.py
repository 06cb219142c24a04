"""Validation: every configuration predicted first, then measured again and again, then judged."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from recsim_train import __version__
from recsim_train.config.dump import resolved
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Experiment, Tier, Validation
from recsim_train.config.validate import plain
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import FINAL
from recsim_train.executor.emulation.layout import as_emulated
from recsim_train.results.environment import code_of, machine, repeatable
from recsim_train.results.folder import PREDICTIONS, RUNS, base_path, hash_of, writable
from recsim_train.results.row import COMPLETE, FAILED, Row, cpu_by_line
from recsim_train.results.rundir import Keep, RunRecord
from recsim_train.session import prepare
from recsim_train.session.job import NOBODY, Caller, Job
from recsim_train.session.making import RunMaker
from recsim_train.session.study import Study
from recsim_train.validation import folder as results
from recsim_train.validation.configurations import (
    changes,
    emulated_figures,
    key_of,
    label_of,
    predicted,
    speeds_at_calibration,
)
from recsim_train.validation.page import Validated, write

_KEPT = (
    "examples_per_second", "eps_low", "eps_high", "calibration_low", "calibration_high",
    "bound_eps", "binding", "bytes_per_step", "seconds_per_iteration", "embedding_servers",
    "dense_servers", "operation_threads", "run_id", "bounds", "time_by_effect",
    "calibration_errors", "nic_bytes",
)  # fmt: skip
"""Figures of a prediction that the result file keeps as they came."""

_LONGEST = 60.0
"""Seconds that one run waits, at most, for a machine as fast as at its calibration."""


def wanted_of(study: Study, repeats: int | None = None, tier: Tier | None = None) -> Validation:
    """What a study's file asks of its validation, with what is given instead."""
    wanted = study.points[0].validation or Validation()
    given = {"repeats": repeats, "tier": tier}
    return wanted.with_({k: v for k, v in given.items() if v is not None})


def checked(
    study: Study, caller: Caller = NOBODY, *, tier: Tier = "machine", dry: bool = False
) -> list[Job]:
    """The configurations of a validation, as predictions to make. Raises UserError with what is
    wrong: each is a configuration of its own, and all are predicted with one profile unless hosts
    are emulated. ``dry``: nothing is measured or written for it, and data files that are there are
    checked."""
    jobs = study.jobs(dry=dry, caller=caller)
    prepare.check_emulated(jobs, emulate=tier == "emulated")
    if tier == "emulated":
        jobs = [replace(job, cluster=as_emulated(job.plan, job.profile)) for job in jobs]
    hashes = {None if j.cluster is None else results.profile_hash(j.cluster) for j in jobs}
    if tier == "machine" and len(hashes) > 1:
        raise UserError(f"{study.path}: a validation has one cluster profile for all of its points")
    keys = [key_of(job, tier) for job in jobs]
    same = [key for key, count in Counter(keys).items() if count > 1]
    if same:
        labels = [label_of(j) for j, key in zip(jobs, keys, strict=True) if key == same[0]]
        raise UserError(
            f"{study.path}: {len(labels)} points are the same configuration but for what a "
            f"measurement does not see, such as the seed or the simulation's settings: {labels[0]}"
        )
    prepare.check_this_machine(job.plan for job in jobs)
    if all(job.cluster is not None for job in jobs):
        prepare.too_large(jobs, some_may=False, caller=caller)
    for loaded in (job.loaded for job in jobs if dry):
        prepare.ensure_data(loaded, caller, make=False)
    return jobs


def validate(
    study: Study,
    *,
    out: str | Path,
    repeats: int | None = None,
    tier: Tier | None = None,
    resume: bool = False,
    processes: int = 1,
    caller: Caller = NOBODY,
) -> Validated:
    """Predict every point of a study, write that down, then measure all of them and compare.

    ``out``: the folder NAME-validation goes there; ``repeats``: measurements of each, and
    ``tier``: of which kind, instead of the file's; ``resume``: go on with what lies there;
    ``processes``: how many predict. A run that fails is told and left out. Whatever ends it, what
    is finished is kept, with a valid result.
    Raises UserError before anything starts, RunFailed where a prediction cannot be made.
    """
    from recsim_train.executor.process.torchrun import under_torchrun

    if under_torchrun():
        raise UserError("a validation is made on one machine, not under torchrun")
    wanted = wanted_of(study, repeats, tier)
    jobs = checked(study, caller, tier=wanted.tier)
    first, emulate = jobs[0], wanted.tier == "emulated"
    if not emulate and (sentence := prepare.not_real(first.cluster)) is not None:
        caller.say(f"note: {sentence}")
    keep = Keep(Path(out), emulate=emulate, command=caller.command)
    writable(keep.out)
    base = base_path(keep.out, first.loaded.experiment.name, "validation")
    agreed = _agreed(jobs, wanted)
    folder = results.find_started(base, agreed) if resume else None
    refused = prepare.not_carried(jobs, some_may=True, caller=caller) if emulate else {}
    real = [replace(job, world="real") for job in jobs]
    prepare.ensure_all_data(real, caller)
    if folder is None:
        content = _predictions(jobs, wanted, agreed, processes, keep, caller)
        folder = results.ValidationFolder.start(base, content)
        caller.say(f"{len(jobs)} predictions are written to {folder.path / PREDICTIONS}")
    try:
        _measure_all(real, refused, folder, wanted, keep, caller)
    except BaseException as error:
        write(folder, wanted)
        if isinstance(error, KeyboardInterrupt):
            caller.say(f"{len(folder.measured())} finished runs are kept in {folder.path}")
        raise
    return write(folder, wanted)


def _agreed(jobs: Sequence[Job], wanted: Validation) -> dict[str, str]:
    """What must not change between predictions and runs, as hashes."""
    profiles = list(dict.fromkeys(results.profile_hash(job.profile) for job in jobs))
    return {
        "configurations": hash_of([key_of(job, wanted.tier) for job in jobs]),
        "profile": profiles[0] if len(profiles) == 1 else hash_of(profiles),
        "gates": hash_of(wanted.gates.model_dump(mode="json")),
        "seed": str(wanted.seed),
        "code": code_of(job.plan.strategy for job in jobs),
    }


def _predictions(
    jobs: Sequence[Job],
    wanted: Validation,
    agreed: Mapping[str, str],
    processes: int,
    keep: Keep,
    caller: Caller,
) -> dict[str, Any]:
    cases = [job.case for job in jobs]
    rows: dict[int, Row] = {}
    with caller.progress(f"predicting {len(jobs)} configurations") as progress:
        for number, row in evaluate(cases, FINAL, processes=processes, meter=progress):
            if row.status != COMPLETE or not row.examples_per_second:
                raise RunFailed(f"{label_of(jobs[number])} was not predicted: {row.message}")
            rows[number] = row
            progress(len(rows), len(jobs))
    cluster, loaded = jobs[0].profile, jobs[0].loaded
    speeds = speeds_at_calibration(cluster)
    figures = [rows[number] for number in range(len(jobs))]
    entries = [predicted(job, row, wanted.tier) for job, row in zip(jobs, figures, strict=True)]
    predictions = zip(jobs, figures, entries, strict=True)
    return {
        "name": loaded.experiment.name,
        "file": loaded.path.as_posix(),
        "command": repeatable(keep.command),
        "environment": machine(),
        "validation": plain(wanted, digits=None),
        "agreed": agreed,
        "order": [results.order(len(jobs), wanted.seed, r + 1) for r in range(wanted.repeats)],
        "speeds_at_calibration": speeds and speeds.model_dump(),
        "profile": plain(cluster, digits=None),
        "predictions": [
            {
                **asdict(entry),
                "options": job.plan.strategy.options,
                "figures": {name: getattr(row, name) for name in _KEPT},
                "experiment": resolved(job.loaded.experiment),
                **({"cluster": changes(job.profile, cluster)} if wanted.tier == "emulated" else {}),
            }
            for job, row, entry in predictions
        ],
    }


def _measure_all(
    jobs: Sequence[Job],
    refused: Mapping[int, str],
    folder: results.ValidationFolder,
    wanted: Validation,
    keep: Keep,
    caller: Caller,
) -> None:
    """Every run that is not there yet; each repeat goes through all configurations, shuffled.
    ``refused``: why some cannot be run here, by number."""
    from recsim_train.executor.process import forkserver

    todo = [
        (repeat, number)
        for repeat in range(1, wanted.repeats + 1)
        for number in results.order(len(jobs), wanted.seed, repeat)
        if not folder.done(repeat, number)
    ]
    every = wanted.repeats * len(jobs)
    if len(todo) < every:
        caller.say(f"{every - len(todo)} of {every} runs are there already")
    if todo:
        forkserver.ready()  # it imports torch meanwhile
    sweep = jobs[0].loaded.sweep
    kept = folder.path / RUNS if sweep is not None and sweep.keep_runs else None
    predictions = folder.predicted()
    code = code_of(job.plan.strategy for job in jobs)
    at = folder.at_calibration and folder.at_calibration.idle
    patience = wanted.patience - sum(run.get("waited", 0.0) for run in folder.runs.values())
    for place, (repeat, number) in enumerate(todo, start=every - len(todo) + 1):
        entry, said = predictions[number], f"run {place} of {every}: {predictions[number].label}"
        run: dict[str, Any] = {
            "repeat": repeat,
            "number": number,
            "key": entry.key,
            "label": entry.label,
            "version": __version__,
            "revision": code,
        }
        if at and patience > 0.0 and number not in refused:
            run["waited"] = _waited(at, min(_LONGEST, patience), caller)
            patience -= run["waited"]
        run["started"] = results.now()
        try:
            if number in refused:
                raise RunFailed(refused[number])
            figures = _measured(jobs[number], kept, keep)
            figures |= _counting(figures, folder.predictions["predictions"][number])
        except RunFailed as error:
            figures = {"status": FAILED, "message": str(error)}
            caller.say(f"{said}: failed: {error}")
        else:
            eps = figures["examples_per_second"]
            off = entry.examples_per_second / eps - 1
            unsound = "" if figures["status"] == COMPLETE else f"; {figures['status']}"
            unsound += "".join(f"; does not count: {why}" for why in figures.get("broken", ()))
            caller.say(
                f"{said}: {entry.examples_per_second:,.0f} examples/s predicted, {eps:,.0f} "
                f"measured ({off:+.1%}){unsound}"
            )
        folder.add({**run, "ended": results.now(), **figures})


def _waited(at: float, limit: float, caller: Caller) -> float:
    """Seconds for which a run has waited for a machine as fast as ``at`` its calibration."""
    from recsim_train.calibration.speed import until_as_fast

    said = f"waiting {limit:.0f} s at most for a machine as fast as at its calibration"
    try:
        return until_as_fast(at, limit, lambda: caller.say(said))
    except RunFailed as error:
        caller.say(f"note: how fast the machine is before the run is not known: {error}")
        return 0.0


def _measured(job: Job, kept: Path | None, keep: Keep) -> dict[str, Any]:
    """The figures of one run. Raises RunFailed."""
    prefix = "recsim-train-validation-"
    with tempfile.TemporaryDirectory(prefix=prefix) if kept is None else nullcontext(kept) as out:
        writable(Path(out))
        record = RunMaker(replace(keep, out=Path(out)), NOBODY).record(job)
        assert record is not None  # torchrun is refused
        own = {"run_id": None if kept is None else record.run_id}
        return _figures(record, job.plan.experiment) | own


def _counting(figures: dict[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run on emulated hosts: what was predicted of its bytes, beside what was counted."""
    predicted = entry["figures"]
    if figures.get("frame_bytes") is None:
        return {}
    return {
        "payload": {"predicted": predicted["bytes_per_step"], "counted": figures["payload"]},
        "frames": {
            "predicted": predicted["nic_bytes"],
            "counted": figures["frame_bytes"],
        },
    }


def _figures(record: RunRecord, experiment: Experiment) -> dict[str, Any]:
    summary = record.summary
    if not summary.examples_per_second:
        raise RunFailed("it counted no iteration, so it has no throughput")
    speeds = summary.facts.machine_speed
    use = summary.facts.ledger.machine if summary.facts.ledger is not None else None
    figures = {
        "status": record.status,
        "message": None if record.status == COMPLETE else str(record.manifest["message"]),
        "examples_per_second": summary.examples_per_second,
        "interval": summary.ci95,
        "seconds": summary.seconds,
        "speeds": None if speeds is None else speeds.model_dump(),
        "others_cores": None if use is None else use.others + use.steal,
        "cpu": cpu_by_line(summary),
        "auc": summary.auc,
        "normalized_entropy": summary.normalized_entropy,
    }
    if summary.facts.emulated is not None:
        figures |= emulated_figures(summary, experiment)
    return figures
