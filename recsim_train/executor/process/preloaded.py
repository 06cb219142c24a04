"""The process that has imported torch and forks the processes of runs.

``python -m recsim_train.executor.process.preloaded SOCKET LAUNCHER ROOM``: takes requests from
LAUNCHER (`recsim_train.executor.process.forkserver`) until that has ended, or has closed its end of
SOCKET. When it forks it has one thread; it runs nothing of the user's and draws no random numbers,
so what is forked from it behaves as if it had been started by itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from recsim_train import strategy
from recsim_train.executor.emulation.namespaces import enter
from recsim_train.signals import die_with_parent
from recsim_train.strategy.registry import ENTRY_POINTS

_LOOK = 1.0
"""Seconds between looks whether the launcher is there: another process may hold its socket."""
_MESSAGE = 16
"""Bytes that are enough: what is asked stands in a file, the first of the descriptors."""


@dataclass(slots=True)
class _Child:
    """A process that was forked and has not been waited for."""

    pid: int
    number: int
    """The launcher's name for it."""
    status: int
    """Where its exit code is told."""


def preload() -> None:
    """Import what every process of a run imports: torch's modules and ours, nothing of users'; and
    have ready what is compiled."""
    # None of what is made here is garbage; a look for it would take a fifth of the time, and later
    # touch, and so copy, every page that is shared with the forked.
    gc.disable()
    for module in ("recsim_train.executor.process.role", "recsim_train.executor.process.entry"):
        import_module(module)
    for found in pkgutil.iter_modules(strategy.__path__, "recsim_train.strategy."):
        import_module(found.name)
    for name in ("net.rows", "net.interaction", "net.sparse", "shards.routing"):
        import_module(f"recsim_train.executor.{name}").warm()
    import_module("recsim_train.data.kernels").warm()
    import_module("recsim_train.data.log_stream")
    entry_points(group=ENTRY_POINTS)  # looks into installed packages, and remembers
    gc.freeze()
    gc.enable()


def serve(channel: socket.socket, launcher: int) -> None:
    """Answer requests until the launcher is gone; then end what was forked."""
    children: dict[int, _Child] = {}
    folders: list[str] = []
    while os.getppid() == launcher:
        for source in select.select([channel.fileno(), *children], [], [], _LOOK)[0]:
            if source in children:
                child = children.pop(source)
                os.close(source)
                _, status = os.waitpid(child.pid, 0)
                with suppress(BrokenPipeError):
                    os.write(child.status, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(child.status)
                continue
            if (found := _received(channel)) is None:
                return _end(children, folders)
            request, descriptors = found
            if "folder of a run" in request:
                folders.append(request["folder of a run"])
            elif "signal" in request:
                for child in children.values():
                    if child.number == request["to"]:
                        os.kill(child.pid, request["signal"])
            else:
                _fork(request, descriptors, channel, children)
    return _end(children, folders + _unread(channel))


def _unread(channel: socket.socket) -> list[str]:
    """The folders of runs among requests that nobody has taken yet."""
    folders: list[str] = []
    while select.select([channel.fileno()], [], [], 0.0)[0] and (found := _received(channel)):
        folders += filter(None, [found[0].get("folder of a run")])
    return folders


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request and its descriptors; None: the launcher has closed its end."""
    message, sent, _, _ = socket.recv_fds(channel, _MESSAGE, 6)
    if not message:
        return None
    content, *descriptors = sent
    with open(content, "rb") as file:
        file.seek(0)  # its sender has left it at its end
        return json.load(file), descriptors


def _end(children: dict[int, _Child], folders: list[str]) -> None:
    """End what was forked, and remove what a launcher that was killed could not."""
    for child in children.values():
        os.kill(child.pid, signal.SIGKILL)
    for child in children.values():
        os.waitpid(child.pid, 0)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _fork(
    request: dict[str, Any],
    descriptors: list[int],
    channel: socket.socket,
    children: dict[int, _Child],
) -> None:
    *stdio, status = descriptors[:4]
    namespaces = descriptors[4:]
    # The writing end is the child's alone: it closes when the child ends, however that is.
    reading, writing = os.pipe()
    parent = os.getpid()
    if pid := os.fork():
        for descriptor in (*stdio, *namespaces, writing):
            os.close(descriptor)
        children[reading] = _Child(pid, request["number"], status)
        return
    code = 1
    try:
        die_with_parent(parent)
        channel.close()
        for other in (reading, status, *children, *(c.status for c in children.values())):
            os.close(other)
        for descriptor, place in zip(stdio, range(3), strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        for namespace in namespaces:
            enter(namespace)
            os.close(namespace)
        _become(request)
        import_module(request["module"]).main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Interpreter shutdown races with gloo's threads; everything is written.
        os._exit(code)


def _become(request: dict[str, Any]) -> None:
    """What a process that is started has of its own."""
    os.setsid()
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if not sys.flags.safe_path:
        sys.path[0] = request["folder"]  # as `python -m` has it
    sys.argv = [request["module"], *request["words"]]
    _retitle([sys.executable, "-m", *sys.argv])


def _retitle(words: list[str]) -> None:
    """Have `ps` show these words: written over the arguments that this process began with."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end of proc(5)
    text = b"\0".join(map(os.fsencode, words))
    if end > begin > 0:
        ctypes.memmove(begin, text[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


@contextmanager
def _watched(channel: socket.socket, launcher: int) -> Iterator[None]:
    """End this process once the launcher is gone: what is compiled for the first time may take
    longer than anybody waits."""
    prepared = threading.Event()

    def watch() -> None:
        while not prepared.wait(_LOOK):
            if os.getppid() != launcher:
                _end({}, _unread(channel))
                os._exit(0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        prepared.set()
        watcher.join()


def main() -> None:
    """Entry point."""
    channel, launcher = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    with _watched(channel, launcher):
        preload()
    serve(channel, launcher)


if __name__ == "__main__":
    main()
