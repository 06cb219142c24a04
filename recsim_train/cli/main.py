"""The command line, one file per command; heavy libraries are imported inside the commands."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import Annotated

import typer

from recsim_train import __version__
from recsim_train.cli import (
    calibrate,
    cluster,
    data,
    recommend,
    report,
    show,
    simulate,
    validate,
)
from recsim_train.cli.common import guarded

app = typer.Typer(
    name="recsim-train",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="How should I train this recommendation model on this CPU cluster, and how fast will it "
    "go? Predict with `simulate`, measure the same definition with `run`, compare with `report`.",
)


def _version(show_it: bool) -> None:
    if show_it:
        typer.echo(f"recsim-train {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
) -> None:
    pass


app.command("simulate")(guarded(simulate.simulate))
app.command("run")(guarded(simulate.run))
app.command("recommend")(guarded(recommend.recommend))
app.command("report")(guarded(report.report))
app.command("validate")(guarded(validate.validate))
app.command("calibrate")(guarded(calibrate.calibrate))
app.add_typer(cluster.app, name="cluster", help="Describe hosts of your own.")
app.add_typer(data.app, name="data", help="Make and examine input data.")
app.add_typer(show.app, name="show", help="Strategies, presets, settings, JSON Schemas.")


def main() -> None:
    """Do what the command line says; ends in SystemExit. Signals: `recsim_train.__main__`."""
    # the system takes back all memory at once: Python need not look for cycles in it before
    atexit.register(gc.freeze)
    sys.exit(app(standalone_mode=True))
