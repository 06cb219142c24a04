"""``recsim-train simulate``: predict; ``recsim-train run``: measure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recsim_train.cli import common, shown
from recsim_train.config.errors import RunFailed, UserError

if TYPE_CHECKING:
    from recsim_train.session.study import Study


def simulate(
    experiment: common.ExperimentArgument,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    seed: common.SeedOption = None,
    out: common.OutOption = Path("runs"),
    json: common.JsonOption = False,
    dry_run: common.DryRunOption = False,
    resume: common.ResumeOption = False,
    jobs: common.JobsOption = None,
    examples: Annotated[
        float | None,
        typer.Option(
            "--examples",
            metavar="COUNT",
            help="Also say how long training on so many takes, such as 5G, and what it costs "
            "where the profile has prices of hosts (rent).",
            parser=common.count,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            "--epochs",
            metavar="NUMBER",
            help="As --examples, of so many times data.rows.",
            parser=common.above_zero,
        ),
    ] = None,
) -> None:
    """Predict the throughput of an experiment's strategies on a cluster profile.

    A folder: every experiment in it. A sweep (in the file, or a list of values given to --set): one
    row for each point.
    """
    from recsim_train import calls
    from recsim_train.results.environment import cores

    words: dict[str, Any] = {"cluster": cluster, "overrides": set_ or (), "seed": seed}
    keep: dict[str, Any] = {"out": out, "resume": resume, "caller": common.caller()}
    if examples is not None and epochs is not None:
        raise UserError("--examples and --epochs both say how much is trained: give one of them")
    if experiment.is_dir():
        if epochs is not None:
            raise UserError("--epochs: is for one experiment, and this is a folder")
        _files(_inside(experiment), words, keep, json=json, dry_run=dry_run, examples=examples)
        return
    study = calls.load(experiment, **words)
    if study.swept and (given := "--examples" if examples else "--epochs" if epochs else ""):
        raise UserError(f"{given}: is for one experiment, and this is a sweep")
    if epochs is not None:
        examples = _of_epochs(study, epochs)
    if dry_run:
        _dry_run(study, json)
    else:
        runs = calls.predict(study, processes=jobs or cores(), **keep)
        if runs.sweep is not None:
            shown.show_sweep(runs.sweep, json, runs.caveats)
        else:
            shown.show_runs(runs, json, examples)


def _of_epochs(study: Study, epochs: float) -> float:
    """Examples of so many. Raises UserError where the experiment does not say how many one has."""
    if (rows := study.points[0].experiment.data.rows) is None:
        raise UserError(
            f"{study.path}: --epochs: how many examples one has is not known: give data.rows, or "
            "--examples in its place"
        )
    return rows * epochs


def _dry_run(study: Study, json: bool) -> None:
    """Check everything, and show what would be simulated."""
    from recsim_train.session.prepare import ensure_data

    caller = common.caller()
    jobs = study.jobs(dry=True, what_if=True, caller=caller)
    if study.swept:
        shown.show_points(jobs, json)
        return
    ensure_data(study.points[0], caller, make=False)
    shown.show_plans(jobs, json)


def _inside(folder: Path) -> list[Path]:
    """The experiments of a folder, sorted. Raises UserError if there are none."""
    files = sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file())
    if not files:
        raise UserError(f"{folder}: no experiment (*.yaml) in this folder")
    return files


def _files(
    paths: Sequence[Path],
    words: dict[str, Any],
    keep: dict[str, Any],
    *,
    json: bool,
    dry_run: bool,
    examples: float | None,
) -> None:
    """Simulate every file; one that fails is named and the others go on. Exit code 1 then."""
    from recsim_train import calls

    runs: list[calls.Run] = []
    failed: list[Path] = []
    for number, path in enumerate(paths, start=1):
        common.say(f"{path} ({number} of {len(paths)})")
        try:
            study = calls.load(path, **words)
            if study.swept:
                common.say("  left out: it is a sweep, which is simulated by itself")
            elif not dry_run:
                runs += calls.predict(study, what_if=False, **keep)
            else:
                shown.show_plans(study.jobs(dry=True, caller=keep["caller"]), False)
        except (UserError, RunFailed) as error:
            common.say(f"error: {error}")
            failed.append(path)
    if json or runs:
        shown.show_runs(runs, json, examples)
    if failed:
        common.say(f"{len(failed)} of {len(paths)} failed: {', '.join(map(str, failed))}")
        raise typer.Exit(common.FAILED)


def run(
    experiment: common.ExperimentArgument,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    seed: common.SeedOption = None,
    out: common.OutOption = Path("runs"),
    json: common.JsonOption = False,
    dry_run: common.DryRunOption = False,
    resume: common.ResumeOption = False,
    emulate: Annotated[
        bool,
        typer.Option(
            "--emulate",
            help="Run each role on an emulated host of the cluster: a network namespace of this "
            "machine, with a link of the rate that the profile says. Needs root, or unshare -Urn.",
        ),
    ] = False,
    compute: Annotated[
        Literal["real", "modelled"] | None,
        typer.Option(
            "--compute",
            help="With --emulate: what operations take, what they take here or what a prediction "
            "says of those hosts.  [default: as execution.compute says]",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--progress-log",
            metavar="FILE.jsonl",
            parser=common.path_of,
            help="Add a line a second to it: iteration, examples/s, training loss.",
        ),
    ] = None,
) -> None:
    """Train for real: every role a process, with torch.distributed.

    Started by torchrun (one rank per role instance), it runs as that rank. Of a sweep all points
    are measured, one after the other, each with a run directory.
    """
    from recsim_train.executor.process import forkserver

    if not dry_run and "RANK" not in os.environ:  # which torchrun sets
        forkserver.ready()  # it imports torch while this process imports everything else
    from recsim_train import calls
    from recsim_train.session.prepare import check_emulated, ensure_data

    if log is not None and "RANK" in os.environ:
        raise UserError(
            "--progress-log is kept of runs whose processes are started here, not of ranks"
        )
    caller = common.caller(log)
    sets = [*(set_ or ()), *([f"execution.compute={compute}"] if compute else ())]
    study = calls.load(experiment, cluster, sets, seed)
    if dry_run:
        jobs = study.jobs("real", dry=True, caller=caller)
        check_emulated(jobs, emulate=emulate)
        for loaded in study.points:
            ensure_data(loaded, caller, make=False)
        shown.show_plans(jobs, json)
        if emulate and not json:
            shown.show_hosts(jobs)
    elif runs := calls.measure(study, out=out, resume=resume, emulate=emulate, caller=caller):
        shown.show_runs(runs, json)
