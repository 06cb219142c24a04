"""What operations take on a modelled host: said by a prediction, kept by the processes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class OperationTime(NamedTuple):
    """Of one call, the mean over a process's calls."""

    seconds: float
    locked: float
    """Of these, seconds that hold the interpreter lock."""


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """Of one process on its host."""

    cores: int
    operations: dict[str, OperationTime]
    """By name."""
