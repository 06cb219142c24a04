"""Threads beside the main one, how the system schedules them (gloo's and our own), and waits that
hear signals: what blocks outside of Python is done by a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_STEP = 0.05
"""Seconds between two looks: a signal is heard, and a failure seen, within them."""


def attend(work: Callable[[], T], look: Callable[[], None] = lambda: None,
           late: Callable[[], str] | None = None, limit: float = float("inf")) -> T:  # fmt: skip
    """What ``work`` returns or raises, while ``look`` may raise something better.

    Raises TimeoutError with the sentence of ``late`` after ``limit`` seconds: the work then goes on
    in its thread, for good if need be, which keeps no process from ending.
    """
    answer: Future[T] = Future()

    def body() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    until(answer.done, look, late, limit, in_thread(body, "attended").join)
    return answer.result()


def in_thread(body: Callable[[], None], name: str) -> threading.Thread:
    """A thread that keeps no process from ending, which has begun."""
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def until(
    done: Callable[[], bool],
    look: Callable[[], None],
    late: Callable[[], str] | None = None,
    limit: float = float("inf"),
    rest: Callable[[float], object] = time.sleep,
) -> None:
    """Wait in short steps. Raises TimeoutError with the sentence of ``late`` after ``limit``
    seconds, and whatever ``look`` raises."""
    deadline = time.monotonic() + limit
    step = _STEP / 10
    while not done():
        look()
        if time.monotonic() > deadline:
            raise TimeoutError("" if late is None else late())
        rest(step)
        step = min(_STEP, step * 1.5)


def schedule(policy: str) -> bool:
    """Ask for it, for the calling thread and those that it starts from now on. False where that is
    refused.

    SCHED_BATCH is for gloo's I/O threads, which spin otherwise. SCHED_OTHER, once they have been
    made, is for our own: one that is woken by a message goes on at once instead of at the next
    tick.
    """
    try:
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
    except (OSError, AttributeError):
        return False
    return True
