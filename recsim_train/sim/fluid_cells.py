"""Max-min fair rates: which resources hang together, and progressive filling of what does.

A kind is held back by one resource, or runs at its cap. All kinds that a resource holds back have
one level (rate / weight), so the resource carries the clock for all of them: the integral of the
level. A change of level is one change, however many kinds it moves; only a kind that gets another
resource to hold it back is touched itself.
"""

from __future__ import annotations

from math import inf

from numba import njit

from recsim_train.sim.fluid_heaps import cancel_due, drop, heapify, set_due, sift
from recsim_train.sim.fluid_layout import (
    A_FINISH,
    C_AGE,
    C_DIRTY,
    C_FIRST,
    C_LAST,
    C_NEXT,
    C_SIZE,
    DIGITS,
    DIRTY_CELLS,
    DIRTY_KINDS,
    DIRTY_RESOURCES,
    FREE_CELL,
    FULL,
    IDEAL,
    K_AT,
    K_CAP,
    K_CLOCK,
    K_COUNT,
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
    LIST,
    MARK,
    R_CAP_LOW,
    R_CAPACITY,
    R_CELL,
    R_CLOCK,
    R_CONTENDED,
    R_COUNT,
    R_DEMAND,
    R_DIRTY,
    R_DUE,
    R_FIRST_KEY,
    R_FIRST_KIND,
    R_FLOOR,
    R_HELD,
    R_LEFT,
    R_LEVEL,
    R_MARK,
    R_NEXT,
    R_NEXT_DIRTY,
    R_PULL,
    R_RISING,
    R_SINCE,
    R_STALE,
    R_TOTAL,
    R_USERS,
    SCRATCH,
    SOLVES,
    Floats,
    Ints,
)

# ---------------------------------------------------------------- clocks


@njit
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


@njit
def touch(i: Ints, kind: int) -> None:
    """A kind takes part in the next solve."""
    if i[kind + K_DIRTY] == 0:
        i[kind + K_DIRTY] = 1
        i[kind + K_NEXT_DIRTY] = i[DIRTY_KINDS]
        i[DIRTY_KINDS] = kind


@njit
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


@njit
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


@njit
def _let_go(f: Floats, i: Ints, kind: int, now: float) -> None:
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


@njit
def _refresh(f: Floats, i: Ints, resource: int, mark: int) -> None:
    """Sum a resource's pull anew over the kinds that still rise."""
    total = 0.0
    users = i[resource + R_USERS]
    for at in range(users, users + 2 * i[resource + R_COUNT], 2):
        if i[i[at] + K_FROZEN] != mark:
            total += f[i[at + 1] + 1]
    f[resource + R_PULL] = total
    f[resource + R_FLOOR] = total * DIGITS


@njit
def _freeze(f: Floats, i: Ints, kind: int, level: float, mark: int) -> None:
    """Take a kind out of the filling at ``level``."""
    i[kind + K_FROZEN] = mark
    first = kind + K_HOT
    for use in range(first, first + 2 * i[kind + K_USES], 2):
        resource = i[use]
        if i[resource + R_CONTENDED]:
            pull = f[use + 1]
            i[resource + R_RISING] -= 1
            f[resource + R_PULL] -= pull
            f[resource + R_LEFT] = max(0.0, f[resource + R_LEFT] - pull * level)


@njit
def _caps(f: Floats, i: Ints, cell: int, base: int, mark: int) -> int:
    """Make the heap of the caps of all kinds that still rise; returns its length."""
    size = 0
    resource = i[cell + C_FIRST]
    while resource:
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


