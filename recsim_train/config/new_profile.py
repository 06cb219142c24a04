"""A commented profile of hosts that were never measured, by the prices of one that was; and the
machines that one can rent, as pages with a date describe them (``machines.csv``).

Of these, what a vendor promises is taken, never the most that a machine may reach at times: a rate
"up to" something is none. Vendors count hardware threads; the file has physical cores, two threads
each.
"""

from __future__ import annotations

import csv
import difflib
from functools import cache
from importlib import resources

from recsim_train.config.cluster import FORMAT
from recsim_train.config.errors import UserError
from recsim_train.config.frames import TCP_OVER_ETHERNET
from recsim_train.config.units import Positive, Section
from recsim_train.config.yaml_source import one_line


class RentedMachine(Section):
    """One type; quantities are texts with their units, as in a profile."""

    name: str
    """The vendor's."""
    vcpus: Positive
    """Hardware threads, as the vendor counts."""
    cores: Positive
    memory: str
    nic: str
    """What its network card sustains, each way; empty: the vendor promises no rate."""
    nic_most: str
    """What it reaches at most; empty: the same, or not known."""
    connection_cap: str
    """Of a single connection; empty: the card's rate."""
    source: str
    date: str
    """Of the page that is named first, as 2026-11-27."""


USUAL = RentedMachine(
    name="",
    vcpus=32,
    cores=16,
    memory="64GiB",
    nic="10Gbit/s",
    nic_most="",
    connection_cap="",
    source="",
    date="",
)
"""Where nobody says what a host is."""


@cache
def machines() -> dict[str, RentedMachine]:
    """All that are known, by name."""
    text = resources.files(__package__).joinpath("machines.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["name"]: RentedMachine.model_validate(row) for row in rows}


def machine_of(name: str) -> RentedMachine:
    """Raises UserError where none has this name."""
    known = machines()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(
        f"--machine: {name!r} is not known; {hint}`recsim-train cluster machines` lists those that "
        "are, and others are described by --cores, --memory and --nic"
    )


def text_of(
    name: str,
    hosts: int,
    cores: int,
    memory: str,
    nic: str,
    latency: str,
    racks: int,
    oversubscription: float | None,
    extends: str,
    connection_cap: str,
    machine: str,
) -> str:
    """The file. What it says is checked when it is read.

    What the hosts are, as it was given. ``connection_cap``: empty: none below the card's rate;
    ``machine``: what the vendor calls it, and where its figures are from; empty: they were given.
    """
    of_what = f"{hosts} hosts of {cores} cores, {memory} and {nic}"
    described = f"{of_what}; compute priced by {extends}, not calibrated"
    memory, nic, extends = map(one_line, (memory, nic, extends))
    cap = connection_cap or "null"
    each_is = f"# Each is {machine}.\n" if machine else ""
    topology = "topology: null   # racks; none: hosts reach each other at their cards' rates\n"
    if racks > 1:
        rate = 1.0 if oversubscription is None else oversubscription
        each, more = divmod(hosts, racks)
        rooms = [each + 1] * more + [each] * (racks - more)
        topology = f"""\
# Racks: hosts of different racks reach each other over both racks' uplinks.
topology:
  racks: {racks}
  hosts_per_rack: {rooms if more else each}
  oversubscription: {rate:g}   # a rack's network cards together / its uplink
  # uplink: 100 Gbit/s   # instead of oversubscription
  arrange: spread   # host i of each role in rack i mod racks; fill: one rack after the other
"""
    return f"""\
# {" ".join(of_what.split())}, of which nothing was measured.
{each_is}# What a core does is priced by {extends}. Better: measure one of them, by
# `recsim-train calibrate -o host.yaml` there; put host.yaml beside this file, and name it here.
format: {FORMAT}
extends: {extends}
name: {one_line(name)}
description: {one_line(described)}
colocate: false   # role instances have hosts of their own, one on each
# per_host: {{trainer: 4}}   # or so many of a role on each

hosts:
  default:
    cores: {cores}
    memory: {memory}
    nic: {nic}   # what it sustains, each way
    # speed: 1.2   # of a core, relative to one that has the prices
  # embedding_server: {{cores: 8, memory: 512 GiB, nic: 10 Gbit/s}}   # a role's own type of host
# mixed: {{default: [{{count: 12}}, {{count: 12, cores: 32}}]}}   # or two types for all roles

network:
  latency: {one_line(latency)}   # one way: half of what ping says
  efficiency: {TCP_OVER_ETHERNET}   # payload's share of the card's rate: TCP over Ethernet
  connection_cap: {cap}   # highest rate of one connection, where that is below the card's

most_hosts: {hosts}   # no job has more
{topology}"""
