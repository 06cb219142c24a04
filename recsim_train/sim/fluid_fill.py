"""Max-min fair rates of one cell: progressive filling, and who holds whom back.

A kind is held back by one resource, or runs at its cap. All kinds that a resource holds back have
one level (rate / weight), so the resource carries the clock for all of them: the integral of the
level. A change of level is one change, however many kinds it moves; only a kind that gets another
resource to hold it back is touched itself.
"""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid_heaps import cancel_due, drop, heapify, set_due, sift
from recsim_train.sim.fluid_layout import (
    A_FINISH,
    C_FIRST,
    C_KEEP,
    DIGITS,
    DIRTY_KINDS,
    K_AT,
    K_CAP,
    K_CLOCK,
    K_DIRTY,
    K_ENTRY,
    K_FROZEN,
    K_HOT,
    K_KEY,
    K_LEVEL,
    K_MARK,
    K_NEXT_DIRTY,
    K_RATE,
    K_ROOT,
    K_SINCE,
    K_USES,
    K_WEIGHT,
    MARK,
    R_CAP_LOW,
    R_CAPACITY,
    R_CLOCK,
    R_COUNT,
    R_DUE,
    R_FIRST_KEY,
    R_FIRST_KIND,
    R_FLOOR,
    R_HELD,
    R_LEFT,
    R_LEVEL,
    R_NEXT,
    R_PULL,
    R_RISING,
    R_SINCE,
    R_STALE,
    R_TOTAL,
    R_USERS,
    SCRATCH,
    Floats,
    Ints,
    U,
    compiled,
)

KEPT = 1.0 - 1e-9
"""Levels closer than this are one."""
STAYS = -1
"""Of rising kinds: the resource stays as the last solution has it."""

# ---------------------------------------------------------------- clocks


@compiled
def sync(f: Floats, i: Ints, kind: int, now: float) -> None:
    """Bring a kind's clock of work done up to now."""
    at = i[kind + K_AT]
    if at:
        reading = f[at + R_CLOCK] + f[at + R_LEVEL] * (now - f[at + R_SINCE])
        f[kind + K_CLOCK] += f[kind + K_WEIGHT] * (reading - f[kind + K_SINCE])
        f[kind + K_SINCE] = reading
    else:
        f[kind + K_CLOCK] += f[kind + K_RATE] * (now - f[kind + K_SINCE])
        f[kind + K_SINCE] = now


@compiled
def touch(i: Ints, kind: int) -> None:
    """A kind takes part in the next solve."""
    if i[kind + K_DIRTY] == 0:
        i[kind + K_DIRTY] = 1
        i[kind + K_NEXT_DIRTY] = i[DIRTY_KINDS]
        i[DIRTY_KINDS] = kind


@compiled
def leave(f: Floats, i: Ints, kind: int, now: float) -> None:
    """A kind is held back by nothing, and has no rate, until it gets one."""
    sync(f, i, kind, now)
    at = i[kind + K_AT]
    if at:
        i[at + R_HELD] -= 1
        if i[at + R_HELD] == 0:
            f[at + R_CLOCK] = f[at + R_LEVEL] = 0.0
            f[at + R_SINCE] = now
            f[at + R_FIRST_KEY] = inf
            i[at + R_FIRST_KIND] = 0
            i[at + R_STALE] = 0
        elif i[at + R_FIRST_KIND] == kind:
            i[at + R_STALE] = 1
        i[kind + K_AT] = 0
        f[kind + K_SINCE] = now
    else:
        cancel_due(f, i, kind + K_ENTRY)
    f[kind + K_RATE] = 0.0


@compiled
def _hold(f: Floats, i: Ints, kind: int, at: int, now: float) -> None:
    """A kind is held back by a resource whose clock was read now; or it was, and has changed."""
    if i[kind + K_AT] == at:
        sync(f, i, kind, now)
    else:
        leave(f, i, kind, now)
        i[kind + K_AT] = at
        i[at + R_HELD] += 1
        f[kind + K_SINCE] = f[at + R_CLOCK]
    left = f[i[kind + K_ROOT] + A_FINISH] - f[kind + K_CLOCK]
    key = f[at + R_CLOCK] + left / f[kind + K_WEIGHT]
    f[kind + K_KEY] = key
    if key < f[at + R_FIRST_KEY]:
        f[at + R_FIRST_KEY] = key
        i[at + R_FIRST_KIND] = kind
    elif i[at + R_FIRST_KIND] == kind:
        i[at + R_STALE] = 1


