"""``recsim-train calibrate``: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common
from recsim_train.results.folder import writable


def calibrate_to(target: Path) -> None:
    """Measure this machine and write its profile."""
    from recsim_train.calibrate.profile import calibrate_machine
    from recsim_train.config.dump import dump_cluster

    writable(target.parent)
    with common.progress_bar("calibrating") as progress:
        cluster = calibrate_machine(
            name=target.stem, command=common.command_line(), progress=progress
        )
    text = dump_cluster(cluster, "Written by `recsim-train calibrate`; edit a copy, not this file.")
    part = target.with_name(f".{target.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)
    common.say(f"wrote {target}")


def calibrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The profile to write.")
    ] = Path("cluster_profiles/local.yaml"),
) -> None:
    """Measure this machine on micro-workloads and short runs of flat_ps; write a dated profile."""
    calibrate_to(output)
