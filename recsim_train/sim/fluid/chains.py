"""Chains of records in a block of memory, heaps of (key, record) pairs, and the heap of what is due
in the compiled solver.

Each record of a chain holds the address of the next, 0: none. ``chain`` is the word that holds the
first one; where a chain has a last one, the word after it holds that. ``link`` is a record's word
for the next.

What is due is a kind that runs at its cap, or minus a resource: the first kind that it holds back.
What is put off stays in the heap until it comes first, or no room is left.
"""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.layout import (
    HEAP,
    HEAP_ROOM,
    HEAP_SIZE,
    K_DUE,
    R_DUE,
    Floats,
    Ints,
    U,
    compiled,
)

# ---------------------------------------------------------------- chains


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


# ---------------------------------------------------------------- (key, record) pairs


@compiled
def sift(f: Floats, i: Ints, base: int, size: int) -> None:
    """Let the first pair sink; equal keys go by address."""
    place, key, record = 0, f[U(base)], i[U(base + 1)]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        at = base + 2 * below
        if below + 1 < size and (
            f[U(at + 2)] < f[U(at)] or (f[U(at + 2)] == f[U(at)] and i[U(at + 3)] < i[U(at + 1)])
        ):
            below += 1
            at += 2
        if f[U(at)] > key or (f[U(at)] == key and i[U(at + 1)] > record):
            break
        f[U(base + 2 * place)] = f[U(at)]
        i[U(base + 2 * place + 1)] = i[U(at + 1)]
        place = below
    f[U(base + 2 * place)] = key
    i[U(base + 2 * place + 1)] = record


@compiled
def drop(f: Floats, i: Ints, base: int, size: int) -> int:
    """Take the smallest pair away; returns how many are left."""
    size -= 1
    f[base] = f[base + 2 * size]
    i[base + 1] = i[base + 2 * size + 1]
    if size > 1:
        sift(f, i, base, size)
    return size


@compiled
def insert(f: Floats, i: Ints, base: int, size: int, key: float, record: int) -> None:
    """Add a pair to a heap of ``size`` pairs."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        at = base + 2 * above
        if f[U(at)] < key or (f[U(at)] == key and i[U(at + 1)] < record):
            break
        f[U(base + 2 * place)] = f[U(at)]
        i[U(base + 2 * place + 1)] = i[U(at + 1)]
        place = above
    f[U(base + 2 * place)] = key
    i[U(base + 2 * place + 1)] = record


# ---------------------------------------------------------------- what is due


@compiled
def _due_at(what: int) -> int:
    """The word that holds when something is due."""
    return what + K_DUE if what > 0 else R_DUE - what


@compiled
def set_due(f: Floats, i: Ints, what: int, due: float) -> None:
    """From now on something is due then; inf: never."""
    at = _due_at(what)
    if f[at] == due:
        return
    f[at] = due
    if due < inf:
        if i[HEAP_SIZE] == i[HEAP_ROOM]:
            _tidy(f, i)
        insert(f, i, i[HEAP], i[HEAP_SIZE], due, what)
        i[HEAP_SIZE] += 1


@compiled
def next_due(f: Floats, i: Ints) -> float:
    """When the first of all is due, which then comes first in the heap; inf: none ever is."""
    base = i[HEAP]
    while i[HEAP_SIZE] and f[_due_at(i[base + 1])] != f[base]:
        i[HEAP_SIZE] = drop(f, i, base, i[HEAP_SIZE])
    due: float = f[base] if i[HEAP_SIZE] else inf
    return due


@compiled
def _tidy(f: Floats, i: Ints) -> None:
    """Take out of the heap what was put off, and what is in it twice."""
    base, kept = i[HEAP], 0
    for place in range(i[HEAP_SIZE]):
        due, what = f[base + 2 * place], i[base + 2 * place + 1]
        if f[_due_at(what)] == due:
            f[_due_at(what)] = -inf  # until all are seen
            insert(f, i, base, kept, due, what)
            kept += 1
    for place in range(kept):
        f[_due_at(i[base + 2 * place + 1])] = f[base + 2 * place]
    i[HEAP_SIZE] = kept
