"""``recsim-train cluster``: describe hosts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _top() -> None:
    pass


@app.command("new")
@common.guarded
def new(
    output: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The profile to write.", parser=common.path_of),
    ] = Path("cluster_profiles/cluster.yaml"),
    hosts: Annotated[int, typer.Option("--hosts", min=1, help="How many there are.")] = 8,
    cores: Annotated[int, typer.Option("--cores", min=1, help="Physical cores of each.")] = 16,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Of each.")] = "64GiB",
    nic: Annotated[
        str, typer.Option("--nic", metavar="RATE", help="Its network card's rate, each way.")
    ] = "10Gbit/s",
    latency: Annotated[
        str, typer.Option("--latency", metavar="TIME", help="One way, between two hosts.")
    ] = "25us",
    racks: Annotated[int, typer.Option("--racks", min=1, help="How many.")] = 1,
    oversubscription: Annotated[
        float | None,
        typer.Option(
            "--oversubscription",
            help="Network cards of a rack's hosts together, divided by the rack's uplink.",
        ),
    ] = None,
    extends: Annotated[
        str, typer.Option("--extends", metavar="PROFILE", help="Whose prices a core has.")
    ] = "reference-2core",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented cluster profile, to be completed by hand."""
    from recsim_train.config.errors import UserError
    from recsim_train.config.new_profile import Wanted, text_of
    from recsim_train.config.profiles import check_profile
    from recsim_train.results.folder import put, writable

    if oversubscription is not None and racks == 1:
        raise UserError("--oversubscription is of racks' uplinks: give --racks, too")
    if output.exists() and not force:
        raise UserError(f"{output} exists already; --force overwrites it")
    wanted = Wanted(
        output.stem, hosts, cores, memory, nic, latency, racks, oversubscription, extends
    )
    text = text_of(wanted)
    check_profile(text, output)
    writable(output.parent, output.name)
    put(output, text.encode())
    common.say(f"wrote {output}; name it with --cluster {output}")
