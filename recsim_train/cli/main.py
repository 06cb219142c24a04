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
    export,
    init,
    launch,
    model,
    recommend,
    report,
    runs,
    show,
    simulate,
    validate,
)
from recsim_train.cli.common import examples, guarded

app = typer.Typer(
    name="recsim-train",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command(
    "init",
    short_help="Write a first experiment and a first cluster profile.",
    epilog=examples("init mine"),
)(guarded(init.init))
app.command(
    "simulate",
    short_help="Predict the throughput of an experiment's strategies.",
    epilog=examples(
        "simulate experiments/quickstart.yaml --cluster reference-2core",
        "simulate experiments/quickstart.yaml --set 'roles.trainers=[1, 2, 4]'",
        "simulate runs/quickstart-recommendation/1-flat_ps",
    ),
)(guarded(simulate.simulate))
app.command(
    "run",
    epilog=examples(
        "run experiments/quickstart.yaml --set strategy=allreduce",
        "run mine.yaml --cluster mine --emulate --compute modelled",
    ),
)(guarded(simulate.run))
app.command(
    "recommend",
    epilog=examples(
        "recommend experiments/quickstart.yaml --cluster example-racks --hosts 12",
        "recommend mine.yaml --cluster mine --target '250k examples/s' --by cost",
    ),
)(guarded(recommend.recommend))
app.command(
    "report",
    short_help="Pair predictions with measurements, and say why they differ.",
    epilog=examples("report runs", "report runs/quickstart-sweep --out report"),
)(guarded(report.report))
app.command(
    "validate",
    short_help="Predict all points of a sweep, measure them, and compare.",
    epilog=examples(
        "validate experiments/fidelity.yaml --repeats 1",
        "validate experiments/fidelity-clusters.yaml --resume",
    ),
)(guarded(validate.validate))
app.command(
    "calibrate",
    short_help="Measure this machine; write a dated cluster profile.",
    epilog=examples("calibrate", "calibrate --for experiments/fidelity.yaml"),
)(guarded(calibrate.calibrate))
app.command(
    "export",
    short_help="Write the model that a run has trained.",
    epilog=examples("export runs/mine-allreduce-real-1a2b3c -o model"),
)(guarded(export.export))
app.command(
    "launch",
    short_help="Write start files for Slurm, Kubernetes, SkyPilot or ssh.",
    epilog=examples(
        "launch slurm mine.yaml --cluster mine -o job",
        "launch kubernetes mine.yaml --set strategy=allreduce -o job",
    ),
)(guarded(launch.launch))
app.add_typer(cluster.app, name="cluster", help="Describe hosts of your own.")
app.add_typer(data.app, name="data", help="Make and examine input data.")
app.add_typer(model.app, name="model", help="Describe the net, also one of your own.")
app.add_typer(runs.app, name="runs", help="List runs, and see how two differ.")
app.add_typer(show.app, name="show", help="Strategies, presets, settings, JSON Schemas.")


def main() -> None:
    """Do what the command line says; ends in SystemExit. Signals: `recsim_train.__main__`."""
    # the system takes back all memory at once: Python need not look for cycles in it before
    atexit.register(gc.freeze)
    sys.exit(app(standalone_mode=True))
