"""Network namespaces, and the programs that configure them.

A namespace here has no name: it lives as long as this process holds it open or somebody runs in it.
So nothing is left of an emulated cluster whose program was killed, and several do not meet.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from recsim_train.config.errors import RunFailed, UserError

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of clone(2)."""
_LIMIT, _PLACES = 60.0, "/usr/sbin:/sbin"
"""Seconds that one call of `ip` or `tc` may take; where they are, also for who does not look there.
"""
_RIGHTS = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12}
"""Bits of capabilities(7), without which there are no namespaces, or no links in them."""
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

    def batch(self, program: Literal["ip", "tc"], *lines: str) -> None:
        """Commands, one after the other. Raises RunFailed with the one that fails."""
        if lines:
            self.do(lambda: _call([program, "-batch", "-"], "\n".join(lines) + "\n", lines))

    def shown(self, *words: str) -> str:
        """What a program shows."""
        return self.do(lambda: _call(words, ""))

    def set(self, settings: dict[str, str], *, must: Collection[str] = ()) -> None:
        """Settings of the kernel, by their place below /proc/sys; what it lacks is left out, and
        what it does not let be written, unless it ``must`` be. Raises UserError."""

        def write() -> None:
            for name, value in settings.items():
                path = Path("/proc/sys") / name
                now = path.read_text(encoding="ascii").strip() if path.exists() else value
                try:
                    if now != value:
                        path.write_text(value, encoding="ascii")
                except OSError as error:
                    if name in must:
                        raise UserError(
                            f"hosts cannot be emulated here: {path} is {now!r} and must be "
                            f"{value!r}, which cannot be written ({error.strerror}), as in a "
                            "container: set it outside, or make /proc/sys writable"
                        ) from None

        self.do(write)

    def knows(self, program: Literal["ip", "tc"], line: str) -> bool:
        """Whether a command can be done here."""
        try:
            self.batch(program, line)
        except RunFailed:
            return False
        return True

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
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    if lacking := [name for name, bit in _RIGHTS.items() if not held >> bit & 1]:
        raise UserError(
            f"hosts cannot be emulated here without {' and '.join(lacking)}: run as root with all "
            "capabilities, or in namespaces of your own: unshare -Urn recsim-train ..."
        )
    if _libc.unshare(_NEW_NETWORK):
        why = os.strerror(ctypes.get_errno())
        raise UserError(f"hosts cannot be emulated here: making a network namespace: {why}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _in_thread(call: Callable[[], T]) -> T:
    """In a thread of its own, which alone changes its namespace."""
    with ThreadPoolExecutor(1, "namespace") as one:
        return one.submit(call).result()


def _call(words: Sequence[str], text: str, lines: Sequence[str] = ()) -> str:
    places = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_PLACES}"}
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=_LIMIT, check=False,
            env=places,
        )  # fmt: skip
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
