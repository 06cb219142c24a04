"""``recsim-train run``: measure."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from recsim_train.cli import common

if TYPE_CHECKING:
    from recsim_train.config.cluster import Cluster
    from recsim_train.placement.plan import Plan
    from recsim_train.results.rundir import RunRecord, Status
    from recsim_train.trace.record import Outcome


def run(
    experiment: common.ExperimentArgument,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    seed: common.SeedOption = None,
    out: common.OutOption = Path("runs"),
    json: common.JsonOption = False,
    dry_run: common.DryRunOption = False,
    resume: common.ResumeOption = False,
) -> None:
    """Train for real: every role a process, torch.distributed over gloo.

    Started by torchrun (one rank per role instance), it runs as that rank.
    """
    loaded = common.load(experiment, set_, seed)
    plans = common.plans(loaded)
    if dry_run:
        common.show_plans(plans, json)
        return
    from recsim_train.config.load import find_cluster, load_cluster
    from recsim_train.executor.torchrun import under_torchrun
    from recsim_train.results.rundir import find_complete

    name = cluster or loaded.experiment.cluster
    # A measurement does not need a profile; when there is one, the run remembers it.
    known = cluster is not None or find_cluster(name, loaded.path) is not None
    profile = load_cluster(name, loaded.path, loaded.profile_sets) if known else None
    if under_torchrun():
        _as_rank(plans, profile, out, json)
        return
    for plan in plans:
        common.check_local_memory(plan)
    common.ensure_data(loaded)
    records = []
    for plan in plans:
        record = find_complete(out, plan, "real", profile) if resume else None
        records.append(record or _launch(plan, profile, out))
    common.show_records(records, json)


def _launch(plan: Plan, profile: Cluster | None, out: Path) -> RunRecord:
    from recsim_train.executor.launch import Interrupted, PartialRun, execute

    common.writable(out)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="recsim-train-") as staging,
            common.progress_bar(f"running {plan.strategy.kind}") as progress,
        ):
            outcome = execute(plan, staging=Path(staging), progress=progress)
    except (PartialRun, Interrupted) as error:
        interrupted = isinstance(error, Interrupted)
        if error.outcome is not None and error.outcome.steps > 0:
            status: Status = "interrupted" if interrupted else "partial"
            record = _keep(plan, profile, out, error.outcome, status, str(error))
            common.say(f"what was measured until then is kept in {record.path}")
        if not interrupted:
            raise
        common.say(f"interrupted; to go on: {' '.join(common.resume_command())}")
        raise typer.Exit(common.INTERRUPTED) from None
    return _keep(plan, profile, out, outcome)


def _keep(
    plan: Plan,
    profile: Cluster | None,
    out: Path,
    outcome: Outcome,
    status: Status = "complete",
    message: str = "",
) -> RunRecord:
    """Write a measurement; where ``out`` does not take it, somewhere else, because it was dear."""
    from recsim_train.config.errors import RunFailed
    from recsim_train.results.rundir import write_run

    def write(folder: Path) -> RunRecord:
        return write_run(
            folder,
            plan=plan,
            world="real",
            outcome=outcome,
            cluster=profile,
            environment=common.real_environment(),
            command=common.command_line(),
            status=status,
            message=message,
        )

    try:
        return write(out)
    except RunFailed as error:
        saved = write(Path(tempfile.mkdtemp(prefix="recsim-train-kept-")))
        raise RunFailed(f"{error}; the measurement is kept in {saved.path}") from None


def _as_rank(plans: list[Plan], profile: Cluster | None, out: Path, json: bool) -> None:
    from recsim_train.executor.torchrun import execute_rank

    records = []
    for plan in plans:
        outcome = execute_rank(plan)
        if outcome is not None:
            common.writable(out)
            records.append(_keep(plan, profile, out, outcome))
    if records:
        common.show_records(records, json)
