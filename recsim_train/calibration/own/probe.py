"""The probe of a plan's own operations: a process like a role's, which does rounds when told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recsim_train.calibration.own.measure import CELLS
from recsim_train.calibration.own.rounds import Rounds
from recsim_train.executor.process import carried
from recsim_train.executor.process.entry import say
from recsim_train.executor.process.scheduling import ordinary_scheduling


def measure(folder: str, next_line: Callable[[], str], tick: Callable[[], None]) -> int:
    """Rounds in windows, one for each line from the caller, until an empty object; how many.

    What a window has seen is said at its end.

    A line: ``{"seconds": 2.5, "threads": 1}``. Loops are threads, whose memory is managed
    differently from the main thread's: so is what is timed here.
    """
    plan, cells, own = pickle.loads((Path(folder) / CELLS).read_bytes())
    carried.unpack(own)
    ordinary_scheduling()  # as the executor's threads beside gloo's
    windows = 0
    with ThreadPoolExecutor(1) as pool:
        rounds = pool.submit(Rounds, plan, cells).result()
        tick()
        while asked := json.loads(next_line()):
            say(seen=pool.submit(rounds.window, **asked).result())
            windows += 1
    return windows
