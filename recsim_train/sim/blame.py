"""Which line of a strategy: where a suspended loop waits, where an exception came from."""

from __future__ import annotations

import sysconfig
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from recsim_train.config.errors import RunFailed
from recsim_train.strategy import effects, values

_OURS = {str(effects.__file__), str(values.__file__)}
_SIM = str(Path(__file__).parent)
_STANDARD = sysconfig.get_paths()["stdlib"]


def _strategys(file: str) -> bool:
    """Whether a source file may be a strategy's: not the runtime's, not Python's own."""
    if file in _OURS or file.startswith(_SIM):
        return False
    return not file.startswith(_STANDARD) or "site-packages" in file


class StrategyError(RunFailed):
    """A strategy did something that a strategy may not do, or raised an exception."""


class DeadlockError(RunFailed):
    """Nothing can happen any more, but loops have not finished."""


def waiting_line(coroutine: Coroutine[Any, Any, Any]) -> str:
    """``file:line`` where a suspended coroutine waits, in the innermost frame of the strategy."""
    found = "not started"
    inner: object = coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if isinstance(frame, FrameType) and _strategys(frame.f_code.co_filename):
            found = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return found


def raising_line(traceback: TracebackType | None) -> str:
    """``file:line`` of the innermost frame of the strategy in a traceback."""
    found = "unknown line"
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if _strategys(name):
            found = f"{Path(name).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def who_waits(now: float, waiting: list[tuple[str, str, str]], arrived: list[str]) -> str:
    """A deadlock as a table: (loop, what it waits for, line) of each that has not finished."""
    widths = [max(len(row[column]) for row in waiting) for column in range(2)]
    return "\n".join(
        [
            f"deadlock after {now:.6g} s of simulated time: nothing can happen any more, and these "
            "loops have not finished",
            *(
                f"  {name:<{widths[0]}}  waits for {what:<{widths[1]}}  at {line}"
                for name, what, line in waiting
            ),
            *(f"  {text}" for text in arrived),
        ]
    )
