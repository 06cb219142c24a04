"""Turns of processes that would all make the same file: one makes it, the others wait."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_STEP = 0.1
"""Seconds between two tries."""


@contextmanager
def turn(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Inside, no other process of this machine is about to make the file at ``path``.

    ``waiting``: called before the first wait. Where the file system has no locks, all make it: the
    file appears whole, and once more.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("wb")
    except OSError:  # whoever writes will say why
        yield
        return
    with file:
        _lock(file, waiting)
        try:
            yield
        finally:
            # who waits for it still gets its turn, and finds the file made
            with suppress(OSError):
                lock.unlink()


def _lock(file: IO[bytes], waiting: Callable[[], object]) -> None:
    first = True
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if first:
                waiting()
            first = False
            time.sleep(_STEP)
        except OSError:
            return None
