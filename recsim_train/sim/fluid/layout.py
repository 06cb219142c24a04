"""Where things lie in the block of memory that `recsim_train.sim.fluid.core` works on.

All state of the solver lies in one block of 64-bit words that is passed as two views, ``f``
(float64) and ``i`` (int64). A record is a run of words, its address is one of its words, and a
field is read as ``f[record + FIELD]`` or ``i[record + FIELD]``; 0 is nobody. One block instead of
an array per field: what is used together shares a cache line, a call from Python unpacks two arrays
(0.2 us) instead of forty (2 us), and a larger copy of the block keeps all addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recsim_train.compiled import kept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Part of what is compiled; each `entry` is compiled and cached with all its parts."""
    return cast(_Function, njit(function))


def entry(function: _Function) -> _Function:
    """A compiled function that Python calls."""
    return kept(function)


U = np.uintp
"""Makes an index that cannot be negative; numba then spares its test for that, which takes a third
of the time where most of the time is spent."""

ROUNDING = 1e-12
"""Completions closer than this share of the clock are one instant."""
FULL = 1.0 + 1e-9
"""A resource is contended when its users could consume more than this share of its capacity."""
DIGITS = 1e-4
"""A sum that shrank by differences below this share of itself is summed anew."""

# The head of the block.
(
    MARK,  # the present solve
    SOLVES,
    DIRTY_KINDS,  # chains of what changed since the last solve
    DIRTY_RESOURCES,
    TOP,  # first word never used
    HEAP,  # heap of (when, what is due) pairs: its words, its length, how many it holds
    HEAP_SIZE,
    HEAP_ROOM,
    SCRATCH,  # words for two heaps of (key, record) pairs
    LIST,  # words for the resources of a cell
    DONE,  # activities finished by the last call, first and last
    DONE_LAST,
    PENDING,  # activities that are to start
    HEAD_WORDS,
) = range(14)

# Resource. First what filling uses.
(
    R_CAPACITY,
    R_LEFT,  # filling: capacity not yet given to frozen kinds
    R_PULL,  # filling: consumption per unit of level by kinds still rising
    R_RISING,  # filling: kinds still rising
    R_FLOOR,  # filling: below this the pull has lost its digits
    R_CONTENDED,  # 1: it may limit its users
    R_USERS,  # (kind, use) pairs of the kinds with activities; their number
    R_COUNT,
    R_TOTAL,  # consumption per unit of level by all its users
    R_DEMAND,  # consumption when each of them runs at its cap
    R_PEAK,  # the largest total since it was last summed
    R_TOUCHES,
    R_USED,  # units consumed by activities that are over
    R_LEVEL,  # of the kinds that it holds back
    R_CLOCK,  # integral of the level, when it was read last, and when that was
    R_SINCE,
    R_HELD,  # kinds that it holds back
    R_FIRST_KEY,  # when the first of them is done, by the resource's clock, and which it is
    R_FIRST_KIND,
    R_STALE,  # 1: find the first anew
    R_DUE,  # when that is; inf: never
    R_CAP_LOW,  # no user's cap level is below
    R_MARK,
    R_DIRTY,
    R_NEXT_DIRTY,
    R_PACE,  # limits the paced cap of whoever uses it
    R_WORDS,
) = range(27)

# Kind. From its address on: what filling uses, then (resource, pull) for each use, then
# (coefficient, place among the resource's users) for each use. Before its address: the rest.
(
    K_FROZEN,
    K_AT,  # the resource that holds it back; 0: it runs at K_RATE
    K_USES,
    K_DIRTY,
    K_HOT,
) = range(5)
(
    K_PACED,  # the cap where the pace is 1
    K_PLAIN,  # the cap that no pace changes
    K_DUE,  # when the first activity is done, where none holds it back; inf: never
    K_NEXT_DIRTY,
    K_MARK,
    K_KEY,  # when the first activity is done, by the clock of the resource that holds it back
    K_FIRST,  # running activities by when they finish, first and last
    K_LAST,
    K_STARTS,  # sum of the clock over the starts of running activities
    K_COUNT,
    K_LEVEL,  # cap / weight
    K_WEIGHT,
    K_CAP,
    K_RATE,
    K_SINCE,  # when the clock was read: time, or the clock of the resource that holds it back
    K_CLOCK,  # work that an activity has done that ran all the time
) = range(-16, 0)
K_BEFORE = 24  # a kind's address is the start of a cache line

# An activity. A_FINISH: reading of the kind's clock. A_NEXT: of those that are to start, that run
# or that are done.
A_KIND, A_WORK, A_FINISH, A_SERIAL, A_NEXT, A_WORDS = range(6)


@compiled
def users_of(i: Ints, resource: int) -> range:
    """Where the (kind, use) pairs of a resource's users lie."""
    first = i[U(resource + R_USERS)]
    return range(first, first + 2 * i[U(resource + R_COUNT)], 2)


@compiled
def uses_of(i: Ints, kind: int) -> range:
    """Where the (resource, pull) pairs of a kind's uses lie."""
    return range(kind + K_HOT, kind + K_HOT + 2 * i[U(kind + K_USES)], 2)
