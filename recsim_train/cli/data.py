"""``recsim-train data``: describe logs, make input with the generator."""

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
    "describe",
    short_help="What a log's columns hold, and an experiment on it.",
    epilog=common.examples(
        "data describe 'logs/part-*.parquet' --label click -o mine.yaml",
        "data describe experiments/quickstart.yaml --batches 20",
    ),
)
@common.guarded
def describe(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, folders or patterns, as in data.path; or an experiment (.yaml).",
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="NAME",
            help="The column of clicks.  [default: one of 0 and 1 called label, click, clicked, "
            "target or y]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write an experiment that runs as it is.",
            parser=common.path_of,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    batches: Annotated[
        int | None,
        typer.Option("--batches", min=1, help="Of an experiment: batches to read.  [default: 50]"),
    ] = None,
    set_: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """What a log's columns hold, by a sample, and as what a model could read them.

    Numbers with fractions are numeric, and so are whole numbers with 100 distinct values or more,
    unless the name ends in id or code, or half of them are above a million. Numeric ones get log1p
    where the largest is above 10, or with some below 0 above 1,000. All others are categorical:
    whole numbers from 0 on with few gaps by their number, else by hash, with twice as many buckets
    as ids are estimated, from 1,000 to 10,000,000. Where no column would be numeric, the numbers
    with the fewest values are. Text in which | separates is a list, and so are whole numbers
    between blanks, commas or semicolons; the longest are cut at twice what 95 of a hundred have.

    Of an experiment: unique ids per batch, skew and cache hits of its input. For the
    strategy scalefreectr let training.batch_size be the batch of all trainers together.
    """
    from shlex import quote

    from recsim_train.config.errors import UserError
    from recsim_train.data import suggested
    from recsim_train.data.describe import describe as described
    from recsim_train.data.sample import sample_of
    from recsim_train.results.folder import put, writable

    for path in paths:
        common.path_of(path)  # refuses empty text
    if any(path.endswith((".yaml", ".yml")) for path in paths):
        if len(paths) > 1 or label is not None or output is not None:
            raise UserError("an experiment is described alone: without files, --label or -o")
        _profile(Path(paths[0]), batches or 50, set_, json=json)
        return
    if batches is not None or set_:
        raise UserError("--batches and --set are of experiments: name one (.yaml)")
    if output is not None and output.exists() and not force:
        raise UserError(f"{output} exists already; --force overwrites it")
    found = described(paths, sample_of(paths), label)
    if json:
        common.print_json(suggested.document(found))
    else:
        for line in suggested.lines(found):
            common.tell(line)
    if output is None:
        for problem in found.problems:
            common.say(f"note: no experiment can be suggested yet: {problem}")
        return
    text = suggested.experiment(found, output.stem)
    writable(output.parent, output.name)
    put(output, text.encode())
    common.say(f"wrote {output}; try it: recsim-train simulate {quote(str(output))}")


def _profile(experiment: Path, batches: int, sets: list[str] | None, *, json: bool) -> None:
    """Show the statistics of an experiment's input."""
    from recsim_train import calls
    from recsim_train.data.profile import profile_stream
    from recsim_train.session.prepare import ensure_data

    study = calls.load(experiment, overrides=sets or ())
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
