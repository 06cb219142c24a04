"""``recsim-train cluster``: describe hosts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command(
    "new",
    epilog=common.examples(
        "cluster new cluster_profiles/mine.yaml --hosts 20 --cores 32 --nic 25Gbit/s --racks 2",
        "cluster new cluster_profiles/mine.yaml --hosts 8 --machine m7i.8xlarge",
    ),
)
@common.guarded
def new(
    output: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The profile to write.", parser=common.path_of),
    ] = Path("cluster_profiles/cluster.yaml"),
    hosts: Annotated[int, typer.Option("--hosts", min=1, help="How many there are.")] = 8,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="NAME",
            help="What each is, as its vendor calls it: c7i.8xlarge, Standard_D32s_v5. "
            "`recsim-train cluster machines` lists them.",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores", min=1, help="Physical cores of each.  [default: the machine's, or 16]"
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Of each.  [default: the machine's, or 64GiB]"
        ),
    ] = None,
    nic: Annotated[
        str | None,
        typer.Option(
            "--nic",
            metavar="RATE",
            help="Its network card's rate, each way.  [default: what the machine sustains, or "
            "10Gbit/s]",
        ),
    ] = None,
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
    from shlex import quote

    from recsim_train.config.errors import UserError
    from recsim_train.config.profiles import USUAL, check_profile, machine_of, text_of
    from recsim_train.results.folder import put, writable

    if oversubscription is not None and racks == 1:
        raise UserError("--oversubscription is of racks' uplinks: give --racks, too")
    common.settings([output.stem, extends])
    if racks > hosts:
        raise UserError(f"--racks: expected no more racks than hosts ({hosts}), got {racks}")
    if output.exists() and not force:
        raise UserError(f"{output} exists already; --force overwrites it")
    rented = USUAL if machine is None else machine_of(machine)
    if not (nic or rented.nic):
        raise UserError(
            f"--machine: of {rented.name} the vendor says a most of {rented.nic_most} and promises "
            "no rate: give --nic, what a benchmark such as iperf3 shows between two of them"
        )
    text = text_of(
        output.stem,
        hosts,
        cores or rented.cores,
        memory or rented.memory,
        nic or rented.nic,
        latency,
        racks,
        oversubscription,
        extends,
        rented.connection_cap,
        f"a {rented.name}: {rented.source}, {rented.date}" if rented.source else "",
    )
    check_profile(text, output)
    writable(output.parent, output.name)
    put(output, text.encode())
    common.say(f"wrote {output}; name it with --cluster {quote(str(output))}")


@app.command(
    "machines",
    short_help="List the machines that `cluster new --machine` knows.",
    epilog=common.examples("cluster machines"),
)
@common.guarded
def machines(
    json: common.JsonOption = False,
) -> None:
    """List the machines that `cluster new --machine` knows, and where their figures are from."""
    from recsim_train.config.profiles import machines as known
    from recsim_train.report.document import Chapter, Document, Lines, TextTable
    from recsim_train.report.terminal import show

    found = list(known().values())
    if json:
        common.print_json({"machines": [machine.model_dump() for machine in found]})
        return
    heads = ("machine", "vCPUs", "cores", "memory", "network card", "one connection", "page of")
    rows = [
        [
            m.name,
            str(m.vcpus),
            str(m.cores),
            m.memory,
            m.nic or f"not promised, at most {m.nic_most}",
            m.connection_cap or "-",
            m.date,
        ]
        for m in found
    ]
    table = TextTable.of(heads, rows, ("machine", "network card"))
    sources = Lines(list(dict.fromkeys(f"{m.source}, {m.date}" for m in found)), mark="note")
    show(Document(items=[Chapter("", [table, sources])]))
