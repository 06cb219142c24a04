"""A measuring process, forked as the executor's are; its command line: PART.

Reads its request as one JSON line, writes {"tick": true} now and then and {"result": ...} or
{"error": ...} at the end. Threads and scheduling are those of the executor's processes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.process import batch_scheduling, say

Request = dict[str, Any]


def _tick() -> None:
    say(tick=True)


def kernels(request: Request) -> object:
    """Every kernel at every setting of the grid."""
    from recsim_train.calibration import grid, kernel_probe

    settings = grid.QUICK if request["quick"] else grid.GRID
    return kernel_probe.measure_in_thread(settings, request["budget"], _tick)


def wire(request: Request) -> object:
    """One end of a loopback connection."""
    from recsim_train.calibration import wire_probe

    return wire_probe.measure(
        request["rank"],
        request["store"],
        quick=request["quick"],
        crowded=request.get("crowded", False),
    )


def busy(request: Request) -> object:
    """Steps of one thread, while nothing or while the other cores work too."""
    from recsim_train.calibration import load_probe

    return load_probe.measure_busy(request["seconds"], sys.stdin.readline, _tick)


def runtime(request: Request) -> object:
    """The runtime's own work for an effect and for a request."""
    from recsim_train.calibration import runtime_probe

    return runtime_probe.measure(quick=request["quick"])


def readers(request: Request) -> object:
    """Rows parsed and rows made."""
    from recsim_train.calibration import reader_probe

    return reader_probe.measure(request["folder"], quick=request["quick"])


PARTS: dict[str, Callable[[Request], object]] = {
    part.__name__: part for part in (kernels, wire, busy, runtime, readers)
}


def main() -> None:
    """Entry point."""
    batch_scheduling()
    # as in the executor's processes: threads must not wait 5 ms for the interpreter lock
    sys.setswitchinterval(0.0005)
    import torch

    torch.set_num_threads(1)
    request = json.loads(sys.stdin.readline())
    try:
        say(result=PARTS[sys.argv[1]](request))
    except (UserError, RunFailed, RuntimeError, OSError) as error:
        say(error=str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise
