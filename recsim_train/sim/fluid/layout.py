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
SERIAL = 0  # activities started
MARK = 1  # the present solve
SOLVES = 2
PACED = 3  # 1: the pace of some resource has changed
DIRTY_KINDS = 4  # chains of what changed since the last solve
DIRTY_RESOURCES = 5
DIRTY_CELLS = 6
FREE_ACTIVITY = 7  # chains of records to use again
FREE_CELL = 8
TOP = 9  # first word never used
HEAP = 10  # binary heap of entries by due time: its words, its length
HEAP_SIZE = 11
SCRATCH = 12  # words for two heaps of (key, record) pairs
LIST = 13  # words for a list of resources
DONE = 14  # groups finished by the last call, first and last
DONE_LAST = 15
PENDING = 16  # (kind, work, group) triples that are to start
HEAD_WORDS = 17

# An entry of the heap of what is due: a kind that runs at its cap, or a resource for the first kind
# that it holds back.
E_DUE = 0
E_PLACE = 1  # in the heap, from 1; 0: not there
E_KIND = 2  # or minus the resource
# A cell: contended resources that hang together by kinds.
C_FIRST = 0  # chain of its resources; 0: merged into another cell
C_LAST = 1
C_SIZE = 2
C_AGE = 3  # solves since it was last seen to hang together
C_DIRTY = 4
C_NEXT = 5  # chain of dirty cells, or of free ones
C_WHOLE = 6  # 1: it is to be solved as a whole
C_TOUCHED = 7  # resources that changed since the last solve
C_WORDS = 8

# Resource. First what filling uses.
R_CAPACITY = 0
R_LEFT = 1  # filling: capacity not yet given to frozen kinds; of one that is not full: what is left
R_PULL = 2  # filling: consumption per unit of level by kinds still rising
R_RISING = 3  # filling: kinds still rising
R_FLOOR = 4  # filling: below this the pull has lost its digits
R_CONTENDED = 5  # 1: it may limit its users
R_USERS = 6  # (kind, use) pairs of the kinds with activities; their number
R_COUNT = 7
R_TOTAL = 8  # consumption per unit of level by all its users
R_DEMAND = 9  # consumption when each of them runs at its cap
R_PEAK = 10  # the largest total since it was last summed
R_TOUCHES = 11
R_USED = 12  # units consumed by activities that are over
R_LEVEL = 13  # of the kinds that it holds back
R_CLOCK = 14  # integral of the level, when it was read last, and when that was
R_SINCE = 15
R_HELD = 16  # kinds that it holds back
R_FIRST_KEY = 17  # when the first of them is done, by the resource's clock, and which it is
R_FIRST_KIND = 18
R_STALE = 19  # 1: find the first anew
R_DUE = R_ENTRY = 20  # from here on an entry of the heap of what is due
R_PLACE = 21
R_SELF = 22
R_CAP_LOW = 23  # no user's cap level is below
R_CELL = 24
R_NEXT = 25
R_MARK = 26
R_DIRTY = 27
R_NEXT_DIRTY = 28
R_PACE = 29  # limits the paced cap of whoever uses it
R_LISTED = 30  # 1: a ripple is to come by
R_WORDS = 31

# Kind. From its address on: what filling uses, then (resource, pull) for each use, then
# (coefficient, place among the resource's users) for each use. Before its address: the rest.
K_FROZEN = 0
K_AT = 1  # the resource that holds it back; 0: it runs at K_RATE
K_USES = 2
K_DIRTY = 3
K_HOT = 4
K_CLOCK = -1  # work that an activity has done that ran all the time
K_SINCE = -2  # when that was read: time, or the clock of the resource that holds it back
K_RATE = -3
K_CAP = -4
K_WEIGHT = -5
K_LEVEL = -6  # cap / weight
K_COUNT = -7
K_STARTS = -8  # sum of the clock over the starts of running activities
K_ROOT = -9  # pairing heap of activities by finish
K_KEY = -10  # when the first of them is done, by the resource's clock
K_MARK = -11
K_NEXT_DIRTY = -12
K_ENTRY = -15
K_PLAIN = -16  # the cap that no pace changes
K_PACED = -17  # the cap where the pace is 1
K_BEFORE = 24  # a kind's address is the start of a cache line

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
