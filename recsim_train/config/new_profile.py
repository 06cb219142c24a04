"""A commented profile of hosts that were never measured, by the prices of one that was."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_train.config.cluster import FORMAT
from recsim_train.config.frames import TCP_OVER_ETHERNET
from recsim_train.config.yaml_source import one_line


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the hosts are, as it was given."""

    name: str
    hosts: int
    cores: int
    memory: str
    nic: str
    latency: str
    racks: int = 1
    oversubscription: float | None = None
    extends: str = "reference-2core"
    connection_cap: str = ""
    """Empty: none below the card's rate."""
    machine: str = ""
    """What the vendor calls it, and where its figures are from; empty: they were given."""


def text_of(wanted: Wanted) -> str:
    """The file. What it says is checked when it is read."""
    memory, nic, extends = map(one_line, (wanted.memory, wanted.nic, wanted.extends))
    hosts = f"{wanted.hosts} hosts of {wanted.cores} cores, {wanted.memory} and {wanted.nic}"
    described = f"{hosts}; compute priced by {wanted.extends}, not calibrated"
    machine = f"# Each is {wanted.machine}.\n" if wanted.machine else ""
    cap = wanted.connection_cap or "null"
    racks = "topology: null   # racks; none: hosts reach each other at their cards' rates\n"
    if wanted.racks > 1:
        rate = 1.0 if wanted.oversubscription is None else wanted.oversubscription
        each, more = divmod(wanted.hosts, wanted.racks)
        rooms = [each + 1] * more + [each] * (wanted.racks - more)
        racks = f"""\
# Racks: hosts of different racks reach each other over both racks' uplinks.
topology:
  racks: {wanted.racks}
  hosts_per_rack: {rooms if more else each}
  oversubscription: {rate:g}   # a rack's network cards together / its uplink
  # uplink: 100 Gbit/s   # instead of oversubscription
  arrange: spread   # host i of each role in rack i mod racks; fill: one rack after the other
"""
    return f"""\
# {" ".join(hosts.split())}, of which nothing was measured.
{machine}# What a core does is priced by {extends}. Better: measure one of them, by
# `recsim-train calibrate -o host.yaml` there; put host.yaml beside this file, and name it here.
format: {FORMAT}
extends: {extends}
name: {one_line(wanted.name)}
description: {one_line(described)}
colocate: false   # role instances have hosts of their own, one on each
# per_host: {{trainer: 4}}   # or so many of a role on each

hosts:
  default:
    cores: {wanted.cores}
    memory: {memory}
    nic: {nic}   # what it sustains, each way
    # speed: 1.2   # of a core, relative to one that has the prices
  # embedding_server: {{cores: 8, memory: 512 GiB, nic: 10 Gbit/s}}   # a role's own type of host
# mixed: {{default: [{{count: 12}}, {{count: 12, cores: 32}}]}}   # or two types for all roles

network:
  latency: {one_line(wanted.latency)}   # one way: half of what ping says
  efficiency: {TCP_OVER_ETHERNET}   # payload's share of the card's rate: TCP over Ethernet
  connection_cap: {cap}   # highest rate of one connection, where that is below the card's

most_hosts: {wanted.hosts}   # no job has more
{racks}"""
