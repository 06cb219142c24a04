"""``recsim-train validate``: predict a grid, measure it, and hold the errors to gates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from recsim_train.cli import common, shown


def validate(
    experiment: common.ExperimentArgument,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    out: common.OutOption = Path("runs"),
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", metavar="N", min=1, help="Measurements of each configuration."),
    ] = None,
    tier: Annotated[
        Literal["machine", "emulated"] | None,
        typer.Option(
            "--tier",
            help="machine: processes of this machine; emulated: hosts and links of their own, each "
            "point's.  [default: as validation.tier says]",
        ),
    ] = None,
    json: common.JsonOption = False,
    dry_run: common.DryRunOption = False,
    resume: common.ResumeOption = False,
    jobs: common.JobsOption = None,
) -> None:
    """Predict every point of a sweep, write that down, then measure all of them and compare.

    The file's section `validation` says how often each is measured and which gates its errors must
    pass. Exit code 3 if one does not hold. Writes NAME-validation: the predictions, which are
    there before the first run begins, and a result that can be shared.
    """
    from recsim_train import calls
    from recsim_train.results.environment import cores
    from recsim_train.validation import making as validation

    caller = common.caller()
    study = calls.load(experiment, cluster, set_ or ())
    if dry_run:
        wanted = validation.wanted_of(study, repeats, tier)
        found = validation.checked(study, caller, tier=wanted.tier, dry=True)
        shown.show_validation(found, wanted, json)
        return
    made = validation.validate(
        study,
        out=out,
        repeats=repeats,
        tier=tier,
        resume=resume,
        processes=jobs or cores(),
        caller=caller,
    )
    shown.show_report(made, json)
    for gate in made.failed:
        common.say(f"gate failed: {gate.sentence}")
    if made.failed:
        raise typer.Exit(common.GATE_FAILED)
    if diverged := made.folder.diverged:
        common.say(f"failed: {len(diverged)} runs diverged; --resume does not make them again")
    if not made.made:
        common.say("failed: not every run was finished; --resume makes them again")
    if not made.complete:
        raise typer.Exit(common.FAILED)
