"""The compiled half of `recsim_train.sim.fluid`: one block of memory and what happens in it.

All state lies in one block of 64-bit words that is passed as two views, ``F`` (float64) and ``I``
(int64). A record is a run of words, its address is its first word, 0 is nobody; a field is read as
``F[record + FIELD]``. One block instead of an array per field: a record's fields share cache lines,
a call unpacks two arrays (0.2 us) instead of forty (2 us), and a larger copy keeps all addresses.

Compiled once by numba and cached beside this file (a few seconds; see docs/how-it-works.md). All
compiled functions are in this one file, because the cache notices changes of this file only.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-12
"""Completions closer than this share of the clock are one instant."""
FULL = 1.0 + 1e-9
"""A resource is contended when its users could consume more than this share of its capacity."""
DIGITS = 1e-4
"""A sum that shrank by differences below this share of itself is summed anew."""

# The head of the block.
SERIAL = 0  # activities started
MARK = 1  # the present solve
DIRTY = 2  # first kind whose number of activities changed since the last solve
SOLVES = 3
IDEAL = 4  # 1: sharing costs nothing
FREE_ACTIVITY = 5  # chains of records to use again
FREE_CELL = 6
TOP = 7  # first word never used
HEAP = 8  # binary heap of cells by due time: its words, its length
HEAP_SIZE = 9
SCRATCH = 10  # words for heaps of (key, record) pairs
DONE = 11  # groups finished by the last call, first and last
DONE_LAST = 12
LIMBO = 13  # cells given up during the present solve
PENDING = 14  # (kind or -fan, work, group) triples that `run` starts
HEAD_WORDS = 16

# Resource.
R_CAPACITY = 0
R_USED = 1  # units consumed by activities that are over
R_DEMAND = 2  # what its users consume when each runs at its cap
R_TOUCHES = 3
R_CONTENDED = 4  # 1: it may limit its users
R_FIRST = 5  # chain of uses by kinds with activities
R_LAST = 6
R_MARK = 7
R_SEEN = 8
R_LEFT = 9  # filling: capacity not yet given to frozen kinds
R_PULL = 10  # filling: consumption per unit of level by kinds still rising
R_RISING = 11  # filling: kinds still rising
R_FLOOR = 12  # filling: below this the pull has lost its digits
R_WORDS = 13

# Kind; its uses follow.
K_CLOCK = 0  # work that an activity has done that ran all the time
K_SINCE = 1  # when the clock was read
K_RATE = 2
K_CAP = 3
K_WEIGHT = 4
K_LEVEL = 5  # cap / weight
K_COUNT = 6
K_STARTS = 7  # sum of the clock over the starts of running activities
K_ROOT = 8  # pairing heap of activities by finish
K_MARK = 9
K_FROZEN = 10
K_CELL = 11
K_NEXT = 12  # chain of a cell's kinds
K_DUE = 13
K_DIRTY = 14
K_NEXT_DIRTY = 15
K_NEW = 16  # rate after the solve
K_USES = 17
K_WORDS = 18
U_RESOURCE = 0
U_COEFFICIENT = 1
U_KIND = 2
U_BEFORE = 3  # chain of the resource's uses
U_AFTER = 4
U_WORDS = 5

A_FINISH = 0  # reading of the kind's clock
A_WORK = 1
A_SERIAL = 2
A_GROUP = 3
A_CHILD = 4
A_SIBLING = 5
A_WORDS = 6

G_LEFT = 0  # activities still running
G_NEXT = 1
G_WORDS = 2

# A cell: kinds that were solved together, so that one entry in the heap stands for all of them.
C_DUE = 0
C_PLACE = 1  # in the heap; -1: given up
C_FIRST = 2
C_NEXT = 3
C_WORDS = 4


# ---------------------------------------------------------------- heap of cells


@njit(cache=True)
def _rise(F: Floats, I: Ints, place: int) -> None:
    heap = I[HEAP]
    cell = I[heap + place]
    due = F[cell + C_DUE]
    while place:
        parent = (place - 1) >> 1
        above = I[heap + parent]
        if F[above + C_DUE] <= due:
            break
        I[heap + place] = above
        I[above + C_PLACE] = place
        place = parent
    I[heap + place] = cell
    I[cell + C_PLACE] = place


@njit(cache=True)
def _sink(F: Floats, I: Ints, place: int) -> None:
    heap, size = I[HEAP], I[HEAP_SIZE]
    cell = I[heap + place]
    due = F[cell + C_DUE]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and F[I[heap + below + 1] + C_DUE] < F[I[heap + below] + C_DUE]:
            below += 1
        child = I[heap + below]
        if F[child + C_DUE] >= due:
            break
        I[heap + place] = child
        I[child + C_PLACE] = place
        place = below
    I[heap + place] = cell
    I[cell + C_PLACE] = place


@njit(cache=True)
def _give_up(F: Floats, I: Ints, kind: int) -> None:
    """Take a kind out of its cell, which is solved anew; all its other kinds come by, too."""
    cell = I[kind + K_CELL]
    I[kind + K_CELL] = 0
    if cell == 0 or I[cell + C_PLACE] < 0:
        return
    place = I[cell + C_PLACE]
    I[HEAP_SIZE] -= 1
    last = I[I[HEAP] + I[HEAP_SIZE]]
    if last != cell:
        I[I[HEAP] + place] = last
        I[last + C_PLACE] = place
        _rise(F, I, place)
        _sink(F, I, I[last + C_PLACE])
    I[cell + C_PLACE] = -1
    # not used again before the end of this solve: other kinds still name it
    I[cell + C_NEXT] = I[LIMBO]
    I[LIMBO] = cell


# ---------------------------------------------------------------- heap of (key, record) pairs


@njit(cache=True)
def _sift(F: Floats, I: Ints, base: int, size: int, place: int) -> None:
    """Let the pair at ``place`` sink; equal keys go by address."""
    key, record = F[base + 2 * place], I[base + 2 * place + 1]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        at = base + 2 * below
        if below + 1 < size and (
            F[at + 2] < F[at] or (F[at + 2] == F[at] and I[at + 3] < I[at + 1])
        ):
            below += 1
            at += 2
        if F[at] > key or (F[at] == key and I[at + 1] > record):
            break
        F[base + 2 * place] = F[at]
        I[base + 2 * place + 1] = I[at + 1]
        place = below
    F[base + 2 * place] = key
    I[base + 2 * place + 1] = record


@njit(cache=True)
def _heapify(F: Floats, I: Ints, base: int, size: int) -> None:
    for place in range(size // 2 - 1, -1, -1):
        _sift(F, I, base, size, place)


@njit(cache=True)
def _drop(F: Floats, I: Ints, base: int, size: int) -> int:
    """Take the smallest pair away; returns how many are left."""
    size -= 1
    F[base] = F[base + 2 * size]
    I[base + 1] = I[base + 2 * size + 1]
    if size > 1:
        _sift(F, I, base, size, 0)
    return size


# ---------------------------------------------------------------- activities


@njit(cache=True)
def _merge(F: Floats, I: Ints, a: int, b: int) -> int:
    """Join two pairing heaps of activities; the root finishes first, equals in order of start."""
    if F[b + A_FINISH] < F[a + A_FINISH] or (
        F[b + A_FINISH] == F[a + A_FINISH] and I[b + A_SERIAL] < I[a + A_SERIAL]
    ):
        a, b = b, a
    I[b + A_SIBLING] = I[a + A_CHILD]
    I[a + A_CHILD] = b
    return a


@njit(cache=True)
def _pop(F: Floats, I: Ints, root: int) -> int:
    """The pairing heap without its root; the root's record can be used again."""
    child = I[root + A_CHILD]
    pairs = 0
    while child:
        other = I[child + A_SIBLING]
        if other:
            after = I[other + A_SIBLING]
            child = _merge(F, I, child, other)
        else:
            after = 0
        I[child + A_SIBLING] = pairs
        pairs = child
        child = after
    whole = 0
    while pairs:
        after = I[pairs + A_SIBLING]
        I[pairs + A_SIBLING] = 0
        whole = pairs if whole == 0 else _merge(F, I, whole, pairs)
        pairs = after
    I[root + A_SIBLING] = I[FREE_ACTIVITY]
    I[FREE_ACTIVITY] = root
    return whole