@njit
def _fill(f: Floats, i: Ints, cell: int, now: float) -> None:
    """Progressive filling of a cell.

    What a resource offers to those that still rise only grows while others stop, so an old figure
    is a lower bound, and only the smallest has to be worked out anew.
    """
    i[MARK] += 1
    mark = i[MARK]
    base, resources = i[SCRATCH], 0
    lowest_cap = inf
    resource = i[cell + C_FIRST]
    while resource:
        at = base + 2 * resources
        left, pull = f[resource + R_CAPACITY], f[resource + R_TOTAL]
        f[resource + R_LEFT] = left
        f[resource + R_PULL] = pull
        f[resource + R_FLOOR] = pull * DIGITS
        i[resource + R_RISING] = i[resource + R_COUNT]
        lowest_cap = min(lowest_cap, f[resource + R_CAP_LOW])
        f[at] = left / pull
        i[at + 1] = resource
        resources += 1
        resource = i[resource + R_NEXT]
    heapify(f, i, base, resources)
    caps, capped = base + 2 * resources, -1  # heap of caps: made when the first one may bind
    level = 0.0
    while resources:
        resource = i[base + 1]
        if i[resource + R_RISING] == 0:
            resources = drop(f, i, base, resources)
            continue
        if f[resource + R_PULL] < f[resource + R_FLOOR]:
            _refresh(f, i, resource, mark)
        fits = f[resource + R_LEFT] / f[resource + R_PULL]
        if fits > f[base]:
            f[base] = fits
            sift(f, i, base, resources, 0)
            if i[base + 1] != resource:
                continue
        if lowest_cap <= max(level, fits):
            if capped < 0:
                capped = _caps(f, i, cell, caps, mark)
            stopped = False
            while capped and f[caps] <= max(level, fits):
                kind = i[caps + 1]
                capped = drop(f, i, caps, capped)
                if i[kind + K_FROZEN] != mark:
                    _freeze(f, i, kind, f[kind + K_LEVEL], mark)
                    _let_go(f, i, kind, now)
                    stopped = True
            lowest_cap = f[caps] if capped else inf
            if stopped:
                continue
        level = max(level, fits)  # levels only rise: what looks lower is rounding
        f[resource + R_CLOCK] += f[resource + R_LEVEL] * (now - f[resource + R_SINCE])
        f[resource + R_SINCE] = now
        f[resource + R_LEVEL] = level
        users = i[resource + R_USERS]
        for at in range(users, users + 2 * i[resource + R_COUNT], 2):
            kind = i[at]
            if i[kind + K_FROZEN] != mark:
                _freeze(f, i, kind, level, mark)
                if i[kind + K_AT] != resource or i[kind + K_DIRTY]:
                    _hold(f, i, kind, resource, now)


@njit
def _first(f: Floats, i: Ints, resource: int) -> None:
    """Find the first kind that is done of those that a resource holds back."""
    key, first = inf, 0
    users = i[resource + R_USERS]
    for at in range(users, users + 2 * i[resource + R_COUNT], 2):
        kind = i[at]
        if i[kind + K_AT] == resource and f[kind + K_KEY] < key:
            key, first = f[kind + K_KEY], kind
    f[resource + R_FIRST_KEY] = key
    i[resource + R_FIRST_KIND] = first
    i[resource + R_STALE] = 0


@njit
def _solve_cell(f: Floats, i: Ints, cell: int, now: float) -> None:
    """Levels of a cell's resources, and when the first of its kinds is done."""
    _fill(f, i, cell, now)
    earliest = inf
    resource = i[cell + C_FIRST]
    while resource:
        if i[resource + R_HELD]:
            if i[resource + R_STALE]:
                _first(f, i, resource)
            left = f[resource + R_FIRST_KEY] - f[resource + R_CLOCK]
            due = max(now, now + left / f[resource + R_LEVEL])
            f[resource + R_DUE] = due
            earliest = min(earliest, due)
        else:
            f[resource + R_LEVEL] = 0.0
            f[resource + R_DUE] = inf
        resource = i[resource + R_NEXT]
    set_due(f, i, cell, earliest)


# ---------------------------------------------------------------- what hangs together


@njit
def _dirty_cell(i: Ints, cell: int) -> None:
    if i[cell + C_DIRTY] == 0:
        i[cell + C_DIRTY] = 1
        i[cell + C_NEXT] = i[DIRTY_CELLS]
        i[DIRTY_CELLS] = cell


