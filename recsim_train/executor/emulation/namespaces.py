"""Network namespaces, and the programs that configure them.

A namespace here has no name: it lives as long as this process holds it open or somebody runs in it.
So nothing is left of an emulated cluster whose program was killed, and several do not meet.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from recsim_train.config.errors import RunFailed, UserError

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of clone(2)."""
_LIMIT = 60.0
"""Seconds that one call of `ip` or `tc` may take."""
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


class Namespace:
    """One network namespace, empty but for its loopback interface.

    Raises UserError where this process may not make one.
    """

    def __init__(self) -> None:
        self.descriptor = _in_thread(_unshared)

    def do(self, call: Callable[[], T]) -> T:
        """What ``call`` returns in a thread that is inside; programs that it starts are, too."""

        def inside() -> T:
            enter(self.descriptor)
            return call()

        return _in_thread(inside)

    def ip(self, lines: Sequence[str]) -> None:
        """Commands of `ip`, one after the other. Raises RunFailed with the one that fails."""
        self.do(lambda: _batch("ip", lines))

    def tc(self, lines: Sequence[str]) -> None:
        """Commands of `tc`. Raises RunFailed with the one that fails."""
        self.do(lambda: _batch("tc", lines))

    def shown(self, *words: str) -> str:
        """What a program shows."""
        return self.do(lambda: _call(words, ""))

    def set(self, settings: dict[str, str]) -> None:
        """Settings of the kernel, by their place below /proc/sys; what it lacks is left out."""

        def write() -> None:
            for name, value in settings.items():
                path = Path("/proc/sys") / name
                if path.exists():
                    path.write_text(value, encoding="ascii")

        self.do(write)

    @property
    def path(self) -> str:
        """By which other programs find it, as long as this process holds it."""
        # /proc may count processes otherwise than this one's namespace does
        return f"/proc/{os.readlink('/proc/self')}/fd/{self.descriptor}"

    def close(self) -> None:
        """Hold it no longer."""
        os.close(self.descriptor)


def enter(descriptor: int) -> None:
    """Have this thread, and what it starts from now on, be in a namespace. Raises OSError."""
    if _libc.setns(descriptor, _NEW_NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _unshared() -> int:
    if _libc.unshare(_NEW_NETWORK):
        why = os.strerror(ctypes.get_errno())
        raise UserError(
            f"hosts cannot be emulated here: making a network namespace: {why}; run as root, or "
            "in namespaces of your own: unshare -Urn recsim-train ..."
        )
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _in_thread(call: Callable[[], T]) -> T:
    """In a thread of its own, which alone changes its namespace."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _batch(program: str, lines: Sequence[str]) -> None:
    if lines:
        _call([program, "-batch", "-"], "\n".join(lines) + "\n", lines)


def _call(words: Sequence[str], text: str, lines: Sequence[str] = ()) -> str:
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=_LIMIT, check=False
        )
    except FileNotFoundError:
        raise UserError(
            f"hosts cannot be emulated here: there is no program {words[0]!r}; ip and tc come with "
            "the package iproute2"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        number = next(
            (int(n) for line in said for n in [line.rpartition(":")[2]] if n.isdigit()), 0
        )
        which = lines[number - 1] if 0 < number <= len(lines) else " ".join(words[1:])
        why = said[0] if said else f"exit code {done.returncode}"
        raise RunFailed(f"emulating hosts: `{words[0]} {which}` failed: {why}")
    return done.stdout
