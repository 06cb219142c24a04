"""Predict, run and compare distributed training of recommendation models on CPU clusters.

Six calls: `load` an experiment, `predict` it on a cluster profile, `measure` the same definition
with real processes, `compare` both, `recommend` a design of it, `calibrate` this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsim_train.calls import calibrate, compare, load, measure, predict, recommend

__version__ = "0.1.0"
__all__ = ["calibrate", "compare", "load", "measure", "predict", "recommend"]


def __getattr__(name: str) -> Any:
    """The six calls, read when they are asked for: importing this imports nothing heavy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from recsim_train import calls

    return getattr(calls, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"__dir__", "__getattr__"})