@njit(cache=True)
def _sync(F: Floats, I: Ints, kind: int, now: float) -> None:
    """Bring a kind's clock of work done up to now."""
    F[kind + K_CLOCK] += F[kind + K_RATE] * (now - F[kind + K_SINCE])
    F[kind + K_SINCE] = now


@njit(cache=True)
def _touch(I: Ints, kind: int) -> None:
    """A kind takes part in the next solve."""
    if I[kind + K_DIRTY] == 0:
        I[kind + K_DIRTY] = 1
        I[kind + K_NEXT_DIRTY] = I[DIRTY]
        I[DIRTY] = kind


@njit(cache=True)
def _change(F: Floats, I: Ints, kind: int, by: int) -> None:
    """The number of a kind's activities has changed."""
    count = I[kind + K_COUNT]
    I[kind + K_COUNT] = count + by
    demand = by * F[kind + K_CAP]
    first = kind + K_WORDS
    for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
        resource = I[use + U_RESOURCE]
        if count == 0:
            last = I[resource + R_LAST]
            I[use + U_BEFORE] = last
            I[use + U_AFTER] = 0
            if last:
                I[last + U_AFTER] = use
            else:
                I[resource + R_FIRST] = use
            I[resource + R_LAST] = use
        elif count + by == 0:
            before, after = I[use + U_BEFORE], I[use + U_AFTER]
            if before:
                I[before + U_AFTER] = after
            else:
                I[resource + R_FIRST] = after
            if after:
                I[after + U_BEFORE] = before
            else:
                I[resource + R_LAST] = before
        I[resource + R_TOUCHES] += 1
        if I[resource + R_FIRST] == 0:
            F[resource + R_DEMAND] = 0.0
        elif I[resource + R_TOUCHES] & 1023:
            F[resource + R_DEMAND] += demand * F[use + U_COEFFICIENT]
        else:  # sums that only ever change by differences drift: start anew now and then
            total = 0.0
            other = I[resource + R_FIRST]
            while other:
                user = I[other + U_KIND]
                total += I[user + K_COUNT] * F[user + K_CAP] * F[other + U_COEFFICIENT]
                other = I[other + U_AFTER]
            F[resource + R_DEMAND] = total
    _touch(I, kind)


