"""Which contended resources hang together by kinds that use several of them: cells.

Only cells that a change touches are solved. Which these are is found anew each time, since filling
looks at all of a cell anyway.
"""

from __future__ import annotations

from recsim_train.sim.fluid.clocks import let_go, touch
from recsim_train.sim.fluid.fill import fill
from recsim_train.sim.fluid.layout import (
    DIRTY_KINDS,
    DIRTY_RESOURCES,
    FULL,
    K_COUNT,
    K_DIRTY,
    K_NEXT_DIRTY,
    LIST,
    MARK,
    R_CAPACITY,
    R_CONTENDED,
    R_DEMAND,
    R_DIRTY,
    R_MARK,
    R_NEXT_DIRTY,
    SOLVES,
    Floats,
    Ints,
    compiled,
    users_of,
    uses_of,
)


@compiled
def _solve_around(f: Floats, i: Ints, first: int, mark: int, now: float) -> None:
    """Solve the cell of a contended resource, unless it has been solved: it has the ``mark``."""
    if i[first + R_MARK] == mark:
        return
    base, size, at = i[LIST], 1, 0
    i[first + R_MARK], i[base] = mark, first
    while at < size:  # the list grows meanwhile
        for user in users_of(i, i[base + at]):
            for use in uses_of(i, i[user]):
                resource = i[use]
                if i[resource + R_CONTENDED] and i[resource + R_MARK] != mark:
                    i[resource + R_MARK], i[base + size] = mark, resource
                    size += 1
        at += 1
    fill(f, i, size, now)


@compiled
def _contention(f: Floats, i: Ints) -> None:
    """Which of the resources that were touched may limit their users from now on."""
    resource = i[DIRTY_RESOURCES]
    while resource:
        i[resource + R_DIRTY] = 0
        full = f[resource + R_DEMAND] > f[resource + R_CAPACITY] * FULL
        if full != (i[resource + R_CONTENDED] == 1):
            i[resource + R_CONTENDED] = 1 if full else 0
            for at in users_of(i, resource):
                touch(i, i[at])
        resource = i[resource + R_NEXT_DIRTY]


@compiled
def solve(f: Floats, i: Ints, now: float) -> None:
    """Give right rates to everything that the changes since the last time touch."""
    if i[DIRTY_KINDS] == 0:
        return
    i[SOLVES] += 1
    i[MARK] += 1
    mark = i[MARK]
    _contention(f, i)
    kind = i[DIRTY_KINDS]
    while kind:
        if i[kind + K_COUNT]:
            contended = False
            for use in uses_of(i, kind):
                if i[i[use] + R_CONTENDED]:
                    contended = True
                    _solve_around(f, i, i[use], mark, now)
            if not contended:
                let_go(f, i, kind, now)
        kind = i[kind + K_NEXT_DIRTY]
    resource = i[DIRTY_RESOURCES]
    while resource:  # those that have lost a kind
        if i[resource + R_CONTENDED]:
            _solve_around(f, i, resource, mark, now)
        resource = i[resource + R_NEXT_DIRTY]
    i[DIRTY_RESOURCES] = 0
    kind = i[DIRTY_KINDS]
    while kind:
        i[kind + K_DIRTY] = 0
        kind = i[kind + K_NEXT_DIRTY]
    i[DIRTY_KINDS] = 0
