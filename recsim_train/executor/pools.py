"""Pools: the threads on which torch runs the operations of one loop.

torch computes with OpenMP, where each thread that computes has a pool of its own, and its own
number of threads. But `torch.set_num_threads` is also what threads start with that compute for the
first time later on. So loops' threads make their pools one after the other before any other
thread of the process has begun, and then the number is set back.
"""

from __future__ import annotations

import os
from contextlib import suppress

import torch

_GRAIN = 1 << 15
"""Numbers for each thread, below which torch's element-wise work uses fewer threads."""


def make_pool(threads: int) -> tuple[int, ...]:
    """The calling thread's operations run on ``threads`` threads; returns the others' numbers.

    No other thread may be started meanwhile. The caller sets torch's number of threads back from
    another thread.
    """
    torch.get_num_threads()  # or the first operation would do what another thread has set
    torch.set_num_threads(threads)
    if threads == 1:
        return ()
    before = tasks()
    torch.zeros(threads * _GRAIN).add_(1.0)
    return tuple(sorted(tasks() - before))


def tasks() -> set[int]:
    """The numbers of this process's threads; none where the system does not tell."""
    with suppress(OSError):
        return set(map(int, os.listdir("/proc/self/task")))
    return set()
