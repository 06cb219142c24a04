"""A change moves on from resource to resource, only as far as it changes anything.

Rates are max-min fair where every kind runs at its cap or uses a full resource on which no other
kind has a higher level (its bottleneck). So it is enough to look at the resources of what changed:
the level at which each is full, given the levels of those that others hold back. Where that differs
from before, the full resources among the other ones of its kinds are looked at, too, and those that
now have more than they can carry. When nothing is left to look at, every kind has its bottleneck,
and that solution is the only one. Lower levels go first, since they decide the higher ones.

Filling (`recsim_train.sim.fluid.fill`) visits a whole cell; most changes move a handful of levels.
"""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.clocks import hold, let_go, reschedule
from recsim_train.sim.fluid.heaps import drop, insert
from recsim_train.sim.fluid.layout import (
    C_SIZE,
    C_TOUCHED,
    C_WHOLE,
    DIRTY_RESOURCES,
    K_AT,
    K_DIRTY,
    K_LEVEL,
    K_RATE,
    R_CAPACITY,
    R_CELL,
    R_CLOCK,
    R_CONTENDED,
    R_HELD,
    R_LEFT,
    R_LEVEL,
    R_LISTED,
    R_NEXT_DIRTY,
    R_SINCE,
    R_TOTAL,
    SCRATCH,
    Floats,
    Ints,
    U,
    compiled,
    users_of,
    uses_of,
)

SAME = 1.0 - 1e-12
"""Levels closer than this are one."""
EQUAL = 1e-15
"""A level that would change by a smaller share stays."""


@compiled
def _level(f: Floats, i: Ints, resource: int) -> float:
    """The level at which a resource is full (inf: it is not), given those held back by others.

    Their levels count up to this one's, so what is used grows with the level along a concave,
    piecewise linear line: Newton's method comes to its end from below, after few pieces.
    """
    capacity = f[U(resource + R_CAPACITY)]
    users = users_of(i, resource)
    left, pull = capacity, 0.0
    highest, lowest = 0.0, inf
    for at in users:  # as if those that it holds back stayed the same
        kind = i[U(at)]
        mine = f[U(i[U(at + 1)] + 1)]
        holder = i[U(kind + K_AT)]
        level = f[U(kind + K_LEVEL)]
        if holder == resource:
            pull += mine
            lowest = min(lowest, level)
        else:
            if holder:
                level = f[U(holder + R_LEVEL)]
            if level == inf:
                pull += mine
            else:
                left -= mine * level
                highest = max(highest, level)
    if pull > 0.0:
        level = max(0.0, left / pull)
        if highest * SAME <= level and level * SAME <= lowest:
            return float(level)
    elif left >= -capacity * (1.0 - SAME):
        f[U(resource + R_LEFT)] = left
        return inf
    else:
        level = capacity / f[U(resource + R_TOTAL)]
    for _ in range(2 * len(users)):
        left, pull = capacity, 0.0
        for at in users:
            kind = i[U(at)]
            mine = f[U(i[U(at + 1)] + 1)]
            holder = i[U(kind + K_AT)]
            own = f[U(kind + K_LEVEL)]
            if holder and holder != resource:
                own = f[U(holder + R_LEVEL)]
            if own * SAME > level:
                pull += mine
            else:
                left -= mine * own
        if pull == 0.0:
            f[U(resource + R_LEFT)] = left
            return inf
        fits = max(0.0, left / pull)
        if abs(fits - level) <= EQUAL * level:
            break
        level = fits
    return float(level)


@compiled
def _list(f: Floats, i: Ints, resource: int, size: int) -> int:
    """Have a resource looked at; those that are not full come last."""
    if i[U(resource + R_LISTED)]:
        return size
    i[U(resource + R_LISTED)] = 1
    key = f[U(resource + R_LEVEL)] if i[U(resource + R_HELD)] else inf
    insert(f, i, i[U(SCRATCH)], size, key, resource)
    return size + 1


@compiled
def _lower(f: Floats, i: Ints, kind: int, resource: int, level: float) -> int:
    """The full resource of the lowest level among the others of a kind, if below ``level``."""
    found = 0
    level *= SAME
    for use in uses_of(i, kind):
        other = i[U(use)]
        if other != resource and i[U(other + R_HELD)] and f[U(other + R_LEVEL)] < level:
            level = f[U(other + R_LEVEL)]
            found = other
    return found


