"""The reader of cluster profiles, which may be made of others; and a commented one of hosts that
were never measured, by the prices of one that was, with the machines that one can rent, as pages
with a date describe them (``machines.csv``).

Of these, what a vendor promises is taken, never the most that a machine may reach at times: a rate
"up to" something is none. Vendors count hardware threads; the file has physical cores, two threads
each.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from recsim_train.config.checks import check_cluster
from recsim_train.config.cluster import FORMAT, Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.frames import TCP_OVER_ETHERNET
from recsim_train.config.points import PROFILE_KEY
from recsim_train.config.problems import Marks, Mistakes, shown, suggest
from recsim_train.config.sets import Assignment, Sets, read_with
from recsim_train.config.shipped import SUFFIXES, shipped
from recsim_train.config.units import Positive, Section
from recsim_train.config.validate import check
from recsim_train.config.yaml_source import YamlDocument, one_line, parse_document, read_document

PROFILES: Literal["cluster_profiles"] = "cluster_profiles"
LOCAL = "local"
"""This machine's."""
NO_PROFILE_NAME = "expected the name or the file of a cluster profile, got empty text"
_KIND = "a cluster profile"
EXTENDS = "extends"
WHOLE = ("costs", "threads")
"""Sections whose entries are taken whole: a value's uncertainty is that of no other value."""


def find_cluster(name_or_path: str, near: Path | None = None) -> Path | None:
    """The file of a cluster profile, or None.

    A path, or a name that is looked for under ``cluster_profiles`` here and beside the folder of
    the experiment file ``near``, then among those that come along.
    """
    if not name_or_path:
        return None
    if _is_path(name_or_path):
        path = Path(name_or_path)
        return path if path.exists() else None
    return _by_name(near).get(name_or_path)


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith(SUFFIXES)


def _by_name(near: Path | None) -> dict[str, Path]:
    """Of each name the nearest profile. Of those that come along none is this machine's."""
    along = shipped(PROFILES)
    beside = () if near is None else (near.parent / ".." / PROFILES,)
    found: dict[str, Path] = {}
    for folder in (Path(PROFILES), *beside, along):
        for suffix in SUFFIXES:
            for path in filter(Path.is_file, sorted(folder.glob(f"*{suffix}"))):
                if folder != along or path.stem != LOCAL:
                    found.setdefault(path.stem, path)
    return found


def load_cluster(
    name_or_path: str, near: Path | None = None, sets: Sequence[str | Assignment] = ()
) -> Cluster:
    """Read a cluster profile, see `find_cluster`. ``sets``: changes, as ``cluster.KEY=VALUE``.

    Raises UserError if there is none or it cannot be read, ConfigErrors for what it says.
    """
    path = find_cluster(name_or_path, near)
    if path is None:
        raise UserError(_no_profile(name_or_path, near))
    return _checked(_composed(read_document(path, _KIND), path), sets)


def check_profile(text: str, path: Path) -> None:
    """Whether a profile of this text can be read at ``path``. Raises as `load_cluster` does."""
    _checked(_composed(parse_document(text, str(path), _KIND), path))


def _checked(document: YamlDocument, sets: Sequence[str | Assignment] = ()) -> Cluster:
    mistakes = Mistakes(document.marks, document.file)
    own = [
        s.strip().removeprefix(PROFILE_KEY)
        if isinstance(s, str)
        else replace(s, key=s.key.removeprefix(PROFILE_KEY))
        for s in sets
    ]
    sets_of = Sets(document, {}, mistakes)
    return read_with(sets_of, own, Cluster, lambda: _read(document, mistakes))


def _read(document: YamlDocument, mistakes: Mistakes) -> Cluster:
    data = dict(document.data)
    if isinstance(costs := data.get("costs"), dict):
        # A price without its uncertainty may be written as the value alone.
        data["costs"] = {k: {"value": v} if isinstance(v, str) else v for k, v in costs.items()}
    cluster = check(Cluster, data, mistakes)
    if cluster is not None:
        check_cluster(cluster, mistakes)
    mistakes.raise_any()
    assert cluster is not None
    return cluster


def _no_profile(name: str, near: Path | None) -> str:
    available = sorted(_by_name(near))
    names = f"available: {', '.join(available)}" if available else f"none is in {PROFILES}/"
    if _is_path(name):
        return f"cluster profile {name}: no such file; profiles by name, {names}"
    if name == LOCAL:
        return (
            "there is no cluster profile 'local' (this machine's) yet; make it with "
            f"`recsim-train calibrate -o {PROFILES}/local.yaml` ({names})"
        )
    hint = suggest(name, available)
    names = names[0].upper() + names[1:] if hint else f"; {names}"
    return f"there is no cluster profile {name!r}{hint}{' ' if hint else ''}{names}"


def _composed(document: YamlDocument, path: Path, above: Sequence[Path] = ()) -> YamlDocument:
    """A profile's document, over the one that it extends. ``above``: those that extend it."""
    if (version := document.data.get("format")) != FORMAT:
        says = "has no format" if version is None else f"has the format {shown(version)}"
        raise UserError(
            f"{path}: the profile was made by another version of recsim-train: it {says}, and this "
            f"one reads format {FORMAT}; calibrate again (one written by hand is to be completed, "
            f"with a line `format: {FORMAT}`)"
        )
    name = document.data.pop(EXTENDS, None)
    if name is None:
        return document
    mistakes = Mistakes(document.marks, document.file)
    if not isinstance(name, str) or not name.strip():
        mistakes.add((EXTENDS,), f"{NO_PROFILE_NAME.partition(',')[0]}, got {shown(name)}")
        mistakes.raise_any()
    beside = [path.parent / f"{name}{suffix}" for suffix in ("", *SUFFIXES)]
    found = next(filter(Path.is_file, beside), None) or find_cluster(str(name), path)
    if found is None:
        mistakes.add((EXTENDS,), _no_profile(str(name), path))
    elif found.resolve() in [other.resolve() for other in (path, *above)]:
        mistakes.add((EXTENDS,), f"{name!r} extends this profile itself")
    mistakes.raise_any()
    assert found is not None
    under = _composed(read_document(found, _KIND), found, (path, *above))
    marks = Marks({**under.marks, **document.marks})
    return YamlDocument(document.file, _over(under.data, document.data), marks)


def _over(under: Mapping[str, Any], own: Mapping[str, Any], *, whole: bool = False) -> Any:
    """Sections of both, where ``own`` says what both say; of ``whole`` ones entry by entry."""
    merged = dict(under)
    for key, value in own.items():
        known = merged.get(key)
        both = isinstance(known, dict) and isinstance(value, dict) and not whole
        merged[key] = _over(known, value, whole=key in WHOLE) if both else value  # type: ignore[arg-type]
    return merged


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
    raise UserError(
        f"--machine: {name!r} is not known{suggest(name, known) or ';'} `recsim-train cluster "
        "machines` lists those that are, and others are described by --cores, --memory and --nic"
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
