"""``recsim-train data``: make Criteo-format input, examine a stream's ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command(
    "generate",
    short_help="Write Criteo text with the generator.",
    epilog=common.examples("data generate experiments/quickstart.yaml --out data/mine.tsv.gz"),
)
@common.guarded
def generate(
    experiment: common.ExperimentArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Default: data.path.", parser=common.path_of
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Default: data.synthetic.rows.")
    ] = None,
    set_: common.SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write Criteo text (.gz compresses) with the generator that the experiment describes."""
    from recsim_train import calls
    from recsim_train.config.errors import UserError
    from recsim_train.session import prepare

    spec = calls.load(experiment, overrides=set_ or ()).experiment
    settings = spec.data
    target = out or (Path(settings.path[0]) if settings.path else None)
    if target is None:
        raise UserError("the experiment names no data.path: say where to write with --out FILE")
    if target.exists() and not force:
        raise UserError(f"{target} exists already; --force overwrites it")
    prepare.generate(spec, target, rows or settings.synthetic.rows, common.caller())


@app.command(
    "profile",
    short_help="Id statistics of an experiment's input.",
    epilog=common.examples("data profile experiments/quickstart.yaml --batches 20"),
)
@common.guarded
def profile(
    experiment: common.ExperimentArgument,
    batches: Annotated[int, typer.Option("--batches", min=1, help="Batches to read.")] = 50,
    set_: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Id statistics of an experiment's input: unique ids per batch, skew, reuse, cache hits.

    For the strategy scalefreectr let training.batch_size be the batch of all trainers together.
    """
    from recsim_train import calls
    from recsim_train.data.profile import profile_stream
    from recsim_train.session.prepare import ensure_data

    study = calls.load(experiment, overrides=set_ or ())
    ensure_data(study.points[0], common.caller())
    spec = study.experiment
    statistics = profile_stream(spec.model, spec.data, spec.training.batch_size, batches, spec.seed)
    if json:
        common.print_json(statistics)
        return
    for key, value in statistics.items():
        if not isinstance(value, list | dict):
            common.tell(f"{key}: {value}")
    _show_cache(statistics["cache"], spec.roles.trainers)
    for row in statistics["tables"]:
        common.tell("  " + ", ".join(f"{key} {value}" for key, value in row.items()))


def _show_cache(cache: dict[str, Any], trainers: int) -> None:
    if not cache["sizes"]:
        return
    common.tell("rows that a cache would have (of a batch's distinct ones, after warming up):")
    for size in cache["sizes"]:
        rate = size["hit_rate"]
        said = "too small for two batches" if rate is None else f"{100 * rate:.1f} %"
        common.tell(f"  cache_rows {size['cache_rows']:,}: {said}")
    common.tell(
        f"  two batches in a row need up to {cache['two_steps']:,} rows. To use a size: --set "
        "'strategy={kind: scalefreectr, cache_rows: N}', N being the size over the number of "
        f"trainers ({trainers} here) and a little more."
    )