@njit(cache=True)
def _start(F: Floats, I: Ints, now: float, kind: int, work: float, group: int) -> None:
    """Start an activity now."""
    if I[kind + K_COUNT]:
        _sync(F, I, kind, now)
    else:
        F[kind + K_CLOCK] = F[kind + K_RATE] = F[kind + K_STARTS] = 0.0
        F[kind + K_SINCE] = now
        I[kind + K_ROOT] = 0
    activity = I[FREE_ACTIVITY]
    if activity:
        I[FREE_ACTIVITY] = I[activity + A_SIBLING]
    else:
        activity = I[TOP]
        I[TOP] += A_WORDS
    clock = F[kind + K_CLOCK]
    F[activity + A_FINISH] = clock + work
    F[activity + A_WORK] = work
    I[activity + A_SERIAL] = I[SERIAL]
    I[SERIAL] += 1
    I[activity + A_GROUP] = group
    I[activity + A_CHILD] = I[activity + A_SIBLING] = 0
    root = I[kind + K_ROOT]
    I[kind + K_ROOT] = _merge(F, I, root, activity) if root else activity
    F[kind + K_STARTS] += clock
    _change(F, I, kind, 1)


@njit(cache=True)
def _end(F: Floats, I: Ints, kind: int, charged: float) -> None:
    """Take away the activity that finishes first, of whose work ``charged`` was done."""
    activity = I[kind + K_ROOT]
    F[kind + K_STARTS] -= F[activity + A_FINISH] - F[activity + A_WORK]
    first = kind + K_WORDS
    for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
        F[I[use + U_RESOURCE] + R_USED] += charged * F[use + U_COEFFICIENT]
    group = I[activity + A_GROUP]
    I[group + G_LEFT] -= 1
    if I[group + G_LEFT] == 0:
        I[group + G_NEXT] = 0
        if I[DONE]:
            I[I[DONE_LAST] + G_NEXT] = group
        else:
            I[DONE] = group
        I[DONE_LAST] = group
    I[kind + K_ROOT] = _pop(F, I, activity)


@njit(cache=True)
def _complete(F: Floats, I: Ints, now: float) -> None:
    """Finish everything that is due at the present instant, in order."""
    limit = now * (1.0 + ROUNDING)
    base, size = I[SCRATCH], 0
    while I[HEAP_SIZE]:
        cell = I[I[HEAP]]
        if F[cell + C_DUE] > limit:
            break
        kind = I[cell + C_FIRST]
        while kind:
            if F[kind + K_DUE] <= limit:
                F[base + 2 * size] = F[kind + K_DUE]
                I[base + 2 * size + 1] = kind
                size += 1
            kind = I[kind + K_NEXT]
        F[cell + C_DUE] = inf  # it is solved again before time moves
        _sink(F, I, 0)
    _heapify(F, I, base, size)
    while size:
        kind = I[base + 1]
        size = _drop(F, I, base, size)
        F[kind + K_DUE] = inf
        _sync(F, I, kind, now)
        reach = max(F[kind + K_CLOCK], F[I[kind + K_ROOT] + A_FINISH])
        reach += F[kind + K_RATE] * now * ROUNDING
        ended = 0
        while I[kind + K_ROOT] and F[I[kind + K_ROOT] + A_FINISH] <= reach:
            _end(F, I, kind, F[I[kind + K_ROOT] + A_WORK])
            ended += 1
        _change(F, I, kind, -ended)


