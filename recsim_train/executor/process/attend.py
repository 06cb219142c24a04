"""Waits that hear signals: what blocks outside of Python is done by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, name="attended", daemon=True)
    thread.start()
    until(lambda: not thread.is_alive(), look, late, limit, thread.join)
    if errors:
        raise errors[0]
    return results[0]


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