@compiled
def let_go(f: Floats, i: Ints, kind: int, now: float) -> None:
    """A kind runs at its cap."""
    if i[kind + K_AT]:
        leave(f, i, kind, now)
    elif i[kind + K_DIRTY] == 0 and f[kind + K_RATE] == f[kind + K_CAP]:
        return
    else:
        sync(f, i, kind, now)
    f[kind + K_RATE] = f[kind + K_CAP]
    left = f[i[kind + K_ROOT] + A_FINISH] - f[kind + K_CLOCK]
    set_due(f, i, kind + K_ENTRY, max(now, now + left / f[kind + K_CAP]))


# ---------------------------------------------------------------- filling


@compiled
def _refresh(f: Floats, i: Ints, resource: int, mark: int) -> None:
    """Sum a resource's pull anew over the kinds that still rise."""
    total = 0.0
    users = i[resource + R_USERS]
    for at in range(users, users + 2 * i[resource + R_COUNT], 2):
        if i[i[at] + K_FROZEN] != mark:
            total += f[i[at + 1] + 1]
    f[resource + R_PULL] = total
    f[resource + R_FLOOR] = total * DIGITS


@compiled
def _freeze(f: Floats, i: Ints, kind: int, level: float, mark: int, full: int) -> None:
    """Take a kind out of the filling at ``level``."""
    i[U(kind + K_FROZEN)] = mark
    first = kind + K_HOT
    for use in range(first, first + 2 * i[U(kind + K_USES)], 2):
        resource = i[U(use)]
        if resource != full:
            # one that is not contended has no use for these figures, and takes no harm
            pull = f[U(use + 1)]
            i[U(resource + R_RISING)] -= 1
            f[U(resource + R_PULL)] -= pull
            f[U(resource + R_LEFT)] -= pull * level


@compiled
def _caps(f: Floats, i: Ints, cell: int, base: int, mark: int) -> int:
    """Make the heap of the caps of all kinds that still rise; returns its length."""
    size = 0
    resource = i[cell + C_FIRST]
    while resource:
        if i[resource + R_RISING] == STAYS:  # all its users stay, too
            resource = i[resource + R_NEXT]
            continue
        lowest = inf
        users = i[resource + R_USERS]
        for at in range(users, users + 2 * i[resource + R_COUNT], 2):
            kind = i[at]
            lowest = min(lowest, f[kind + K_LEVEL])
            if i[kind + K_FROZEN] != mark and i[kind + K_MARK] != mark:
                i[kind + K_MARK] = mark
                f[base + 2 * size] = f[kind + K_LEVEL]
                i[base + 2 * size + 1] = kind
                size += 1
        f[resource + R_CAP_LOW] = lowest
        resource = i[resource + R_NEXT]
    heapify(f, i, base, size)
    return size


@compiled
def _keep(f: Floats, i: Ints, cell: int, keep: float) -> None:
    """Mark the resources that were full below a level up to which nothing has changed.

    Up to there the filling is the same as the last time. An activity that is gone had risen at
    least as far, so that none of its resources was full before; one that has come fills none of its
    resources before that one's capacity over all its users' pull.
    """
    resource = i[U(cell + C_FIRST)]
    while resource:
        full = i[U(resource + R_HELD)] > 0 and f[U(resource + R_LEVEL)] < keep
        i[U(resource + R_RISING)] = STAYS if full else 0
        resource = i[U(resource + R_NEXT)]


@compiled
def _resume(f: Floats, i: Ints, resource: int, keep: float, mark: int) -> float:
    """What is left of a resource at a level, and who still rises; returns their lowest cap."""
    left, pull, rising = f[U(resource + R_CAPACITY)], 0.0, 0
    lowest: float = f[U(resource + R_CAP_LOW)]
    search = lowest < keep
    if search:
        lowest = inf
    users = i[U(resource + R_USERS)]
    for at in range(users, users + 2 * i[U(resource + R_COUNT)], 2):
        kind = i[U(at)]
        mine = f[U(i[U(at + 1)] + 1)]
        holder = i[U(kind + K_AT)]
        if holder and i[U(holder + R_RISING)] == STAYS:
            i[U(kind + K_FROZEN)] = mark
            left -= mine * f[U(holder + R_LEVEL)]
        elif holder == 0 and f[U(kind + K_RATE)] > 0.0 and f[U(kind + K_LEVEL)] < keep:
            i[U(kind + K_FROZEN)] = mark
            left -= mine * f[U(kind + K_LEVEL)]
        else:
            pull += mine
            rising += 1
            if search:
                lowest = min(lowest, f[U(kind + K_LEVEL)])
    f[U(resource + R_LEFT)] = left
    f[U(resource + R_PULL)] = pull
    i[U(resource + R_RISING)] = rising
    return lowest


