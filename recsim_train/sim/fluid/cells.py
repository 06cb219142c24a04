"""Which contended resources hang together by kinds that use several of them: cells.

Cells are kept from one solve to the next. What a change joins is joined at once; whether a cell has
fallen apart is looked at only now and then, because solving two parts as one is right, too.
"""

from __future__ import annotations

from recsim_train.sim.fluid.clocks import enlist, let_go, touch
from recsim_train.sim.fluid.fill import solve_cell
from recsim_train.sim.fluid.layout import (
    C_AGE,
    C_DIRTY,
    C_FIRST,
    C_LAST,
    C_NEXT,
    C_SIZE,
    DIRTY_CELLS,
    DIRTY_KINDS,
    DIRTY_RESOURCES,
    FREE_CELL,
    FULL,
    K_COUNT,
    K_DIRTY,
    K_MARK,
    K_NEXT_DIRTY,
    LIST,
    MARK,
    R_CAPACITY,
    R_CELL,
    R_CONTENDED,
    R_DEMAND,
    R_DIRTY,
    R_MARK,
    R_NEXT,
    R_NEXT_DIRTY,
    SOLVES,
    Floats,
    Ints,
    compiled,
    users_of,
    uses_of,
)

# ---------------------------------------------------------------- what hangs together


@compiled
def _dirty_cell(i: Ints, cell: int) -> None:
    enlist(i, cell, C_DIRTY, C_NEXT, DIRTY_CELLS)


@compiled
def _new_cell(f: Floats, i: Ints, first: int) -> int:
    """A cell of one resource so far."""
    cell: int = i[FREE_CELL]
    i[FREE_CELL] = i[cell + C_NEXT]
    i[cell + C_FIRST] = i[cell + C_LAST] = first
    i[cell + C_SIZE] = 1
    i[cell + C_AGE] = 0
    i[cell + C_DIRTY] = 0
    i[first + R_CELL] = cell
    i[first + R_NEXT] = 0
    return cell


@compiled
def _join(f: Floats, i: Ints, a: int, b: int) -> int:
    """Merge two cells; returns the one that is left."""
    if a == b:
        return a
    if i[a + C_SIZE] < i[b + C_SIZE]:
        a, b = b, a
    resource = i[b + C_FIRST]
    i[i[a + C_LAST] + R_NEXT] = resource
    while resource:
        i[resource + R_CELL] = a
        resource = i[resource + R_NEXT]
    i[a + C_AGE] = max(i[a + C_AGE], i[b + C_AGE])
    i[a + C_LAST] = i[b + C_LAST]
    i[a + C_SIZE] += i[b + C_SIZE]
    i[b + C_FIRST] = 0
    _dirty_cell(i, b)  # where it is found and freed
    return a


@compiled
def _regroup(f: Floats, i: Ints, cell: int, now: float) -> None:
    """Find out anew what hangs together in a cell, and solve each part."""
    i[MARK] += 1
    mark = i[MARK]
    base, size = i[LIST], 0
    resource = i[cell + C_FIRST]
    while resource:
        if i[resource + R_CONTENDED]:
            i[base + size] = resource
            size += 1
        resource = i[resource + R_NEXT]
    i[cell + C_NEXT] = i[FREE_CELL]
    i[FREE_CELL] = cell
    for at in range(base, base + size):
        resource = i[at]
        if i[resource + R_MARK] == mark:
            continue
        i[resource + R_MARK] = mark
        made = _new_cell(f, i, resource)
        while resource:  # the chain grows while it is walked
            for user in users_of(i, resource):
                kind = i[user]
                if i[kind + K_MARK] == mark:
                    continue
                i[kind + K_MARK] = mark
                for use in uses_of(i, kind):
                    other = i[use]
                    if i[other + R_CONTENDED] and i[other + R_MARK] != mark:
                        i[other + R_MARK] = mark
                        i[other + R_CELL] = made
                        i[other + R_NEXT] = 0
                        i[i[made + C_LAST] + R_NEXT] = other
                        i[made + C_LAST] = other
                        i[made + C_SIZE] += 1
            resource = i[resource + R_NEXT]
        solve_cell(f, i, made, now)


@compiled
def _contention(f: Floats, i: Ints) -> None:
    """Which of the resources that were touched may limit their users from now on."""
    resource = i[DIRTY_RESOURCES]
    while resource:
        i[resource + R_DIRTY] = 0
        full = f[resource + R_DEMAND] > f[resource + R_CAPACITY] * FULL
        if full != (i[resource + R_CONTENDED] == 1):
            i[resource + R_CONTENDED] = 1 if full else 0
            if full:
                _dirty_cell(i, _new_cell(f, i, resource))
            else:
                i[i[resource + R_CELL] + C_AGE] = 1 << 40  # it no longer hangs together
                _dirty_cell(i, i[resource + R_CELL])
            for at in users_of(i, resource):
                touch(i, i[at])
        elif full:
            _dirty_cell(i, i[resource + R_CELL])
        resource = i[resource + R_NEXT_DIRTY]


@compiled
def solve(f: Floats, i: Ints, now: float) -> None:
    """Give right rates to everything that the changes since the last time touch."""
    if i[DIRTY_KINDS] == 0:
        return
    i[SOLVES] += 1
    _contention(f, i)
    kind = i[DIRTY_KINDS]
    while kind:
        if i[kind + K_COUNT]:
            cell = 0
            for use in uses_of(i, kind):
                resource = i[use]
                if i[resource + R_CONTENDED]:
                    cell = _join(f, i, cell, i[resource + R_CELL]) if cell else i[resource + R_CELL]
            if cell:
                _dirty_cell(i, cell)
            else:
                let_go(f, i, kind, now)
        kind = i[kind + K_NEXT_DIRTY]
    # cells that were merged into others are free before the others may need new ones
    cell, left = i[DIRTY_CELLS], 0
    while cell:
        after = i[cell + C_NEXT]
        if i[cell + C_FIRST] == 0:
            i[cell + C_NEXT] = i[FREE_CELL]
            i[FREE_CELL] = cell
        else:
            i[cell + C_NEXT] = left
            left = cell
        cell = after
    i[DIRTY_RESOURCES] = 0
    while left:
        cell, left = left, i[left + C_NEXT]
        i[cell + C_DIRTY] = 0
        i[cell + C_AGE] += 1
        if i[cell + C_AGE] > i[cell + C_SIZE]:
            _regroup(f, i, cell, now)
        else:
            solve_cell(f, i, cell, now)
    i[DIRTY_CELLS] = 0
    kind = i[DIRTY_KINDS]
    while kind:
        i[kind + K_DIRTY] = 0
        kind = i[kind + K_NEXT_DIRTY]
    i[DIRTY_KINDS] = 0
