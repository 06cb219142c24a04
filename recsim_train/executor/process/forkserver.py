"""Processes that begin with torch imported: each is forked from one that imported it and waits.

That one, the server (`recsim_train.executor.process.preloaded`), is started once and serves all
runs of this process. It gets requests as JSON over a socket that only it and this process hold,
with the descriptors that the new process takes as its own. Libraries read some environment
variables only when they are loaded: such a variable is the server's as it was when the server
started.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from recsim_train.config.errors import RunFailed

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # a pool's threads sleep soon after an operation, since others need the cores that they would
    # spin on; but not at once, since waking them up takes as long as a short operation
    "GOMP_SPINCOUNT": "1000",
    # otherwise, with any of OpenMP's variables that tie threads to cores, torch's import ties the
    # process to one core, and all that it makes later with it
    "OMP_PROC_BIND": "false",
    # pyarrow's allocator starts a thread of its own, and who is forked has to be of one thread
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONUNBUFFERED": "1",
}
"""What every process has besides this one's environment; on an emulated host the interface is
another."""
_TITLE_ROOM = " " * 2000
"""The server's last argument; what it forks writes its own arguments there, for `ps`."""


@dataclass(frozen=True, slots=True)
class NetworkPlace:
    """Where a process is in the network."""

    interface: str = "lo"
    """By which others reach it."""
    namespace: int | None = None
    """Descriptor of its network namespace; None: this process's own."""


HERE = NetworkPlace()


class ForkedProcess:
    """One process, as the one who asked for it sees it: by way of the server, its parent."""

    def __init__(
        self,
        server: _Server,
        number: int,
        ended: socket.socket,
        stdin: IO[bytes],
        stdout: IO[bytes],
    ) -> None:
        self._server, self._number, self._ended = server, number, ended
        self.stdin, self.stdout = stdin, stdout
        """Pipes to its standard input and from its standard output."""
        self.returncode: int | None = None
        """Exit code, or the negative number of the signal that ended it; None while it runs."""
        self.lost: str | None = None
        """A sentence where it ended because the server did."""

    def poll(self, seconds: float = 0.0) -> int | None:
        """`returncode`, after at most so many seconds of waiting for it."""
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._ended, select.POLLIN)
            if waiting.poll(seconds * 1000):
                # Left in the socket until it is known here: an interrupt may come in between.
                said = self._ended.recv(32, socket.MSG_PEEK)
                if not said:
                    self.lost = self._server.last_words()
                self.returncode = int(said or -signal.SIGKILL)
                self._ended.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ConnectionError):  # the server has ended, and all that it forked with it
            self._server.ask({"signal": number, "to": self._number})


class _Server:
    """The server's process and this end of its socket."""

    def __init__(self) -> None:
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process lives
        # Each message whole or not at all, whatever interrupts the sending. It is a file in memory:
        # in the socket an environment of some 200 kB would find no room.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [str(theirs.fileno()), str(os.getpid()), _TITLE_ROOM]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "recsim_train.executor.process.preloaded", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches this process alone, which then ends the others in order.
                start_new_session=True,
            )
        self.owner = os.getpid()
        self._numbers = itertools.count()

    def ask(self, request: dict[str, object], descriptors: tuple[int, ...] = ()) -> None:
        """Send a request. Raises OSError where the server has ended."""
        content = os.memfd_create("request")
        try:
            with open(content, "wb", closefd=False) as file:
                file.write(json.dumps(request).encode())
            socket.send_fds(self._socket, [b"request"], (content, *descriptors))
        finally:
            os.close(content)

    def start(
        self, module: str, words: Sequence[str], errors: IO[bytes], place: NetworkPlace = HERE
    ) -> ForkedProcess:
        to_read, stdin = _pipe()
        stdout, to_write = _pipe()
        ended, status = socket.socketpair()
        process = ForkedProcess(self, next(self._numbers), ended, stdin, stdout)
        request: dict[str, object] = {
            "number": process._number,
            "module": module,
            "words": words,
            "environment": {**os.environ, **ENVIRONMENT, "GLOO_SOCKET_IFNAME": place.interface},
            "folder": os.getcwd(),
            "cores": sorted(os.sched_getaffinity(0)),
        }
        with to_read, to_write, status:
            theirs = [file.fileno() for file in (to_read, to_write, errors, status)]
            if place.namespace is not None:
                theirs.append(place.namespace)
            try:
                self.ask(request, tuple(theirs))
            except ConnectionError:
                for ours in (ended, stdin, stdout):
                    ours.close()
                raise RunFailed(self.last_words()) from None
        return process

    def last_words(self) -> str:
        """How it came to its end, as a sentence."""
        code = self.process.wait()
        if code < 0:
            end = f"was killed by signal {-code} ({signal.Signals(-code).name})"
        else:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            end = f"ended with exit code {code}: {said[-1] if said else 'nothing was said'}"
        return f"the process that all others of a run are forked from {end}"

    def close(self) -> None:
        """End it, and with it what it forked."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
            self._socket.close()
            self._errors.close()


_current: _Server | None = None
_lock = threading.Lock()


def ready() -> _Server:
    """The server, started now unless it runs: it takes a second or two to import torch."""
    global _current  # noqa: PLW0603 - one for each process
    with _lock:
        mine = _current is not None and _current.owner == os.getpid()
        if _current is None or not mine or _current.process.poll() is not None:
            _current = _Server()
            atexit.register(_current.close)
        return _current


def start(
    module: str, words: Sequence[str], errors: IO[bytes], place: NetworkPlace = HERE
) -> ForkedProcess:
    """Have ``main()`` of a module run in a process, and in a session, of its own.

    ``words``: its command line; ``errors``: the file that becomes its standard error output. It
    ends when this process does. Raises RunFailed where the server has just died; the next call
    starts another.
    """
    return ready().start(module, words, errors, place)


def remove_at_the_end(folder: Path) -> None:
    """Have a folder removed when this process has ended, however that is."""
    with suppress(ConnectionError):  # the server has just died: `start` says so
        ready().ask({"folder of a run": str(folder)})


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return open(reading, "rb"), open(writing, "wb", buffering=0)
