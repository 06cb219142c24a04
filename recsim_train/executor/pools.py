"""Pools: the threads on which the operations of one loop run.

torch computes with OpenMP, where each thread that computes has a pool of its own, and its own
number of threads. But `torch.set_num_threads` is also what threads start with that compute for the
first time later on. So loops' threads make their pools one after the other before any other
thread of the process has begun, and then the number is set back. Compiled loops of our own that
work example by example have as many threads in each loop's crew. Threads beside loops have neither.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from recsim_train.executor.process.attend import in_thread
from recsim_train.workload.threads import CREW, GRAIN

_thread = threading.local()


def make_pool(threads: int) -> tuple[int, ...]:
    """The calling thread's operations run on ``threads`` threads; returns the others' numbers.

    No other thread may be started meanwhile. The caller sets torch's number of threads back from
    another thread.
    """
    torch.get_num_threads()  # or the first operation would do what another thread has set
    torch.set_num_threads(threads)
    _thread.threads = threads
    if threads == 1:
        return ()
    before = tasks()
    torch.zeros(threads * GRAIN).add_(1.0)
    if getattr(_thread, "crew", None) is None:
        _thread.crew, all_here = ThreadPoolExecutor(threads - 1), threading.Barrier(threads)
        for _ in range(threads - 1):
            _thread.crew.submit(all_here.wait)
        all_here.wait()
    return tuple(sorted(tasks() - before))


def side_by_side(work: Callable[[int, int], None], examples: int) -> None:
    """``work(first, last)`` for all of ``examples``, in parts on the calling thread's crew.

    Worth it for what runs outside of the interpreter's lock.
    """
    parts = max(1, min(getattr(_thread, "threads", 1), examples // CREW))
    cuts = [examples * part // parts for part in range(parts + 1)]
    others = [_thread.crew.submit(work, *cuts[part : part + 2]) for part in range(1, parts)]
    work(*cuts[:2])
    for other in others:
        other.result()


def beside_loops(
    body: Callable[[], None], name: str, failed: Callable[[BaseException], None]
) -> threading.Thread:
    """A thread that is no loop's: its operations run on it alone. What ends it early is handed to
    ``failed``."""

    def whole() -> None:
        torch.set_num_threads(1)
        try:
            body()
        except BaseException as error:
            failed(error)

    return in_thread(whole, name)


def tasks() -> set[int]:
    """The numbers of this process's threads; none where the system does not tell."""
    with suppress(OSError):
        return set(map(int, os.listdir("/proc/self/task")))
    return set()