@compiled
def _fill(f: Floats, i: Ints, cell: int, now: float) -> None:
    """Progressive filling of a cell, from the level up to which the last solution still holds.

    What a resource offers to those that still rise only grows while others stop, so an old figure
    is a lower bound, and only the smallest has to be worked out anew.
    """
    i[U(MARK)] += 1
    mark = i[U(MARK)]
    base, resources = i[U(SCRATCH)], 0
    lowest_cap = inf
    keep = f[U(cell + C_KEEP)] * KEPT
    level = 0.0
    if 0.0 < keep < inf:
        level = keep
        _keep(f, i, cell, keep)
    resource = i[U(cell + C_FIRST)]
    while resource:
        if level == 0.0:
            f[U(resource + R_LEFT)] = f[U(resource + R_CAPACITY)]
            f[U(resource + R_PULL)] = f[U(resource + R_TOTAL)]
            i[U(resource + R_RISING)] = i[U(resource + R_COUNT)]
            lowest_cap = min(lowest_cap, f[U(resource + R_CAP_LOW)])
        elif i[U(resource + R_RISING)] != STAYS:
            lowest_cap = min(lowest_cap, _resume(f, i, resource, keep, mark))
        if i[U(resource + R_RISING)] > 0:
            at = base + 2 * resources
            pull = f[U(resource + R_PULL)]
            f[U(resource + R_FLOOR)] = pull * DIGITS
            f[U(at)] = f[U(resource + R_LEFT)] / pull
            i[U(at + 1)] = resource
            resources += 1
        resource = i[U(resource + R_NEXT)]
    heapify(f, i, base, resources)
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
            sift(f, i, base, resources, 0)
            if i[U(base + 1)] != resource:
                continue
        if lowest_cap <= max(level, fits):
            if capped < 0:
                capped = _caps(f, i, cell, caps, mark)
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
        users = i[U(resource + R_USERS)]
        for at in range(users, users + 2 * i[U(resource + R_COUNT)], 2):
            kind = i[U(at)]
            if i[U(kind + K_FROZEN)] != mark:
                _freeze(f, i, kind, level, mark, resource)
                if i[U(kind + K_AT)] != resource or i[U(kind + K_DIRTY)]:
                    _hold(f, i, kind, resource, now)


@compiled
def _first(f: Floats, i: Ints, resource: int) -> None:
    """Find the first kind that is done of those that a resource holds back."""
    key, first = inf, 0
    users = i[U(resource + R_USERS)]
    for at in range(users, users + 2 * i[U(resource + R_COUNT)], 2):
        kind = i[U(at)]
        if i[U(kind + K_AT)] == resource and f[U(kind + K_KEY)] < key:
            key, first = f[U(kind + K_KEY)], kind
    f[U(resource + R_FIRST_KEY)] = key
    i[U(resource + R_FIRST_KIND)] = first
    i[U(resource + R_STALE)] = 0


@compiled
def solve_cell(f: Floats, i: Ints, cell: int, now: float) -> None:
    """Levels of a cell's resources, and when the first of its kinds is done."""
    _fill(f, i, cell, now)
    earliest = inf
    resource = i[U(cell + C_FIRST)]
    while resource:
        if i[U(resource + R_RISING)] == STAYS:
            earliest = min(earliest, f[U(resource + R_DUE)])
        elif i[U(resource + R_HELD)]:
            if i[U(resource + R_STALE)]:
                _first(f, i, resource)
            left = f[U(resource + R_FIRST_KEY)] - f[U(resource + R_CLOCK)]
            level = f[U(resource + R_LEVEL)]  # 0 where there is no capacity: never, as it is now
            due = max(now, now + left / level) if level > 0.0 else inf
            f[U(resource + R_DUE)] = due
            earliest = min(earliest, due)
        else:
            f[U(resource + R_LEVEL)] = 0.0
            f[U(resource + R_DUE)] = inf
        resource = i[U(resource + R_NEXT)]
    f[U(cell + C_KEEP)] = inf
    set_due(f, i, cell, earliest)
