"""Waiting for what comes, and judging by the clock what other programs may have held up.

Real processes are judged by order and by counts wherever these tell. Where only a clock does, a
busy machine may spoil what it shows: the assertions about it stand in `by_the_clock`, and the test
is `tried_anew` a few times. Nothing else is: a wrong answer fails at once.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LIMIT = 180.0
"""Seconds after which what has not come is given up, on a machine that has much else to do."""


class OfTheClockError(AssertionError):
    """What a clock showed is not what was expected of an idle machine."""


@contextmanager
def by_the_clock() -> Iterator[None]:
    """Assertions that fail here may fail because other programs had the cores."""
    try:
        yield
    except AssertionError as error:
        raise OfTheClockError(str(error)) from error


def tried_anew(times: int = 3) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that passes if one try of so many does; a ``tmp_path`` is a new one for each.

    Only failures within `by_the_clock` are tried anew. If all tries fail, AssertionError tells
    what each of them saw.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def tries(**given: Any) -> None:
            seen: list[str] = []
            last: OfTheClockError | None = None
            folder: Path | None = given.get("tmp_path")
            for number in range(1, times + 1):
                if folder is not None:
                    given["tmp_path"] = folder / f"try {number}"
                    given["tmp_path"].mkdir()
                try:
                    return test(**given)
                except OfTheClockError as error:
                    seen.append(f"try {number}: {error}")
                    print(seen[-1])  # as pytest -rP shows it of tests that pass
                    last = error
            raise AssertionError("\n".join([f"none of {times} tries passed", *seen])) from last

        return tries

    return decorate


def first_in_line() -> None:
    """From now on the calling thread, and those that it starts, have a core whenever they want one.

    Nothing changes where the system does not let this process ask for that.
    """
    with suppress(AttributeError, PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def until(come: Callable[[], object], seconds: float = LIMIT) -> None:
    """Wait for it. Raises AssertionError when it has not come within so many seconds."""
    end = time.monotonic() + seconds
    while not come():
        assert time.monotonic() < end, f"it has not come within {seconds:g} s"
        time.sleep(0.005)