@njit
def _new_cell(i: Ints, first: int) -> int:
    """A cell of one resource so far."""
    cell = i[FREE_CELL]
    i[FREE_CELL] = i[cell + C_NEXT]
    i[cell + C_FIRST] = i[cell + C_LAST] = first
    i[cell + C_SIZE] = 1
    i[cell + C_AGE] = 0
    i[cell + C_DIRTY] = 0
    i[first + R_CELL] = cell
    i[first + R_NEXT] = 0
    return cell


@njit
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
    cancel_due(f, i, b)
    _dirty_cell(i, b)  # where it is found and freed
    return a


@njit
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
    cancel_due(f, i, cell)
    i[cell + C_NEXT] = i[FREE_CELL]
    i[FREE_CELL] = cell
    for at in range(base, base + size):
        resource = i[at]
        if i[resource + R_MARK] == mark:
            continue
        i[resource + R_MARK] = mark
        made = _new_cell(i, resource)
        while resource:  # the chain grows while it is walked
            users = i[resource + R_USERS]
            for user in range(users, users + 2 * i[resource + R_COUNT], 2):
                kind = i[user]
                if i[kind + K_MARK] == mark:
                    continue
                i[kind + K_MARK] = mark
                first = kind + K_HOT
                for use in range(first, first + 2 * i[kind + K_USES], 2):
                    other = i[use]
                    if i[other + R_CONTENDED] and i[other + R_MARK] != mark:
                        i[other + R_MARK] = mark
                        i[other + R_CELL] = made
                        i[other + R_NEXT] = 0
                        i[i[made + C_LAST] + R_NEXT] = other
                        i[made + C_LAST] = other
                        i[made + C_SIZE] += 1
            resource = i[resource + R_NEXT]
        _solve_cell(f, i, made, now)


@njit
def _contention(f: Floats, i: Ints) -> None:
    """Which of the resources that were touched may limit their users from now on."""
    resource = i[DIRTY_RESOURCES]
    while resource:
        i[resource + R_DIRTY] = 0
        full = f[resource + R_DEMAND] > f[resource + R_CAPACITY] * FULL and i[IDEAL] == 0
        if full != (i[resource + R_CONTENDED] == 1):
            i[resource + R_CONTENDED] = 1 if full else 0
            if full:
                _dirty_cell(i, _new_cell(i, resource))
            else:
                i[i[resource + R_CELL] + C_AGE] = 1 << 40  # it no longer hangs together
                _dirty_cell(i, i[resource + R_CELL])
            users = i[resource + R_USERS]
            for at in range(users, users + 2 * i[resource + R_COUNT], 2):
                touch(i, i[at])
        elif full:
            _dirty_cell(i, i[resource + R_CELL])
        resource = i[resource + R_NEXT_DIRTY]
    i[DIRTY_RESOURCES] = 0


@njit
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
            first = kind + K_HOT
            for use in range(first, first + 2 * i[kind + K_USES], 2):
                resource = i[use]
                if i[resource + R_CONTENDED]:
                    cell = _join(f, i, cell, i[resource + R_CELL]) if cell else i[resource + R_CELL]
            if cell:
                _dirty_cell(i, cell)
            else:
                _let_go(f, i, kind, now)
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
    while left:
        cell, left = left, i[left + C_NEXT]
        i[cell + C_DIRTY] = 0
        i[cell + C_AGE] += 1
        if 4 * i[cell + C_AGE] > i[cell + C_SIZE]:
            _regroup(f, i, cell, now)
        else:
            _solve_cell(f, i, cell, now)
    i[DIRTY_CELLS] = 0
    kind = i[DIRTY_KINDS]
    while kind:
        i[kind + K_DIRTY] = 0
        kind = i[kind + K_NEXT_DIRTY]
    i[DIRTY_KINDS] = 0
