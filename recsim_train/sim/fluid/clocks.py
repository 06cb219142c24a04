"""Who holds a kind back, how much work it has done, and when it is done.

A kind is held back by one resource, or runs at its cap. All kinds that a resource holds back have
one level (rate / weight), so the resource carries the clock for all of them: the integral of the
level. A change of level is one change, however many kinds it moves; only a kind that gets another
resource to hold it back is touched itself.
"""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.chains import set_due
from recsim_train.sim.fluid.layout import (
    A_FINISH,
    DIRTY_KINDS,
    K_AT,
    K_CAP,
    K_CLOCK,
    K_DIRTY,
    K_FIRST,
    K_KEY,
    K_NEXT_DIRTY,
    K_RATE,
    K_SINCE,
    K_WEIGHT,
    R_CLOCK,
    R_FIRST_KEY,
    R_FIRST_KIND,
    R_HELD,
    R_LEVEL,
    R_SINCE,
    R_STALE,
    Floats,
    Ints,
    U,
    compiled,
    users_of,
)


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
def enlist(i: Ints, record: int, flag: int, link: int, head: int) -> None:
    """Put a record into the list that begins at ``head``, unless its ``flag`` says it is there."""
    if i[record + flag] == 0:
        i[record + flag] = 1
        i[record + link] = i[head]
        i[head] = record


@compiled
def touch(i: Ints, kind: int) -> None:
    """A kind takes part in the next solve."""
    enlist(i, kind, K_DIRTY, K_NEXT_DIRTY, DIRTY_KINDS)


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
            set_due(f, i, -at, inf)
        elif i[at + R_FIRST_KIND] == kind:
            i[at + R_STALE] = 1
        i[kind + K_AT] = 0
        f[kind + K_SINCE] = now
    else:
        set_due(f, i, kind, inf)
    f[kind + K_RATE] = 0.0


@compiled
def hold(f: Floats, i: Ints, kind: int, at: int, now: float) -> None:
    """A kind is held back by a resource whose clock was read now; or it was, and has changed."""
    if i[kind + K_AT] == at:
        sync(f, i, kind, now)
    else:
        leave(f, i, kind, now)
        i[kind + K_AT] = at
        i[at + R_HELD] += 1
        f[kind + K_SINCE] = f[at + R_CLOCK]
    left = f[i[kind + K_FIRST] + A_FINISH] - f[kind + K_CLOCK]
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
    left = f[i[kind + K_FIRST] + A_FINISH] - f[kind + K_CLOCK]
    set_due(f, i, kind, max(now, now + left / f[kind + K_CAP]))


@compiled
def _first(f: Floats, i: Ints, resource: int) -> None:
    """Find the first kind that is done of those that a resource holds back."""
    key, first = inf, 0
    for at in users_of(i, resource):
        kind = i[U(at)]
        if i[U(kind + K_AT)] == resource and f[U(kind + K_KEY)] < key:
            key, first = f[U(kind + K_KEY)], kind
    f[U(resource + R_FIRST_KEY)] = key
    i[U(resource + R_FIRST_KIND)] = first
    i[U(resource + R_STALE)] = 0


@compiled
def reschedule(f: Floats, i: Ints, resource: int, now: float) -> None:
    """When the first of those that a resource holds back is done; its clock was read now."""
    if i[U(resource + R_STALE)]:
        _first(f, i, resource)
    left = f[U(resource + R_FIRST_KEY)] - f[U(resource + R_CLOCK)]
    level = f[U(resource + R_LEVEL)]  # 0 where there is no capacity: never, as it is now
    set_due(f, i, -resource, max(now, now + left / level) if level > 0.0 else inf)
