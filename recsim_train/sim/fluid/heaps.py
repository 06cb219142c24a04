"""The heaps of the compiled solver: what is due, and (key, record) pairs."""

from __future__ import annotations

from recsim_train.sim.fluid.layout import (
    E_DUE,
    E_PLACE,
    HEAP,
    HEAP_SIZE,
    Floats,
    Ints,
    U,
    compiled,
)

# ---------------------------------------------------------------- what is due


@compiled
def rise(f: Floats, i: Ints, place: int) -> None:
    """Let the entry at ``place`` (from 1) rise; equals stay in order of arrival."""
    heap = i[HEAP]
    entry = i[heap + place]
    due = f[entry + E_DUE]
    while place > 1:
        above = i[heap + (place >> 1)]
        if f[above + E_DUE] <= due:
            break
        i[heap + place] = above
        i[above + E_PLACE] = place
        place >>= 1
    i[heap + place] = entry
    i[entry + E_PLACE] = place


@compiled
def sink(f: Floats, i: Ints, place: int) -> None:
    """Let the entry at ``place`` sink."""
    heap, size = i[HEAP], i[HEAP_SIZE]
    entry = i[heap + place]
    due = f[entry + E_DUE]
    while True:
        below = 2 * place
        if below > size:
            break
        if below < size and f[i[heap + below + 1] + E_DUE] < f[i[heap + below] + E_DUE]:
            below += 1
        child = i[heap + below]
        if f[child + E_DUE] >= due:
            break
        i[heap + place] = child
        i[child + E_PLACE] = place
        place = below
    i[heap + place] = entry
    i[entry + E_PLACE] = place


@compiled
def set_due(f: Floats, i: Ints, entry: int, due: float) -> None:
    """Put an entry into the heap, or move it."""
    f[entry + E_DUE] = due
    place = i[entry + E_PLACE]
    if place == 0:
        i[HEAP_SIZE] += 1
        place = i[HEAP_SIZE]
        i[i[HEAP] + place] = entry
    rise(f, i, place)
    sink(f, i, i[entry + E_PLACE])


@compiled
def cancel_due(f: Floats, i: Ints, entry: int) -> None:
    """Take an entry out of the heap, if it is there."""
    place = i[entry + E_PLACE]
    if place == 0:
        return
    last = i[i[HEAP] + i[HEAP_SIZE]]
    i[HEAP_SIZE] -= 1
    i[entry + E_PLACE] = 0
    if last != entry:
        i[i[HEAP] + place] = last
        i[last + E_PLACE] = place
        rise(f, i, place)
        sink(f, i, i[last + E_PLACE])


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
