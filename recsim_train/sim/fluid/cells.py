"""Which contended resources hang together by kinds that use several of them, cells; and the max-min
fair rates of one cell, by progressive filling.

Only cells that a change touches are solved. Which these are is found anew each time, since filling
looks at all of a cell anyway.
"""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.chains import drop, insert, sift
from recsim_train.sim.fluid.clocks import hold, let_go, reschedule, touch
from recsim_train.sim.fluid.layout import (
    DIGITS,
    DIRTY_KINDS,
    DIRTY_RESOURCES,
    FULL,
    K_AT,
    K_COUNT,
    K_DIRTY,
    K_FROZEN,
    K_LEVEL,
    K_MARK,
    K_NEXT_DIRTY,
    LIST,
    MARK,
    R_CAP_LOW,
    R_CAPACITY,
    R_CLOCK,
    R_CONTENDED,
    R_COUNT,
    R_DEMAND,
    R_DIRTY,
    R_FLOOR,
    R_HELD,
    R_LEFT,
    R_LEVEL,
    R_MARK,
    R_NEXT_DIRTY,
    R_PULL,
    R_RISING,
    R_SINCE,
    R_TOTAL,
    SCRATCH,
    SOLVES,
    Floats,
    Ints,
    U,
    compiled,
    users_of,
    uses_of,
)

# ---------------------------------------------------------------- one cell


@compiled
def _refresh(f: Floats, i: Ints, resource: int, mark: int) -> None:
    """Sum a resource's pull anew over the kinds that still rise."""
    total = 0.0
    for at in users_of(i, resource):
        if i[i[at] + K_FROZEN] != mark:
            total += f[i[at + 1] + 1]
    f[resource + R_PULL] = total
    f[resource + R_FLOOR] = total * DIGITS


@compiled
def _freeze(f: Floats, i: Ints, kind: int, level: float, mark: int, full: int) -> None:
    """Take a kind out of the filling at ``level``."""
    i[U(kind + K_FROZEN)] = mark
    for use in uses_of(i, kind):
        resource = i[U(use)]
        if resource != full:
            # one that is not contended has no use for these figures, and takes no harm
            pull = f[U(use + 1)]
            i[U(resource + R_RISING)] -= 1
            f[U(resource + R_PULL)] -= pull
            f[U(resource + R_LEFT)] -= pull * level


@compiled
def _caps(f: Floats, i: Ints, count: int, base: int, mark: int) -> int:
    """Make the heap of the caps of all kinds that still rise; returns its length."""
    size = 0
    for place in range(count):
        resource, lowest = i[i[LIST] + place], inf
        for at in users_of(i, resource):
            kind = i[at]
            lowest = min(lowest, f[kind + K_LEVEL])
            if i[kind + K_FROZEN] != mark and i[kind + K_MARK] != mark:
                i[kind + K_MARK] = mark
                insert(f, i, base, size, f[kind + K_LEVEL], kind)
                size += 1
        f[resource + R_CAP_LOW] = lowest
    return size


@compiled
def _fill(f: Floats, i: Ints, count: int, now: float) -> None:
    """Solve the cell of the first ``count`` resources of the list: progressive filling.

    What a resource offers to those that still rise only grows while others stop, so an old figure
    is a lower bound, and only the smallest has to be worked out anew.
    """
    i[U(MARK)] += 1
    mark = i[U(MARK)]
    base, resources = i[U(SCRATCH)], count
    lowest_cap = inf
    level = 0.0
    for place in range(count):
        resource = i[U(i[U(LIST)] + place)]
        f[U(resource + R_LEFT)] = f[U(resource + R_CAPACITY)]
        f[U(resource + R_PULL)] = f[U(resource + R_TOTAL)]
        i[U(resource + R_RISING)] = i[U(resource + R_COUNT)]
        lowest_cap = min(lowest_cap, f[U(resource + R_CAP_LOW)])
        pull = f[U(resource + R_PULL)]
        f[U(resource + R_FLOOR)] = pull * DIGITS
        insert(f, i, base, place, f[U(resource + R_LEFT)] / pull, resource)
    caps, capped = base + 2 * resources, -1  # heap of caps: made when the first one may bind
    while resources:
        resource = i[U(base + 1)]
        if i[U(resource + R_RISING)] == 0:
            resources = drop(f, i, base, resources)
            continue
        if f[U(resource + R_PULL)] < f[U(resource + R_FLOOR)]:
            _refresh(f, i, resource, mark)
        fits = f[U(resource + R_LEFT)] / f[U(resource + R_PULL)]
        if fits > f[U(base)]:
            f[U(base)] = fits
            sift(f, i, base, resources)
            if i[U(base + 1)] != resource:
                continue
        if lowest_cap <= max(level, fits):
            if capped < 0:
                capped = _caps(f, i, count, caps, mark)
            stopped = False
            while capped and f[U(caps)] <= max(level, fits):
                kind = i[U(caps + 1)]
                capped = drop(f, i, caps, capped)
                if i[U(kind + K_FROZEN)] != mark:
                    _freeze(f, i, kind, f[U(kind + K_LEVEL)], mark, 0)
                    let_go(f, i, kind, now)
                    stopped = True
            lowest_cap = f[U(caps)] if capped else inf
            if stopped:
                continue
        level = max(level, fits)  # levels only rise: what looks lower is rounding
        f[U(resource + R_CLOCK)] += f[U(resource + R_LEVEL)] * (now - f[U(resource + R_SINCE)])
        f[U(resource + R_SINCE)] = now
        f[U(resource + R_LEVEL)] = level
        i[U(resource + R_RISING)] = 0
        for at in users_of(i, resource):
            kind = i[U(at)]
            if i[U(kind + K_FROZEN)] != mark:
                _freeze(f, i, kind, level, mark, resource)
                if i[U(kind + K_AT)] != resource or i[U(kind + K_DIRTY)]:
                    hold(f, i, kind, resource, now)
    for place in range(count):
        resource = i[U(i[U(LIST)] + place)]
        if i[U(resource + R_HELD)]:
            reschedule(f, i, resource, now)
        else:
            f[U(resource + R_LEVEL)] = 0.0


# ---------------------------------------------------------------- those that a change touches


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
    _fill(f, i, size, now)


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
