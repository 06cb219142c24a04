"""Chains of records in a block of memory, compiled: each holds the address of the next, 0: none.

``chain`` is the word that holds the first record; where a chain has a last one, the word after it
holds that. ``link`` is a record's word for the next.
"""

from __future__ import annotations

from recsim_train.sim.fluid.layout import Ints, compiled


@compiled
def append(i: Ints, chain: int, record: int, link: int) -> None:
    """Add a record as the last one."""
    i[record + link] = 0
    if i[chain]:
        i[i[chain + 1] + link] = record
    else:
        i[chain] = record
    i[chain + 1] = record


@compiled
def unlink(i: Ints, chain: int, before: int, record: int, link: int) -> None:
    """Take a record out that comes after ``before``; 0: it is the first."""
    i[before + link if before else chain] = i[record + link]
    if i[chain + 1] == record:
        i[chain + 1] = before


@compiled
def insert_in_order(i: Ints, chain: int, record: int, key: int, link: int) -> None:
    """Add a record by its word ``key``, to a chain without a last one."""
    before, at = 0, i[chain]
    while at and i[at + key] < i[record + key]:
        before, at = at, i[at + link]
    i[record + link] = at
    i[before + link if before else chain] = record
