"""The compiled half of `recsim_train.sim.fluid`: activities start and end, time moves.

Compiled by numba at first use (some 15 seconds) and cached beside this file. The cache itself looks
at this file only, so what is compiled here also depends on a stamp of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from recsim_train.sim import fluid_cells, fluid_heaps, fluid_layout
from recsim_train.sim.fluid_cells import leave, solve, sync, touch
from recsim_train.sim.fluid_heaps import drop, heapify, merge, pop, set_due
from recsim_train.sim.fluid_layout import (
    A_CHILD,
    A_FINISH,
    A_GROUP,
    A_SERIAL,
    A_SIBLING,
    A_WORDS,
    A_WORK,
    C_FIRST,
    DIGITS,
    DIRTY_RESOURCES,
    DONE,
    DONE_LAST,
    E_DUE,
    E_KIND,
    FREE_ACTIVITY,
    G_LEFT,
    G_NEXT,
    HEAP,
    HEAP_SIZE,
    K_AT,
    K_CAP,
    K_CLOCK,
    K_COUNT,
    K_HOT,
    K_KEY,
    K_LEVEL,
    K_RATE,
    K_ROOT,
    K_SINCE,
    K_STARTS,
    K_USES,
    K_WEIGHT,
    PENDING,
    R_CAP_LOW,
    R_CLOCK,
    R_COUNT,
    R_DEMAND,
    R_DIRTY,
    R_DUE,
    R_HELD,
    R_LEVEL,
    R_NEXT,
    R_NEXT_DIRTY,
    R_PEAK,
    R_SINCE,
    R_TOTAL,
    R_TOUCHES,
    R_USED,
    R_USERS,
    ROUNDING,
    SCRATCH,
    SERIAL,
    TOP,
    Floats,
    Ints,
)

# ---------------------------------------------------------------- activities


@njit
def _sum(f: Floats, i: Ints, resource: int) -> None:
    """Sum anew what a resource's users consume: differences drift."""
    total = demand = 0.0
    users = i[resource + R_USERS]
    for at in range(users, users + 2 * i[resource + R_COUNT], 2):
        pull = f[i[at + 1] + 1]
        total += pull
        demand += pull * f[i[at] + K_LEVEL]
    f[resource + R_TOTAL] = f[resource + R_PEAK] = total
    f[resource + R_DEMAND] = demand


@njit
def _change(f: Floats, i: Ints, kind: int, by: int, now: float) -> None:
    """The number of a kind's activities changes."""
    before = i[kind + K_COUNT]
    count = before + by
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
        if i[resource + R_DIRTY] == 0:
            i[resource + R_DIRTY] = 1
            i[resource + R_NEXT_DIRTY] = i[DIRTY_RESOURCES]
            i[DIRTY_RESOURCES] = resource
        use += 2
        rest += 2
    if count == 0:
        leave(f, i, kind, now)
    touch(i, kind)


@njit
def _start(f: Floats, i: Ints, now: float, kind: int, work: float, group: int) -> None:
    """Start an activity now."""
    if i[kind + K_COUNT]:
        sync(f, i, kind, now)
    else:
        f[kind + K_CLOCK] = f[kind + K_RATE] = f[kind + K_STARTS] = 0.0
        f[kind + K_SINCE] = now
        i[kind + K_ROOT] = 0
    activity = i[FREE_ACTIVITY]
    if activity:
        i[FREE_ACTIVITY] = i[activity + A_SIBLING]
    else:
        activity = i[TOP]
        i[TOP] += A_WORDS
    clock = f[kind + K_CLOCK]
    f[activity + A_FINISH] = clock + work
    f[activity + A_WORK] = work
    i[activity + A_SERIAL] = i[SERIAL]
    i[SERIAL] += 1
    i[activity + A_GROUP] = group
    i[activity + A_CHILD] = i[activity + A_SIBLING] = 0
    root = i[kind + K_ROOT]
    i[kind + K_ROOT] = merge(f, i, root, activity) if root else activity
    f[kind + K_STARTS] += clock
    _change(f, i, kind, 1, now)


@njit
def _end(f: Floats, i: Ints, kind: int, charged: float) -> None:
    """Take away the activity that finishes first, of whose work ``charged`` was done."""
    activity = i[kind + K_ROOT]
    f[kind + K_STARTS] -= f[activity + A_FINISH] - f[activity + A_WORK]
    uses = i[kind + K_USES]
    use = kind + K_HOT
    for _ in range(uses):
        f[i[use] + R_USED] += charged * f[use + 2 * uses]
        use += 2
    group = i[activity + A_GROUP]
    i[group + G_LEFT] -= 1
    if i[group + G_LEFT] == 0:
        i[group + G_NEXT] = 0
        if i[DONE]:
            i[i[DONE_LAST] + G_NEXT] = group
        else:
            i[DONE] = group
        i[DONE_LAST] = group
    i[kind + K_ROOT] = pop(f, i, activity)


# ---------------------------------------------------------------- time


