"""The points of a sweep: one folder, one row for each point, kept as they are finished."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recsim_train.config.dump import plain, resolved
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import FINAL
from recsim_train.report.caveats import elsewhere
from recsim_train.results.commands import repeatable
from recsim_train.results.environment import code_of, machine
from recsim_train.results.folder import RUNS, base_path, free_path, writable
from recsim_train.results.keep import Keep
from recsim_train.results.row import DOES_NOT_FIT, FAILED, flat_settings, row_of
from recsim_train.session.caller import Caller
from recsim_train.session.job import Job
from recsim_train.sweep import folder as results


def simulate_all(
    jobs: Sequence[Job], refused: Mapping[int, str], keep: Keep, processes: int, caller: Caller
) -> results.SweepRecord:
    """Simulate all points but those that are ``refused``, whose rows say why.

    What is finished is kept whatever happens; of a new sweep of which nothing is, nothing stays.
    """
    folder = _folder(jobs, keep, caller)
    new = not folder.path.exists()
    try:
        folder.start()
        for number, message in refused.items():
            if number not in folder.rows:
                job = jobs[number]
                row = row_of(job.plan, job.profile, None, DOES_NOT_FIT, message)
                folder.add(number, row)
        todo = [number for number in range(len(jobs)) if number not in folder.rows]
        if len(todo) < len(jobs) - len(refused):
            caller.say(f"{len(jobs) - len(todo)} of {len(jobs)} points are there already")
        title = f"simulating {len(todo)} point{'' if len(todo) == 1 else 's'}"
        with (
            caller.progress(title) as progress,
            contextlib.closing(
                evaluate(
                    [jobs[number].case for number in todo],
                    FINAL,
                    processes=processes,
                    keep=_kept(jobs, keep, folder.path),
                    meter=progress,
                )
            ) as finished,
        ):
            for done, (place, row) in enumerate(finished, start=1):
                folder.add(todo[place], row)
                progress(done, len(todo))
    except BaseException as error:
        if not folder.rows:
            if new:
                folder.abandon()
            raise
        record = folder.finish()
        if isinstance(error, KeyboardInterrupt):
            caller.say(f"{len(record.rows)} of {len(jobs)} points are kept in {record.path}")
        raise
    return folder.finish()


def caveats_of(jobs: Sequence[Job]) -> list[str]:
    """Where the profiles are of another machine or torch than there are."""
    here = machine()
    found: dict[str, None] = {}
    for job in jobs:
        if job.cluster is None or (known := job.cluster.calibration) is None:
            continue
        told = {"machine": known.machine, "versions": known.versions}
        asked = {"name": job.cluster.name, "calibration": told}
        found |= dict.fromkeys(elsewhere(asked, here))
    return list(found)


def _folder(jobs: Sequence[Job], keep: Keep, caller: Caller) -> results.SweepFolder:
    """A new sweep's folder, which is yet to be made, or one that is gone on with."""
    axes: dict[str, list[Any]] = {}
    for job in jobs:
        for key, value in job.settings.items():
            if value is not None and value not in axes.setdefault(key, []):
                axes[key].append(value)
    first = jobs[0].loaded
    cluster = {} if jobs[0].cluster is None else plain(jobs[0].cluster, digits=None)
    settings = flat_settings({**resolved(first.experiment), "cluster": cluster})
    header = results.header_of(
        first.experiment.name,
        first.path.as_posix(),
        axes,
        [
            {
                "values": job.settings,
                "strategy": job.plan.strategy.kind,
                "options": job.plan.strategy.options,
                "identity": job.identity,
            }
            for job in jobs
        ],
        {key: value for key, value in settings.items() if key not in axes},
        code_of(job.plan.strategy for job in jobs),
        repeatable(keep.command),
    )
    base = base_path(keep.out, first.experiment.name, "sweep")
    started = results.find_started(base, header, caller.say) if keep.resume else None
    folder = results.SweepFolder(started.path if started else free_path(base), header)
    if started is not None:
        folder.rows = {row["point"]: row for row in started.rows if row["status"] != FAILED}
    return folder


def _kept(jobs: Sequence[Job], keep: Keep, path: Path) -> Keep | None:
    """Where points leave run directories, where they do."""
    sweep = jobs[0].loaded.sweep
    if sweep is None or not sweep.keep_runs:
        return None
    kept = Keep(path / RUNS, command=keep.command)
    writable(kept.out)
    return kept