# ---------------------------------------------------------------- solving


@njit(cache=True)
def _freeze(F: Floats, I: Ints, kind: int, level: float, mark: int) -> None:
    """Take a kind out of the filling at ``level``."""
    I[kind + K_FROZEN] = mark
    crowd = I[kind + K_COUNT] * F[kind + K_WEIGHT]
    first = kind + K_WORDS
    for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
        resource = I[use + U_RESOURCE]
        if I[resource + R_CONTENDED]:
            pull = crowd * F[use + U_COEFFICIENT]
            I[resource + R_RISING] -= 1
            F[resource + R_PULL] -= pull
            F[resource + R_LEFT] = max(0.0, F[resource + R_LEFT] - pull * level)


@njit(cache=True)
def _refresh(F: Floats, I: Ints, resource: int, mark: int) -> None:
    """Sum a resource's pull anew over the kinds that still rise."""
    total = 0.0
    use = I[resource + R_FIRST]
    while use:
        kind = I[use + U_KIND]
        if I[kind + K_FROZEN] != mark:
            total += I[kind + K_COUNT] * F[kind + K_WEIGHT] * F[use + U_COEFFICIENT]
        use = I[use + U_AFTER]
    F[resource + R_PULL] = total
    F[resource + R_FLOOR] = total * DIGITS


@njit(cache=True)
def _fill(F: Floats, I: Ints, head: int, resources: int, mark: int) -> None:
    """Progressive filling of the kinds chained from ``head``, on the resources in the scratch.

    What a resource offers to those that still rise only grows while others stop, so an old figure
    is a lower bound, and only the smallest has to be worked out anew.
    """
    base = I[SCRATCH]
    rising = 0
    lowest_cap = inf
    kind = head
    while kind:
        crowd = I[kind + K_COUNT] * F[kind + K_WEIGHT]
        lowest_cap = min(lowest_cap, F[kind + K_LEVEL])
        first = kind + K_WORDS
        for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
            resource = I[use + U_RESOURCE]
            if I[resource + R_CONTENDED]:
                F[resource + R_PULL] += crowd * F[use + U_COEFFICIENT]
                I[resource + R_RISING] += 1
        rising += 1
        kind = I[kind + K_NEXT]
    for at in range(base, base + 2 * resources, 2):
        resource = I[at + 1]
        F[at] = F[resource + R_LEFT] / F[resource + R_PULL]
        F[resource + R_FLOOR] = F[resource + R_PULL] * DIGITS
    _heapify(F, I, base, resources)
    caps, capped = base + 2 * resources, -1  # heap of caps: made when the first one binds
    level = 0.0
    while rising:
        tightest = 0
        lowest = inf
        while resources:
            resource = I[base + 1]
            if I[resource + R_RISING] == 0:
                resources = _drop(F, I, base, resources)
                continue
            if F[resource + R_PULL] < F[resource + R_FLOOR]:
                _refresh(F, I, resource, mark)
            fits = F[resource + R_LEFT] / F[resource + R_PULL]
            if fits > F[base]:
                F[base] = fits
                _sift(F, I, base, resources, 0)
                if I[base + 1] != resource:
                    continue
            tightest, lowest = resource, fits
            break
        level = max(level, lowest)  # levels only rise: what looks lower is rounding
        if lowest_cap <= level:
            if capped < 0:
                capped = 0
                kind = head
                while kind:
                    if I[kind + K_FROZEN] != mark:
                        F[caps + 2 * capped] = F[kind + K_LEVEL]
                        I[caps + 2 * capped + 1] = kind
                        capped += 1
                    kind = I[kind + K_NEXT]
                _heapify(F, I, caps, capped)
            stopped = 0
            while capped and F[caps] <= level:
                kind = I[caps + 1]
                capped = _drop(F, I, caps, capped)
                if I[kind + K_FROZEN] != mark:
                    F[kind + K_NEW] = F[kind + K_CAP]
                    _freeze(F, I, kind, F[kind + K_LEVEL], mark)
                    stopped += 1
            lowest_cap = F[caps] if capped else inf
            if stopped:
                rising -= stopped
                continue
        use = I[tightest + R_FIRST]
        while use:
            kind = I[use + U_KIND]
            if I[kind + K_FROZEN] != mark:
                F[kind + K_NEW] = level * F[kind + K_WEIGHT]
                _freeze(F, I, kind, level, mark)
                rising -= 1
            use = I[use + U_AFTER]


