"""``recsim-train runs``: a folder's runs, and how two of them differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command(
    "list",
    short_help="When, what, how fast, complete or not.",
    epilog=common.examples("runs list", "runs list runs/quickstart --json"),
)
@common.guarded
def list_(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="And all in it.", parser=common.path_of),
    ] = Path("runs"),
    json: common.JsonOption = False,
) -> None:
    """List all runs in a folder and in folders within it, newest first."""
    from recsim_train.config.errors import UserError
    from recsim_train.report import listing
    from recsim_train.report.terminal import show
    from recsim_train.results.rundir import MANIFEST, read_run

    found = []
    for manifest in sorted(folder.rglob(MANIFEST)):
        if any(part.startswith(".") for part in manifest.relative_to(folder).parts):
            continue  # is being written
        try:
            found.append(read_run(manifest.parent))
        except UserError as error:
            common.say(f"note: left out: {error}")
    if not found:
        raise UserError(f"{folder} holds no run directory")
    ordered = listing.newest_first(found)
    if json:
        common.print_json(listing.documents(ordered))
    else:
        show(listing.listed(ordered, folder))


@app.command(
    "diff",
    short_help="Which settings and figures of two runs differ.",
    epilog=common.examples("runs diff runs/mine-flat_ps-real-1a2b3c runs/mine-flat_ps-real-4d5e6f"),
)
@common.guarded
def diff(
    one: Annotated[Path, typer.Argument(metavar="RUN_DIR", parser=common.path_of)],
    other: Annotated[Path, typer.Argument(metavar="RUN_DIR", parser=common.path_of)],
    json: common.JsonOption = False,
) -> None:
    """Settings, the profile, versions and figures in which two runs differ."""
    from recsim_train.report import listing
    from recsim_train.report.terminal import show
    from recsim_train.results.rundir import read_run

    first, second = read_run(one), read_run(other)
    if json:
        common.print_json(listing.apart(first, second))
    else:
        show(listing.compared(first, second))