@compiled
def _spread(f: Floats, i: Ints, kind: int, resource: int, by: float, size: int) -> int:
    """A kind's level has changed: which of its other resources are to be looked at."""
    for use in uses_of(i, kind):
        other = i[U(use)]
        if other != resource and i[U(other + R_CONTENDED)]:
            if i[U(other + R_HELD)]:
                size = _list(f, i, other, size)
            else:
                left = f[U(other + R_LEFT)] - by * f[U(use + 1)]
                f[U(other + R_LEFT)] = left
                if left < -f[U(other + R_CAPACITY)] * (1.0 - SAME):
                    size = _list(f, i, other, size)
    return size


@compiled
def _read(f: Floats, i: Ints, resource: int, now: float) -> None:
    """Bring a resource's clock up to now."""
    f[U(resource + R_CLOCK)] += f[U(resource + R_LEVEL)] * (now - f[U(resource + R_SINCE)])
    f[U(resource + R_SINCE)] = now


@compiled
def _settle(f: Floats, i: Ints, resource: int, size: int, now: float) -> int:
    """Give a resource the level that it has now; returns how many are listed then."""
    level = _level(f, i, resource)
    before = f[U(resource + R_LEVEL)] if i[U(resource + R_HELD)] else -1.0
    full = level < inf
    if full and abs(level - before) <= EQUAL * level:
        level = before
    if full:
        _read(f, i, resource, now)
        f[U(resource + R_LEVEL)] = level
    for at in users_of(i, resource):
        kind = i[U(at)]
        holder = i[U(kind + K_AT)]
        cap = f[U(kind + K_LEVEL)]
        if holder == resource:
            own = before
        elif holder:
            own = f[U(holder + R_LEVEL)]
            if not full or own * SAME <= level:
                continue  # it is held back at a lower level than this one's
            size = _list(f, i, holder, size)
        else:
            own = cap if f[U(kind + K_RATE)] > 0.0 else 0.0
        if full and cap * SAME > level:
            if holder != resource or level > before:
                lower = _lower(f, i, kind, resource, level)
                if lower:
                    _read(f, i, lower, now)
                    hold(f, i, kind, lower, now)
                    size = _spread(f, i, kind, 0, f[U(lower + R_LEVEL)] - own, size)
                    size = _list(f, i, resource, size)
                    continue
            if holder != resource or i[U(kind + K_DIRTY)]:
                hold(f, i, kind, resource, now)
            if level != own:
                size = _spread(f, i, kind, resource, level - own, size)
        elif holder or i[U(kind + K_DIRTY)]:
            let_go(f, i, kind, now)
            if cap != own:
                size = _spread(f, i, kind, resource, cap - own, size)
    if i[U(resource + R_HELD)]:
        reschedule(f, i, resource, now)
    elif full:
        size = _list(f, i, resource, size)
    return size


@compiled
def ripple(f: Floats, i: Ints, now: float) -> None:
    """Solve what changed in cells that are not to be solved as a whole.

    Where that comes to no end soon, or much has changed, the cell is left to filling.
    """
    base, size = i[U(SCRATCH)], 0
    resource = i[U(DIRTY_RESOURCES)]
    rounds = 16
    while resource:
        if i[U(resource + R_CONTENDED)]:
            cell = i[U(resource + R_CELL)]
            if i[U(cell + C_WHOLE)] == 0:
                if 2 * i[U(cell + C_TOUCHED)] > 16 + i[U(cell + C_SIZE)]:
                    i[U(cell + C_WHOLE)] = 1
                else:
                    size = _list(f, i, resource, size)
                    rounds += 4
        resource = i[U(resource + R_NEXT_DIRTY)]
    while size:
        resource = i[U(base + 1)]
        size = drop(f, i, base, size)
        i[U(resource + R_LISTED)] = 0
        cell = i[U(resource + R_CELL)]
        if i[U(cell + C_WHOLE)]:
            continue
        rounds -= 1
        if rounds < 0:
            i[U(cell + C_WHOLE)] = 1
        else:
            size = _settle(f, i, resource, size, now)
