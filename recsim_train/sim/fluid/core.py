"""What Python calls of the compiled half of `recsim_train.sim.fluid`: time moves.

Compiled by numba at first use (some ten seconds), with all that it calls, and kept.
"""

from __future__ import annotations

from math import inf

import numpy as np

from recsim_train.sim.fluid.activities import change, end, start
from recsim_train.sim.fluid.cells import solve
from recsim_train.sim.fluid.clocks import sync
from recsim_train.sim.fluid.heaps import drop, heapify, merge, pop, set_due
from recsim_train.sim.fluid.layout import (
    A_CHILD,
    A_FINISH,
    A_SERIAL,
    A_SIBLING,
    A_WORK,
    DONE,
    E_DUE,
    E_KIND,
    FREE_ACTIVITY,
    HEAP,
    HEAP_SIZE,
    K_AT,
    K_CLOCK,
    K_COUNT,
    K_KEY,
    K_RATE,
    K_ROOT,
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
    place = i[SCRATCH] + 2 * size
    f[place] = i[i[kind + K_ROOT] + A_SERIAL]
    i[place + 1] = kind
    return size + 1


@compiled
def _due_kinds(f: Floats, i: Ints, limit: float) -> int:
    """Put all kinds that are due by ``limit`` into the scratch, as a heap; how many.

    In one instant the order is that of the starts: dues differ by nothing but rounding.
    """
    size = 0
    while i[HEAP_SIZE]:
        entry = i[i[HEAP] + 1]
        if f[entry + E_DUE] > limit:
            break
        kind = i[entry + E_KIND]
        if kind > 0:
            size = _list(f, i, kind, size)
        else:
            resource, found = -kind, size
            for at in users_of(i, resource):
                kind = i[at]
                if i[kind + K_AT] == resource:
                    left = f[kind + K_KEY] - f[resource + R_CLOCK]
                    due = f[resource + R_SINCE] + left / f[resource + R_LEVEL]
                    if due <= limit:
                        size = _list(f, i, kind, size)
            if size == found:  # by nothing but rounding
                size = _list(f, i, i[resource + R_FIRST_KIND], size)
        set_due(f, i, entry, inf)  # it is solved again before time moves
    heapify(f, i, i[SCRATCH], size)
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
        reach = max(f[kind + K_CLOCK], f[i[kind + K_ROOT] + A_FINISH]) + rate * now * ROUNDING
        ended = 0
        while i[kind + K_ROOT] and f[i[kind + K_ROOT] + A_FINISH] <= reach:
            end(f, i, kind, f[i[kind + K_ROOT] + A_WORK])
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
def apply(f: Floats, i: Ints, now: float, pending: int) -> None:
    """Start the first ``pending`` entries of the list of changes, without solving."""
    at = i[PENDING]
    for _ in range(pending):
        start(f, i, now, i[at], f[at + 1], i[at + 2])
        at += 3


@entry
def run(f: Floats, i: Ints, now: float, until: float, pending: int) -> float:
    """Move on until a group is finished or ``until`` is reached.

    Where groups are finished (chained from ``DONE``) returns when; otherwise when the next
    activity is (inf: never), which is after ``until``.
    """
    apply(f, i, now, pending)
    i[DONE] = 0
    while True:
        if until > now:
            solve(f, i, now)
        due = f[i[i[HEAP] + 1] + E_DUE] if i[HEAP_SIZE] else inf
        if due == inf or due > until * (1.0 + ROUNDING):
            return due
        now = max(now, min(due, until))
        _complete(f, i, now)
        if i[DONE]:
            return now


@entry
def cancel(f: Floats, i: Ints, now: float, kind: int, serial: int) -> float:
    """Stop an activity before its end; returns the work left, -1 where it is not running."""
    sync(f, i, kind, now)
    clock = f[kind + K_CLOCK]
    left = -1.0
    kept = 0
    while i[kind + K_COUNT] and i[kind + K_ROOT]:  # rare, so it may take all of them apart
        activity = i[kind + K_ROOT]
        if i[activity + A_SERIAL] == serial:
            left = max(0.0, f[activity + A_FINISH] - clock)
            end(f, i, kind, f[activity + A_WORK] - left)
            continue
        i[kind + K_ROOT] = pop(f, i, activity)
        i[FREE_ACTIVITY] = i[activity + A_SIBLING]
        i[activity + A_SIBLING] = kept
        i[activity + A_CHILD] = 0
        kept = activity
    while kept:
        after = i[kept + A_SIBLING]
        i[kept + A_SIBLING] = 0
        root = i[kind + K_ROOT]
        i[kind + K_ROOT] = merge(f, i, root, kept) if root else kept
        kept = after
    if left >= 0.0:
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
