"""``recsim-train show``: what can be written in an experiment."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("strategies", epilog=common.examples("show strategies"))
@common.guarded
def strategies() -> None:
    """Every strategy, where it comes from, and its options."""
    from recsim_train.strategy import registry
    from recsim_train.strategy.options import rows

    options = registry.schemas()
    for kind, strategy in registry.strategies().items():
        common.tell(f"{kind}: {strategy.summary}\n  source: {strategy.source}")
        for name, default, means in rows(options[kind]):
            common.tell(f"  {name} = {default}: {means}")


@app.command("presets", epilog=common.examples("show presets"))
@common.guarded
def presets() -> None:
    """Every model preset and its shape."""
    from recsim_train.config.presets import describe_presets

    for line in describe_presets():
        common.tell(line)


@app.command(
    "settings",
    short_help="Every dotted name that --set takes.",
    epilog=common.examples("show settings"),
)
@common.guarded
def settings() -> None:
    """Every dotted name that --set takes, with type, default and meaning."""
    from recsim_train.config.schema import settings_table

    for row in settings_table():
        common.tell(f"{row.name} ({row.type}, default {row.default}): {row.meaning}")


@app.command(
    "emulation",
    short_help="Measure what emulated hosts of this machine carry.",
    epilog=common.examples("show emulation"),
)
@common.guarded
def emulation() -> None:
    """Measure what emulated hosts of this machine carry: rates, and whether there are latencies."""
    from recsim_train.config.errors import RunFailed
    from recsim_train.executor.emulation.capacity import measured_here, said

    common.say("measuring for half a minute: nothing else should use the cores")
    if (found := measured_here(anew=True)) is None:
        raise RunFailed("others use the cores: what emulated hosts carry cannot be measured now")
    for line in said(found):
        common.tell(line)


@app.command(
    "schema",
    short_help="The JSON Schema of experiments or profiles.",
    epilog=common.examples("show schema experiment"),
)
@common.guarded
def schema(
    what: Annotated[Literal["experiment", "cluster"], typer.Argument(help="Which file.")],
) -> None:
    """The JSON Schema of experiments or cluster profiles, for editors."""
    from recsim_train.config.schema import cluster_schema, experiment_schema
    from recsim_train.strategy.registry import schemas

    common.print_json(cluster_schema() if what == "cluster" else experiment_schema(schemas()))
