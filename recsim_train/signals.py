"""How processes are asked to end: Ctrl-C and SIGTERM at a command, a lost parent at its children.

The standard library alone: this is read before anything that takes time to import.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ONCE_MORE = 0.05
"""Seconds until an interrupt that a library's callback has swallowed is raised again."""
SAME_WISH = 1.0
"""Seconds in which further signals add nothing: `timeout` and terminals signal whole groups."""
_PR_SET_PDEATHSIG = 1


class Asked(KeyboardInterrupt):
    """What a signal raises. Of a plain KeyboardInterrupt within an ``exec`` Python remembers that
    it was not handled there, and ends by SIGINT in the end."""


class _Wish:
    """To end, as signals say it; and whether what is left then can be gone on with."""

    number: int | None = None
    at = 0.0
    held = 0
    pending = False
    finished = False


def received() -> int | None:
    """The signal that asked this process to end; None: none did."""
    return _Wish.number


def note_finished() -> None:
    """Something is kept complete that ``--resume`` takes instead of making it again."""
    _Wish.finished = True


def finished() -> bool:
    """Whether `note_finished` was called: to go on is not to begin again."""
    return _Wish.finished


def listen() -> None:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt in the main thread, which calls this.

    One that is ignored from the start (``nohup``, a job in the background) stays so.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    sys.unraisablehook = _swallowed
    atexit.register(_deafen)  # the first that is registered, so the last that is called


def stop_listening() -> None:
    """A further signal ends the process at once, without a word, unless it is the same wish."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL if _Wish.number is None else _end_at_once)


def _end(number: int, _: FrameType | None) -> None:
    if _Wish.number is not None and time.monotonic() - _Wish.at < SAME_WISH:
        return
    _Wish.number, _Wish.at = number, time.monotonic()
    if _Wish.held:
        _Wish.pending = True
        return
    raise Asked


def _end_at_once(number: int, _: FrameType | None) -> None:
    if time.monotonic() - _Wish.at >= SAME_WISH:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _deafen() -> None:
    """Python is about to give signals their default meaning back, for its last moments."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _end_at_once:
            signal.signal(number, signal.SIG_IGN)


def _swallowed(ignored: sys.UnraisableHookArgs) -> None:
    if not isinstance(ignored.exc_value, Asked) or _Wish.number is None:
        sys.__unraisablehook__(ignored)
        return
    _Wish.at = -SAME_WISH
    threading.Timer(_ONCE_MORE, os.kill, (os.getpid(), _Wish.number)).start()


@contextmanager
def held() -> Iterator[None]:
    """For short work that is done whole or not at all: what asks to end meanwhile is heard after.

    Only signals that `listen` has taken over, and only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Wish.held += 1
    try:
        yield
    finally:
        _Wish.held -= 1
        if _Wish.pending and not _Wish.held:
            _Wish.pending = False
            raise Asked


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that ends.

    ``parent``: process id of who started this process, which may be gone by now.
    """
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