@njit(cache=True)
def _component(F: Floats, I: Ints, now: float, head: int, seed: int, mark: int) -> None:
    """Solve what hangs together by contended resources with a kind, or with a resource.

    Exactly one of ``head`` and ``seed`` is given. The kinds become one cell.
    """
    base, resources = I[SCRATCH], 0
    last = head
    kind = head
    if head:
        I[head + K_MARK] = mark
        I[head + K_NEXT] = 0
    while True:
        # one kind's contended resources, or the seed; and all kinds on them
        if kind:
            _give_up(F, I, kind)
            first, stop = kind + K_WORDS, kind + K_WORDS + U_WORDS * I[kind + K_USES]
        else:
            first, stop = 0, U_WORDS
        for at in range(first, stop, U_WORDS):
            resource = I[at + U_RESOURCE] if kind else seed
            if I[resource + R_CONTENDED] == 0 or I[resource + R_SEEN] == mark:
                continue
            I[resource + R_SEEN] = mark
            F[resource + R_LEFT] = F[resource + R_CAPACITY]
            F[resource + R_PULL] = 0.0
            I[resource + R_RISING] = 0
            I[base + 2 * resources + 1] = resource
            resources += 1
            use = I[resource + R_FIRST]
            while use:
                other = I[use + U_KIND]
                if I[other + K_MARK] != mark:
                    I[other + K_MARK] = mark
                    I[other + K_NEXT] = 0
                    if last:
                        I[last + K_NEXT] = other
                    else:
                        head = other
                    last = other
                use = I[use + U_AFTER]
        kind = I[kind + K_NEXT] if kind else head
        if kind == 0:
            break
    if head == 0:
        return
    if resources:
        _fill(F, I, head, resources, mark)
    cell = I[FREE_CELL]
    if cell:
        I[FREE_CELL] = I[cell + C_NEXT]
    else:
        cell = I[TOP]
        I[TOP] += C_WORDS
    earliest = inf
    kind = head
    while kind:
        rate = F[kind + K_NEW] if resources else F[kind + K_CAP]
        if rate != F[kind + K_RATE] or I[kind + K_DIRTY]:
            _sync(F, I, kind, now)
            F[kind + K_RATE] = rate
            left = F[I[kind + K_ROOT] + A_FINISH] - F[kind + K_CLOCK]
            F[kind + K_DUE] = max(now, now + left / rate)
        earliest = min(earliest, F[kind + K_DUE])
        I[kind + K_CELL] = cell
        kind = I[kind + K_NEXT]
    F[cell + C_DUE] = earliest
    I[cell + C_FIRST] = head
    place = I[HEAP_SIZE]
    I[HEAP_SIZE] += 1
    I[I[HEAP] + place] = cell
    _rise(F, I, place)


@njit(cache=True)
def _solve(F: Floats, I: Ints, now: float) -> None:
    """Give right rates to everything that the pending changes touch."""
    if I[DIRTY] == 0:
        return
    I[SOLVES] += 1
    I[MARK] += 1
    mark = I[MARK]
    kind = I[DIRTY]
    while kind:
        first = kind + K_WORDS
        for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
            resource = I[use + U_RESOURCE]
            if I[resource + R_MARK] != mark:
                I[resource + R_MARK] = mark
                if I[IDEAL] == 0 and F[resource + R_DEMAND] > F[resource + R_CAPACITY] * FULL:
                    I[resource + R_CONTENDED] = 1
                elif I[resource + R_CONTENDED]:
                    # from now on its users have nothing to do with each other
                    I[resource + R_CONTENDED] = 0
                    other = I[resource + R_FIRST]
                    while other:
                        _touch(I, I[other + U_KIND])
                        other = I[other + U_AFTER]
        kind = I[kind + K_NEXT_DIRTY]
    kind = I[DIRTY]
    while kind:
        if I[kind + K_COUNT]:
            if I[kind + K_MARK] != mark:
                _component(F, I, now, kind, 0, mark)
        else:
            _give_up(F, I, kind)
            first = kind + K_WORDS
            for use in range(first, first + U_WORDS * I[kind + K_USES], U_WORDS):
                resource = I[use + U_RESOURCE]
                if I[resource + R_CONTENDED] and I[resource + R_SEEN] != mark:
                    _component(F, I, now, 0, resource, mark)
        kind = I[kind + K_NEXT_DIRTY]
    kind = I[DIRTY]
    while kind:
        I[kind + K_DIRTY] = 0
        kind = I[kind + K_NEXT_DIRTY]
    I[DIRTY] = 0
    while I[LIMBO]:
        cell = I[LIMBO]
        I[LIMBO] = I[cell + C_NEXT]
        I[cell + C_NEXT] = I[FREE_CELL]
        I[FREE_CELL] = cell


