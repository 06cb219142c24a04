"""``recsim-train run``: measure."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from recsim_train.cli import common
from recsim_train.results.folder import writable

if TYPE_CHECKING:
    from recsim_train.config.cluster import Cluster
    from recsim_train.config.load import Loaded
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

    Started by torchrun (one rank per role instance), it runs as that rank. Of a sweep all points
    are measured, one after the other, each with a run directory.
    """
    points = common.load_points(experiment, set_, seed)
    if points[0].claim is None and points[0].sweep is not None:
        common.say(f"a sweep: {len(points)} points are measured one after the other")
    planned = [(loaded, plan) for loaded in points for plan in common.plans(loaded)]
    plans = [plan for _, plan in planned]
    if dry_run:
        for loaded in points:
            common.ensure_data(loaded, only_if=False)
        common.show_plans(plans, json)
        return
    from recsim_train.executor.torchrun import under_torchrun
    from recsim_train.results.rundir import find_complete, identity

    profiles = {id(loaded): _profile(loaded, cluster) for loaded in points}
    for sentence in dict.fromkeys(filter(None, map(_not_real, profiles.values()))):
        common.say(f"note: {sentence}")
    if under_torchrun():
        _one_size(plans)
        _as_rank([(plan, profiles[id(loaded)]) for loaded, plan in planned], out, json)
        return
    for plan in plans:
        common.check_local_memory(plan)
    for loaded in points:
        common.ensure_data(loaded)
    records = []
    seen = set()
    for loaded, plan in planned:
        profile = profiles[id(loaded)]
        if (key := identity(plan, "real", profile)) in seen:
            continue  # a point that changes an option which this strategy does not have
        seen.add(key)
        record = find_complete(out, plan, "real", profile) if resume else None
        if record is None and len(points) > 1:
            common.say(f"{plan.strategy.kind}, {loaded.point}")
        records.append(record or _launch(plan, profile, out))
    common.show_records(records, json)


def _profile(loaded: Loaded, name: str | None) -> Cluster | None:
    """A measurement does not need a profile; when there is one, the run remembers it."""
    from recsim_train.config.load import find_cluster, load_cluster

    wanted = name or loaded.experiment.cluster
    known = name is not None or find_cluster(wanted, loaded.path) is not None
    return load_cluster(wanted, loaded.path, loaded.profile_sets) if known else None


def _not_real(profile: Cluster | None) -> str | None:
    """A sentence where a profile describes what a measurement does not have."""
    if profile is None:
        return None
    described = {
        "racks": profile.topology,
        "hosts that differ": profile.mixed,
        "stragglers": profile.stragglers,
        "traffic of others": profile.background,
        "failures": profile.failures,
    }
    if not (given := [name for name, value in described.items() if value]):
        return None
    return (
        f"cluster profile {profile.name} describes {', '.join(given)}; only `simulate` takes "
        "that into account: this measures the machines as they are"
    )


def _one_size(plans: list[Plan]) -> None:
    """Raise UserError where the plans need different numbers of torchrun's ranks."""
    from recsim_train.config.errors import UserError

    if len(sizes := sorted({len(plan.instances) for plan in plans})) > 1:
        raise UserError(
            f"the strategies or points need different numbers of processes ({sizes[0]} to "
            f"{sizes[-1]}): under torchrun, start each of them by itself with --set"
        )


def _launch(plan: Plan, profile: Cluster | None, out: Path) -> RunRecord:
    from recsim_train.executor.launch import Interrupted, PartialRun, execute

    writable(out)
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
        raise
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


def _as_rank(planned: list[tuple[Plan, Cluster | None]], out: Path, json: bool) -> None:
    from recsim_train.executor.torchrun import execute_rank

    records = []
    for plan, profile in planned:
        outcome = execute_rank(plan)
        if outcome is not None:
            writable(out)
            records.append(_keep(plan, profile, out, outcome))
    if records:
        common.show_records(records, json)
