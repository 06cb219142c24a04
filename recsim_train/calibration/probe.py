"""A measuring process, forked as the executor's are; its command line: PART.

Reads its request as one JSON line, then messages, and writes {"answer": ...} to each, or
{"error": ...} at the end. Threads and scheduling are those of the executor's processes.

Its own part is the reference work: rounds of fixed work on one core, whose speed tells how fast the
machine is. Equal wherever it runs, whatever is calibrated or run beside it: only ratios of its
speeds mean anything. Its four parts are what steps are made of.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import count
from statistics import fmean
from typing import Any

import torch

from recsim_train.config.errors import RunFailed, UserError

_WARM_UP = 2
SLICE = {"products": 3e-3, "gather": 1.4e-3, "interpreter": 3e-3, "loopback": 3e-3}
"""CPU seconds of one slice of each part at speed 1: about those of a core of 2026."""
_SIZE = 480
_ROWS, _WIDTH, _PICKED = 1 << 18, 32, 1 << 15
"""32 MiB: more than a core's own caches; each slice picks rows of its own."""
_STEPS = 16_000
_MESSAGE, _MESSAGES = 64 << 10, 150
_PATIENCE = 5.0
"""Seconds that one end of the connection waits for the other."""


def say(**message: object) -> None:
    """One JSON line to the launcher."""
    with suppress(BrokenPipeError):
        print(json.dumps(message), flush=True)


Slice = Callable[[int], object]
"""One slice of a part, in a given round."""


class ReferenceWork:
    """Made once, done as often as it is asked for; all in one thread."""

    def __init__(self) -> None:
        """Fills 40 MiB."""
        self._parts = _parts()
        self._numbers = count()
        self._round()

    def _round(self) -> dict[str, float]:
        """CPU seconds of each part."""
        number = next(self._numbers)
        seconds = {}
        for name, part in self._parts.items():
            begin = time.thread_time()
            part(number)
            seconds[name] = time.thread_time() - begin
        return seconds

    def speeds(self, rounds: int) -> dict[str, float]:
        """Speed of each part on the core of the calling thread, relative to `SLICE`.

        By CPU seconds: what other programs take of the cores is in a run's ledger, and no matter of
        speed.
        """
        for _ in range(_WARM_UP):
            self._round()
        seen = [self._round() for _ in range(rounds)]
        return {name: each / fmean(s[name] for s in seen) for name, each in SLICE.items()}


def _parts() -> dict[str, Slice]:
    """The parts in their order; in each round each comes after the others, as in a step."""
    left, right = torch.ones(_SIZE, _SIZE), torch.ones(_SIZE, _SIZE)
    product = torch.empty(_SIZE, _SIZE)
    table, picked = torch.ones(_ROWS, _WIDTH), torch.empty(_PICKED, _WIDTH)
    order = torch.randperm(_ROWS, generator=torch.Generator().manual_seed(1))
    rows = order.view(-1, _PICKED)
    here, there = _connection()
    sent, received = bytes(_MESSAGE), memoryview(bytearray(_MESSAGE))

    def loopback(_: int) -> None:
        for _ in range(_MESSAGES):
            here.sendall(sent)
            missing = received
            while missing:
                missing = missing[there.recv_into(missing) :]

    return {
        "products": lambda _: torch.mm(left, right, out=product),
        "gather": lambda number: torch.index_select(table, 0, rows[number % len(rows)], out=picked),
        "interpreter": lambda _: _interpret(_STEPS),
        "loopback": loopback,
    }


def _connection() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname(), _PATIENCE)
        there, _ = listening.accept()
    there.settimeout(_PATIENCE)
    for end, option in ((here, socket.SO_SNDBUF), (there, socket.SO_RCVBUF)):
        end.setsockopt(socket.SOL_SOCKET, option, 4 * _MESSAGE)
    return here, there


def _interpret(steps: int) -> int:
    """What Python does between tensors: names, calls, small containers, numbers."""
    seen: dict[int, list[int]] = {}
    total = 0
    for step in range(steps):
        key = step % 97
        seen.setdefault(key, []).append(step)
        total += len(seen[key]) ^ key
    return total


Answer = Callable[..., object]
"""Answers a message, whose entries it takes by name."""
_PARTS = {
    "wire": "wire_probe", "link": "wire_probe", "busy": "load_probe", "turns": "load_probe",
    "lock": "load_probe", "operations": "own.rounds", "keeping": "keep_probe",
}  # fmt: skip
"""Where what measures each part is: a function of its name. Each imports much that the others do
without."""


def speed() -> Answer:
    """The reference work."""
    return ReferenceWork().speeds


def prepared(part: str, request: dict[str, Any]) -> Answer:
    """What answers the messages of a part, ready to measure."""
    if part not in _PARTS:
        return speed()
    module = import_module(f"recsim_train.calibration.{_PARTS[part]}")
    answer: Answer = getattr(module, part)(**request)
    return answer


def main() -> None:
    """Entry point."""
    # as in the executor's processes: threads must not wait 5 ms for the interpreter lock
    sys.setswitchinterval(0.0005)
    torch.set_num_threads(1)
    try:
        answer = prepared(sys.argv[1], json.loads(sys.stdin.readline()))
        say(answer="ready")
        for message in sys.stdin:
            say(answer=answer(**json.loads(message)))
    except (UserError, RunFailed, RuntimeError, OSError) as error:
        say(error=str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise
