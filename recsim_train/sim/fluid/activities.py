"""Activities start and end, and their resources learn of it."""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.chains import append, unlink
from recsim_train.sim.fluid.clocks import enlist, leave, sync, touch
from recsim_train.sim.fluid.layout import (
    A_FINISH,
    A_KIND,
    A_NEXT,
    A_WORK,
    DIGITS,
    DIRTY_RESOURCES,
    K_CAP,
    K_CLOCK,
    K_COUNT,
    K_FIRST,
    K_HOT,
    K_LAST,
    K_LEVEL,
    K_PACED,
    K_PLAIN,
    K_RATE,
    K_SINCE,
    K_STARTS,
    K_USES,
    K_WEIGHT,
    R_CAP_LOW,
    R_CAPACITY,
    R_COUNT,
    R_DEMAND,
    R_DIRTY,
    R_NEXT_DIRTY,
    R_PACE,
    R_PEAK,
    R_TOTAL,
    R_TOUCHES,
    R_USED,
    R_USERS,
    Floats,
    Ints,
    compiled,
    entry,
    users_of,
    uses_of,
)

# ---------------------------------------------------------------- activities


@compiled
def _sum(f: Floats, i: Ints, resource: int) -> None:
    """Sum anew what a resource's users consume: differences drift."""
    total = demand = 0.0
    for at in users_of(i, resource):
        pull = f[i[at + 1] + 1]
        total += pull
        demand += pull * f[i[at] + K_LEVEL]
    f[resource + R_TOTAL] = f[resource + R_PEAK] = total
    f[resource + R_DEMAND] = demand


@compiled
def _dirty(i: Ints, resource: int) -> None:
    """A resource takes part in the next solve."""
    enlist(i, resource, R_DIRTY, R_NEXT_DIRTY, DIRTY_RESOURCES)


@compiled
def _keep_pace(f: Floats, i: Ints, kind: int) -> None:
    """Bring a kind's cap up to date with the pace of what it uses."""
    pace = inf
    for use in uses_of(i, kind):
        pace = min(pace, f[i[use] + R_PACE])
    f[kind + K_CAP] = min(f[kind + K_PLAIN], f[kind + K_PACED] * pace)
    f[kind + K_LEVEL] = f[kind + K_CAP] / f[kind + K_WEIGHT]


@entry
def set_pace(f: Floats, i: Ints, resource: int, pace: float) -> None:
    """The pace of a resource changes, and with it the caps of those that use it."""
    f[resource + R_PACE] = pace
    for at in users_of(i, resource):
        kind = i[at]
        before = f[kind + K_LEVEL]
        _keep_pace(f, i, kind)
        level = f[kind + K_LEVEL]
        if level != before:
            for use in uses_of(i, kind):
                used = i[use]
                f[used + R_DEMAND] += f[use + 1] * (level - before)
                f[used + R_CAP_LOW] = min(f[used + R_CAP_LOW], level)
                _dirty(i, used)
            touch(i, kind)


@entry
def set_capacity(f: Floats, i: Ints, resource: int, capacity: float) -> None:
    """The capacity of a resource changes."""
    f[resource + R_CAPACITY] = capacity
    if i[resource + R_COUNT]:
        _dirty(i, resource)
        touch(i, i[i[resource + R_USERS]])  # one is enough: its cell is solved as a whole


@compiled
def change(f: Floats, i: Ints, kind: int, by: int, now: float) -> None:
    """The number of a kind's activities changes."""
    before = i[kind + K_COUNT]
    count = before + by
    if before == 0:
        _keep_pace(f, i, kind)
    i[kind + K_COUNT] = count
    weight, level = f[kind + K_WEIGHT], f[kind + K_LEVEL]
    uses = i[kind + K_USES]
    use, rest = kind + K_HOT, kind + K_HOT + 2 * uses
    for _ in range(uses):
        resource = i[use]
        moved = by * weight * f[rest]
        f[use + 1] = count * weight * f[rest]
        users = i[resource + R_USERS]
        if before == 0:
            place = i[resource + R_COUNT]
            i[users + 2 * place], i[users + 2 * place + 1] = kind, use
            i[rest + 1] = place
            i[resource + R_COUNT] += 1
            f[resource + R_CAP_LOW] = min(f[resource + R_CAP_LOW], level)
        elif count == 0:
            i[resource + R_COUNT] -= 1
            place, last = i[rest + 1], users + 2 * i[resource + R_COUNT]
            other, its_use = i[last], i[last + 1]
            i[users + 2 * place], i[users + 2 * place + 1] = other, its_use
            i[its_use + 2 * i[other + K_USES] + 1] = place
        f[resource + R_TOTAL] += moved
        f[resource + R_DEMAND] += moved * level
        f[resource + R_PEAK] = max(f[resource + R_PEAK], f[resource + R_TOTAL])
        i[resource + R_TOUCHES] += 1
        if (
            i[resource + R_TOUCHES] & 1023 == 0
            or f[resource + R_TOTAL] < f[resource + R_PEAK] * DIGITS
        ):
            _sum(f, i, resource)
        _dirty(i, resource)
        use += 2
        rest += 2
    if count == 0:
        leave(f, i, kind, now)
    touch(i, kind)


@compiled
def start(f: Floats, i: Ints, now: float, activity: int) -> None:
    """Start an activity now."""
    kind = i[activity + A_KIND]
    if i[kind + K_COUNT]:
        sync(f, i, kind, now)
    else:
        f[kind + K_CLOCK] = f[kind + K_RATE] = f[kind + K_STARTS] = 0.0
        f[kind + K_SINCE] = now
    clock = f[kind + K_CLOCK]
    f[activity + A_FINISH] = clock + f[activity + A_WORK]
    _line_up(f, i, kind, activity)
    f[kind + K_STARTS] += clock
    change(f, i, kind, 1, now)


@compiled
def _line_up(f: Floats, i: Ints, kind: int, activity: int) -> None:
    """Put an activity among those of its kind, by when it finishes; equals in order of start."""
    finish, first = f[activity + A_FINISH], i[kind + K_FIRST]
    if first == 0 or f[i[kind + K_LAST] + A_FINISH] <= finish:
        append(i, kind + K_FIRST, activity, A_NEXT)
        return
    before, at = 0, first
    while f[at + A_FINISH] <= finish:
        before, at = at, i[at + A_NEXT]
    i[activity + A_NEXT] = at
    i[before + A_NEXT if before else kind + K_FIRST] = activity


@compiled
def end(f: Floats, i: Ints, kind: int, before: int, activity: int, charged: float) -> None:
    """Take away the activity that finishes after ``before`` (0: that finishes first), of whose
    work ``charged`` was done."""
    f[kind + K_STARTS] -= f[activity + A_FINISH] - f[activity + A_WORK]
    uses = i[kind + K_USES]
    use = kind + K_HOT
    for _ in range(uses):
        f[i[use] + R_USED] += charged * f[use + 2 * uses]
        use += 2
    unlink(i, kind + K_FIRST, before, activity, A_NEXT)
