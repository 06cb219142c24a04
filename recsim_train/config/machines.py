"""Machines that one can rent, as pages with a date describe them (``machines.csv``).

What a vendor promises is taken, never the most that a machine may reach at times: a rate "up to"
something is none. Vendors count hardware threads; the file has physical cores, two threads each.
"""

from __future__ import annotations

import csv
import difflib
from functools import cache
from importlib import resources

from recsim_train.config.errors import UserError
from recsim_train.config.units import Positive, Section


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