@njit
def _due_kinds(f: Floats, i: Ints, limit: float) -> int:
    """Put (due, kind) of all kinds that are due by ``limit`` into the scratch; how many."""
    base, size = i[SCRATCH], 0
    while i[HEAP_SIZE]:
        entry = i[i[HEAP] + 1]
        if f[entry + E_DUE] > limit:
            break
        kind = i[entry + E_KIND]
        if kind:
            f[base + 2 * size], i[base + 2 * size + 1] = f[entry + E_DUE], kind
            size += 1
        else:
            resource = i[entry + C_FIRST]
            while resource:
                if i[resource + R_HELD] and f[resource + R_DUE] <= limit:
                    users = i[resource + R_USERS]
                    for at in range(users, users + 2 * i[resource + R_COUNT], 2):
                        kind = i[at]
                        if i[kind + K_AT] == resource:
                            left = f[kind + K_KEY] - f[resource + R_CLOCK]
                            due = f[resource + R_SINCE] + left / f[resource + R_LEVEL]
                            if due <= limit:
                                f[base + 2 * size], i[base + 2 * size + 1] = due, kind
                                size += 1
                resource = i[resource + R_NEXT]
        set_due(f, i, entry, inf)  # it is solved again before time moves
    heapify(f, i, base, size)
    return size


@njit
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
            _end(f, i, kind, f[i[kind + K_ROOT] + A_WORK])
            ended += 1
        _change(f, i, kind, -ended, now)


@njit
def _apply(f: Floats, i: Ints, now: float, pending: int) -> None:
    """Start the first ``pending`` entries of the list of changes."""
    at = i[PENDING]
    for _ in range(pending):
        kind, group = i[at], i[at + 2]
        if kind > 0:
            _start(f, i, now, kind, f[at + 1], group)
        else:
            fan = -kind
            for item in range(fan + 1, fan + 1 + 2 * i[fan], 2):
                _start(f, i, now, i[item], f[item + 1], group)
        at += 3


@njit
def _clock(f: Floats, i: Ints, kind: int, now: float) -> float:
    """Reading of a kind's clock now."""
    at = i[kind + K_AT]
    if at:
        reading = f[at + R_CLOCK] + f[at + R_LEVEL] * (now - f[at + R_SINCE])
        return f[kind + K_CLOCK] + f[kind + K_WEIGHT] * (reading - f[kind + K_SINCE])
    return f[kind + K_CLOCK] + f[kind + K_RATE] * (now - f[kind + K_SINCE])


# ---------------------------------------------------------------- called from Python


def _compile(stamp: str) -> tuple[Callable[..., Any], ...]:
    """The functions that Python calls, cached under ``stamp``, too."""

    @njit(cache=True)
    def apply(f: Floats, i: Ints, now: float, pending: int) -> None:
        """Start what is in the list of changes, without solving."""
        _ = stamp
        _apply(f, i, now, pending)

    @njit(cache=True)
    def run(f: Floats, i: Ints, now: float, until: float, pending: int) -> float:
        """Move on until a group is finished or ``until`` is reached.

        Where groups are finished (chained from ``DONE``) returns when; otherwise when the next
        activity is (inf: never), which is after ``until``.
        """
        _ = stamp
        _apply(f, i, now, pending)
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

    @njit(cache=True)
    def cancel(f: Floats, i: Ints, now: float, kind: int, serial: int) -> float:
        """Stop an activity before its end; returns the work left, -1 where it is not running."""
        _ = stamp
        sync(f, i, kind, now)
        clock = f[kind + K_CLOCK]
        left = -1.0
        kept = 0
        while i[kind + K_COUNT] and i[kind + K_ROOT]:  # rare, so it may take all of them apart
            activity = i[kind + K_ROOT]
            if i[activity + A_SERIAL] == serial:
                left = max(0.0, f[activity + A_FINISH] - clock)
                _end(f, i, kind, f[activity + A_WORK] - left)
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
            _change(f, i, kind, -1, now)
        return left

    @njit(cache=True)
    def used(f: Floats, i: Ints, now: float, resources: Ints) -> Floats:
        """Units consumed so far of each of ``resources``."""
        _ = stamp
        found = np.zeros(resources.size)
        for index in range(resources.size):
            resource = resources[index]
            total = f[resource + R_USED]
            users = i[resource + R_USERS]
            for at in range(users, users + 2 * i[resource + R_COUNT], 2):
                kind, use = i[at], i[at + 1]
                done = i[kind + K_COUNT] * _clock(f, i, kind, now) - f[kind + K_STARTS]
                total += done * f[use + 2 * i[kind + K_USES]]
            found[index] = total
        return found

    @njit(cache=True)
    def peek(f: Floats, i: Ints, now: float, pending: int) -> float:
        """When the next activity is finished (inf: never) if nothing changes any more."""
        _ = stamp
        _apply(f, i, now, pending)
        solve(f, i, now)
        return f[i[i[HEAP] + 1] + E_DUE] if i[HEAP_SIZE] else inf

    @njit(cache=True)
    def resume(f: Floats, i: Ints, now: float, kind: int, work: float, group: int) -> None:
        """Start one activity of a group that exists."""
        _ = stamp
        _start(f, i, now, kind, work, group)

    return apply, run, cancel, used, peek, resume


def _stamp() -> str:
    found = []
    for module in (fluid_layout, fluid_heaps, fluid_cells):
        assert module.__file__ is not None
        status = Path(module.__file__).stat()
        found.append(f"{status.st_size}.{status.st_mtime_ns}")
    return " ".join(found)


apply, run, cancel, used, peek, resume = _compile(_stamp())
