"""The reference work: rounds of fixed work on one core, whose speed tells how fast the machine is.

Equal wherever it runs, whatever is calibrated or run beside it: only ratios of its speeds mean
anything. Its four parts are what steps are made of.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from statistics import fmean

import torch

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

Slice = Callable[[int], object]
"""One slice of a part, in a given round."""


class ReferenceWork:
    """Made once, done as often as it is asked for; all in one thread."""

    def __init__(self, stack: ExitStack) -> None:
        """Fills 40 MiB, until ``stack`` is left."""
        self._parts = _parts(stack)
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


def _parts(stack: ExitStack) -> dict[str, Slice]:
    """The parts in their order; in each round each comes after the others, as in a step."""
    left, right = torch.ones(_SIZE, _SIZE), torch.ones(_SIZE, _SIZE)
    product = torch.empty(_SIZE, _SIZE)
    table, picked = torch.ones(_ROWS, _WIDTH), torch.empty(_PICKED, _WIDTH)
    order = torch.randperm(_ROWS, generator=torch.Generator().manual_seed(1))
    rows = order.view(-1, _PICKED)
    here, there = _connection(stack)
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


def _connection(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = stack.enter_context(socket.create_connection(listening.getsockname(), _PATIENCE))
        there = stack.enter_context(listening.accept()[0])
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
