"""A measuring process, forked as the executor's are; its command line: PART.

Reads its request as one JSON line, writes {"tick": true} now and then and {"result": ...} or
{"error": ...} at the end. Threads and scheduling are those of the executor's processes.

Its own part is the reference work: rounds of fixed work on one core, whose speed tells how fast the
machine is. Equal wherever it runs, whatever is calibrated or run beside it: only ratios of its
speeds mean anything. Its four parts are what steps are made of.
"""

from __future__ import annotations

import json
import pickle
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.process.attend import schedule
from recsim_train.executor.process.spec import register_packed

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


Request = dict[str, Any]
_tick = partial(say, tick=True)


def measure(part: str, request: Request) -> object:
    """What one part reports. Its probe is imported here: each imports much that the others do
    without."""
    quick = request.get("quick", False)
    if part in ("wire", "link"):
        from recsim_train.calibration import wire_probe

        rank, store = request["rank"], request["store"]
        if part == "link":
            return wire_probe.measure_link(rank, store, request["rate"])
        return wire_probe.measure(rank, store, quick=quick, crowded=request.get("crowded", False))
    if part in ("busy", "turns", "lock"):
        from recsim_train.calibration import load_probe

        if part == "lock":
            return load_probe.measure_lock(quick=quick)
        windows = load_probe.measure_busy if part == "busy" else load_probe.take_turns
        return windows(request["seconds"], sys.stdin.readline, _tick)
    if part == "operations":
        return _operations(request["folder"])
    if part == "keeping":
        from recsim_train.calibration import keep_probe

        return keep_probe.measure(Path(request["folder"]), quick=quick)
    with ExitStack() as stack:
        work = ReferenceWork(stack)
        _tick()
        assert part == "speed"
        while rounds := json.loads(sys.stdin.readline()).get("rounds"):
            say(speeds=work.speeds(rounds))
    return None


def _operations(folder: str) -> int:
    """Rounds in windows, one for each line from the caller, until an empty object; how many.

    What a window has seen is said at its end.

    A line: ``{"seconds": 2.5, "threads": 1}``. Loops are threads, whose memory is managed
    differently from the main thread's: so is what is timed here.
    """
    from recsim_train.calibration.own.measure import CELLS
    from recsim_train.calibration.own.rounds import PlanRounds

    plan, cells, own = pickle.loads((Path(folder) / CELLS).read_bytes())
    register_packed(own)
    schedule("SCHED_OTHER")  # as the executor's threads beside gloo's
    windows = 0
    with ThreadPoolExecutor(1) as pool:
        rounds = pool.submit(PlanRounds, plan, cells).result()
        _tick()
        while asked := json.loads(sys.stdin.readline()):
            say(seen=pool.submit(rounds.window, **asked).result())
            windows += 1
    return windows


def main() -> None:
    """Entry point."""
    # as in the executor's processes: threads must not wait 5 ms for the interpreter lock
    sys.setswitchinterval(0.0005)
    torch.set_num_threads(1)
    request = json.loads(sys.stdin.readline())
    try:
        say(result=measure(sys.argv[1], request))
    except (UserError, RunFailed, RuntimeError, OSError) as error:
        say(error=str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise
