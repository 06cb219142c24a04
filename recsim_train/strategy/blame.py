"""Which line of a strategy: where a suspended loop waits, where an exception came from."""

from __future__ import annotations

import sysconfig
from collections.abc import Coroutine
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from recsim_train.config.errors import RunFailed

_PACKAGE = Path(__file__).parents[1]
_OURS = tuple(str(_PACKAGE / "strategy" / f"{name}.py") for name in ("driver", "effects", "values"))
_WORLDS = tuple(str(_PACKAGE / room) for room in ("sim", "executor"))
_STANDARD = sysconfig.get_paths()["stdlib"]


class StrategyError(RunFailed):
    """A strategy did something that a strategy may not do, or raised an exception."""


def _of_strategy(file: str) -> bool:
    """Whether a source file may be a strategy's: not a world's, not Python's own."""
    if file in _OURS or file.startswith(_WORLDS):
        return False
    return not file.startswith(_STANDARD) or "site-packages" in file


def waiting_line(coroutine: Coroutine[Any, Any, Any]) -> str:
    """``file:line`` where a suspended coroutine waits, in the innermost frame of the strategy."""
    line = "not started"
    inner: object = coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if isinstance(frame, FrameType) and _of_strategy(frame.f_code.co_filename):
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return line


def raising_line(traceback: TracebackType | None) -> str:
    """``file:line`` of the innermost frame of the strategy in a traceback."""
    frames = ((frame.f_code.co_filename, number) for frame, number in walk_tb(traceback))
    lines = [f"{Path(file).name}:{number}" for file, number in frames if _of_strategy(file)]
    return lines[-1] if lines else "unknown line"
