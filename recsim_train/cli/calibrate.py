"""``recsim-train calibrate``: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common
from recsim_train.config.errors import UserError

_LOCAL = Path("cluster_profiles/local.yaml")
_EMULATED = Path("cluster_profiles/emulated.yaml")


def calibrate(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=f"The profile to write.  [default: {_LOCAL}; with --emulate {_EMULATED}]",
            show_default=False,
            parser=common.path_of,
        ),
    ] = None,
    experiments: Annotated[
        list[Path] | None,
        typer.Option(
            "--for",
            metavar="EXPERIMENT",
            parser=common.path_of,
            help="Also measure every operation of this experiment at its own shapes: half a minute "
            "for each of its strategies, less where there are many. May be given several times.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="PROFILE",
            parser=common.path_of,
            help="With --for: measure only these operations, and add them to this profile.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Measure less of everything, in a fifth of the time at most: predictions have "
            "wider intervals.",
        ),
    ] = False,
    emulate: Annotated[
        str | None,
        typer.Option(
            "--emulate",
            metavar="PROFILE",
            help="Instead: measure what a link between two emulated hosts of this profile carries, "
            "and what its messages take; write a profile that extends it. Half a minute.",
        ),
    ] = None,
) -> None:
    """Measure this machine, in several minutes; write a dated profile.

    By micro-workloads and runs of calibration's own programs, never by an experiment's run.
    """
    from recsim_train import calls

    if into is not None and output is not None:
        raise UserError("--into adds to a profile, --output writes a new one: give one of them")
    if into is not None and not experiments:
        raise UserError("--into adds the operations of experiments: name one with --for")
    calls.calibrate(
        into or output or (_LOCAL if emulate is None else _EMULATED),
        experiments=[str(experiment) for experiment in experiments or ()],
        add=into is not None,
        emulate=emulate,
        quick=quick,
        caller=common.caller(),
    )
