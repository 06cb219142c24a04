"""What Python calls of the compiled half of `recsim_train.sim.fluid`: time moves.

Compiled by numba at first use (some ten seconds), with all that it calls, and kept.
"""

from __future__ import annotations

from math import inf

import numpy as np

from recsim_train.sim.fluid.activities import change, end, start
from recsim_train.sim.fluid.cells import solve
from recsim_train.sim.fluid.chains import append, drop, insert, next_due, set_due
from recsim_train.sim.fluid.clocks import sync
from recsim_train.sim.fluid.layout import (
    A_FINISH,
    A_NEXT,
    A_SERIAL,
    A_WORK,
    DONE,
    HEAP,
    K_AT,
    K_CLOCK,
    K_COUNT,
    K_FIRST,
    K_KEY,
    K_RATE,
    K_SINCE,
    K_STARTS,
    K_USES,
    K_WEIGHT,
    PENDING,
    R_CLOCK,
    R_FIRST_KIND,
    R_LEVEL,
    R_SINCE,
    R_USED,
    ROUNDING,
    SCRATCH,
    Floats,
    Ints,
    compiled,
    entry,
    users_of,
)

# ---------------------------------------------------------------- time


@compiled
def _list(f: Floats, i: Ints, kind: int, size: int) -> int:
    """Add a kind that is due to the scratch, by when its first activity was started."""
    insert(f, i, i[SCRATCH], size, float(i[i[kind + K_FIRST] + A_SERIAL]), kind)
    return size + 1


@compiled
def _due_kinds(f: Floats, i: Ints, limit: float) -> int:
    """Put all kinds that are due by ``limit`` into the scratch, as a heap; how many.

    In one instant the order is that of the starts: dues differ by nothing but rounding.
    """
    size = 0
    while next_due(f, i) <= limit:
        what = i[i[HEAP] + 1]
        if what > 0:
            size = _list(f, i, what, size)
        else:
            resource, found = -what, size
            for at in users_of(i, resource):
                kind = i[at]
                if i[kind + K_AT] == resource:
                    left = f[kind + K_KEY] - f[resource + R_CLOCK]
                    due = f[resource + R_SINCE] + left / f[resource + R_LEVEL]
                    if due <= limit:
                        size = _list(f, i, kind, size)
            if size == found:  # by nothing but rounding
                size = _list(f, i, i[resource + R_FIRST_KIND], size)
        set_due(f, i, what, inf)  # it is solved again before time moves
    return size


@compiled
def _complete(f: Floats, i: Ints, now: float) -> None:
    """Finish everything that is due at the present instant, in order."""
    size = _due_kinds(f, i, now * (1.0 + ROUNDING))
    base = i[SCRATCH]
    while size:
        kind = i[base + 1]
        size = drop(f, i, base, size)
        sync(f, i, kind, now)
        at = i[kind + K_AT]
        rate = f[at + R_LEVEL] * f[kind + K_WEIGHT] if at else f[kind + K_RATE]
        reach = max(f[kind + K_CLOCK], f[i[kind + K_FIRST] + A_FINISH]) + rate * now * ROUNDING
        ended = 0
        while i[kind + K_FIRST] and f[i[kind + K_FIRST] + A_FINISH] <= reach:
            first = i[kind + K_FIRST]
            end(f, i, kind, 0, first, f[first + A_WORK])
            append(i, DONE, first, A_NEXT)
            ended += 1
        change(f, i, kind, -ended, now)


@compiled
def _clock(f: Floats, i: Ints, kind: int, now: float) -> float:
    """Reading of a kind's clock now."""
    at = i[kind + K_AT]
    rate, reading = f[kind + K_RATE], now
    if at:
        rate = f[kind + K_WEIGHT]
        reading = f[at + R_CLOCK] + f[at + R_LEVEL] * (now - f[at + R_SINCE])
    clock: float = f[kind + K_CLOCK] + rate * (reading - f[kind + K_SINCE])
    return clock


# ---------------------------------------------------------------- called from Python


@entry
def apply(f: Floats, i: Ints, now: float) -> None:
    """Start what is to start, without solving."""
    activity = i[PENDING]
    while activity:
        following = i[activity + A_NEXT]
        start(f, i, now, activity)
        activity = following
    i[PENDING] = 0


@entry
def run(f: Floats, i: Ints, now: float, until: float) -> float:
    """Move on until an activity is finished or ``until`` is reached.

    Where some are finished (chained from ``DONE``) returns when; otherwise when the next one is
    (inf: never), which is after ``until``.
    """
    apply(f, i, now)
    i[DONE] = 0
    while True:
        if until > now:
            solve(f, i, now)
        due = next_due(f, i)
        if due == inf or due > until * (1.0 + ROUNDING):
            return due
        now = max(now, min(due, until))
        _complete(f, i, now)
        if i[DONE]:
            return now


@entry
def cancel(f: Floats, i: Ints, now: float, kind: int, activity: int) -> float:
    """Stop an activity before its end; returns the work left."""
    sync(f, i, kind, now)
    before, at = 0, i[kind + K_FIRST]
    while at != activity:
        before, at = at, i[at + A_NEXT]
    left: float = max(0.0, f[activity + A_FINISH] - f[kind + K_CLOCK])
    end(f, i, kind, before, activity, f[activity + A_WORK] - left)
    change(f, i, kind, -1, now)
    return left


@entry
def used(f: Floats, i: Ints, now: float, resources: Ints) -> Floats:
    """Units consumed so far of each of ``resources``."""
    found = np.zeros(resources.size)
    for index in range(resources.size):
        resource = resources[index]
        total = f[resource + R_USED]
        for at in users_of(i, resource):
            kind, use = i[at], i[at + 1]
            done = i[kind + K_COUNT] * _clock(f, i, kind, now) - f[kind + K_STARTS]
            total += done * f[use + 2 * i[kind + K_USES]]
        found[index] = total
    return found
