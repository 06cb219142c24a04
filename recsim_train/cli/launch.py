"""``recsim-train launch``: start files for schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common


def launch(
    scheduler: Annotated[
        str, typer.Argument(metavar="SCHEDULER", help="slurm, kubernetes, skypilot or ssh.")
    ],
    experiment: common.ExperimentArgument,
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="FOLDER", help="Made if need be.", parser=common.path_of
        ),
    ],
    minutes: Annotated[
        int, typer.Option("--minutes", min=2, help="That a Slurm job may take.")
    ] = 24 * 60,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
) -> None:
    """Write files that start a run on several machines: one process for each rank of the plan, and
    which is where; a signal before the end, so that a checkpoint is kept; a start that goes on.

    Hosts are those of the cluster profile; a profile of one shared machine has one.
    """
    from recsim_train import calls
    from recsim_train.config.errors import UserError
    from recsim_train.session import launchers

    chosen = next((one for one in launchers.SCHEDULERS if one == scheduler), None)
    if chosen is None:
        raise UserError(f"expected one of {', '.join(launchers.SCHEDULERS)}, got {scheduler!r}")
    study = calls.load(experiment, cluster, set_ or ())
    for path in launchers.write(study, chosen, out, minutes):
        common.say(f"wrote {path}")
    if study.experiment.checkpoint.every is None:
        common.say("note: checkpoint.every is not set: a run that is started again begins anew")
