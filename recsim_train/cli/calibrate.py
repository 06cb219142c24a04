"""``recsim-train calibrate``: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common


def calibrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The profile to write.")
    ] = Path("cluster_profiles/local.yaml"),
) -> None:
    """Measure this machine on micro-workloads and short runs of flat_ps; write a dated profile."""
    from recsim_train import session

    session.calibrate(output, caller=common.caller())
