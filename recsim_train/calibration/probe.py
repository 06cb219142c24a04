"""A measuring process, forked as the executor's are; its command line: PART.

Reads its request as one JSON line, writes {"tick": true} now and then and {"result": ...} or
{"error": ...} at the end. Threads and scheduling are those of the executor's processes.
"""

from __future__ import annotations

import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.process.entry import say

Request = dict[str, Any]
_tick = partial(say, tick=True)


def measure(part: str, request: Request) -> object:
    """What one part reports. Its probe is imported here, because most of them import torch."""
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
    from recsim_train.calibration import reference_work

    with ExitStack() as stack:
        work = reference_work.ReferenceWork(stack)
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
    from recsim_train.executor.process import carried
    from recsim_train.executor.process.scheduling import schedule

    plan, cells, own = pickle.loads((Path(folder) / CELLS).read_bytes())
    carried.unpack(own)
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
    import torch

    torch.set_num_threads(1)
    request = json.loads(sys.stdin.readline())
    try:
        say(result=measure(sys.argv[1], request))
    except (UserError, RunFailed, RuntimeError, OSError) as error:
        say(error=str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise
