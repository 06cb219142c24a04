"""``recsim-train run``: measure."""

from __future__ import annotations

import os
from pathlib import Path

from recsim_train.cli import common, shown


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
    """Train for real: every role a process, with torch.distributed.

    Started by torchrun (one rank per role instance), it runs as that rank. Of a sweep all points
    are measured, one after the other, each with a run directory.
    """
    from recsim_train.executor import forkserver

    if not dry_run and "RANK" not in os.environ:  # which torchrun sets
        forkserver.ready()  # it imports torch while this process imports everything else
    from recsim_train import calls
    from recsim_train.session.prepare import ensure_data

    caller = common.caller()
    study = calls.load(experiment, cluster, set_ or (), seed)
    if dry_run:
        jobs = study.jobs("real", dry=True, caller=caller)
        for loaded in study.points:
            ensure_data(loaded, caller, make=False)
        shown.show_plans(jobs, json)
    elif runs := calls.measure(study, out=out, resume=resume, caller=caller):
        shown.show_runs(runs, json)