# ---------------------------------------------------------------- called from Python


@njit(cache=True)
def apply(F: Floats, I: Ints, now: float, pending: int) -> None:
    """Start the first ``pending`` entries of the list of changes."""
    at = I[PENDING]
    for _ in range(pending):
        kind, group = I[at], I[at + 2]
        if kind > 0:
            _start(F, I, now, kind, F[at + 1], group)
        else:
            fan = -kind
            for item in range(fan + 1, fan + 1 + 2 * I[fan], 2):
                _start(F, I, now, I[item], F[item + 1], group)
        at += 3


@njit(cache=True)
def run(F: Floats, I: Ints, now: float, until: float, pending: int) -> float:
    """Move on until a group is finished or ``until`` is reached.

    Where groups are finished (chained from ``DONE``) returns when; otherwise when the next activity
    is (inf: never), which is after ``until``.
    """
    apply(F, I, now, pending)
    I[DONE] = 0
    while True:
        if until > now:
            _solve(F, I, now)
        due = F[I[I[HEAP]] + C_DUE] if I[HEAP_SIZE] else inf
        if due == inf or due > until * (1.0 + ROUNDING):
            return due
        now = max(now, min(due, until))
        _complete(F, I, now)
        if I[DONE]:
            return now


@njit(cache=True)
def cancel(F: Floats, I: Ints, now: float, kind: int, serial: int) -> float:
    """Stop an activity before its end; returns the work that was left, -1 if it is not running."""
    _sync(F, I, kind, now)
    clock = F[kind + K_CLOCK]
    left = -1.0
    kept = 0
    while I[kind + K_ROOT]:  # rare, so it may take all of them apart
        activity = I[kind + K_ROOT]
        if I[activity + A_SERIAL] == serial:
            left = max(0.0, F[activity + A_FINISH] - clock)
            _end(F, I, kind, F[activity + A_WORK] - left)
            continue
        I[kind + K_ROOT] = _pop(F, I, activity)
        I[FREE_ACTIVITY] = I[activity + A_SIBLING]
        I[activity + A_SIBLING] = kept
        I[activity + A_CHILD] = 0
        kept = activity
    while kept:
        after = I[kept + A_SIBLING]
        I[kept + A_SIBLING] = 0
        root = I[kind + K_ROOT]
        I[kind + K_ROOT] = _merge(F, I, root, kept) if root else kept
        kept = after
    if left >= 0.0:
        _change(F, I, kind, -1)
    return left


@njit(cache=True)
def used(F: Floats, I: Ints, now: float, resources: Ints) -> Floats:
    """Units consumed so far of each of ``resources``."""
    found = np.zeros(resources.size)
    for index in range(resources.size):
        total = F[resources[index] + R_USED]
        use = I[resources[index] + R_FIRST]
        while use:
            kind = I[use + U_KIND]
            clock = F[kind + K_CLOCK] + F[kind + K_RATE] * (now - F[kind + K_SINCE])
            done = I[kind + K_COUNT] * clock - F[kind + K_STARTS]
            total += done * F[use + U_COEFFICIENT]
            use = I[use + U_AFTER]
        found[index] = total
    return found


@njit(cache=True)
def peek(F: Floats, I: Ints, now: float, pending: int) -> float:
    """When the next activity is finished (inf: never) if nothing changes any more."""
    apply(F, I, now, pending)
    _solve(F, I, now)
    return F[I[I[HEAP]] + C_DUE] if I[HEAP_SIZE] else inf


@njit(cache=True)
def resume(F: Floats, I: Ints, now: float, kind: int, work: float, group: int) -> None:
    """Start one activity of a group that exists."""
    _start(F, I, now, kind, work, group)
