"""``recsim-train export``: the model that a run has trained, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common


def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR",
            help="A measured run's directory, its folder of checkpoints, or one checkpoint.",
            parser=common.path_of,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FOLDER", help="A new one.", parser=common.path_of),
    ],
) -> None:
    """Write the model that a run has trained: tables and parameters by name (model.safetensors),
    and which column is which (columns.json).

    It is that of the run's last whole checkpoint (checkpoint.every).
    """
    from recsim_train.executor.checkpoint.export import export as write

    made = write(run, out)
    common.say(
        f"{out}: the model after {made.examples:,} examples, {len(made.tables)} tables and "
        f"{len(made.parameters)} parameters of the net"
    )
