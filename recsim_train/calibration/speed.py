"""How fast the machine is now: the reference work on all its cores at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import mean
from typing import Self

from recsim_train.calibration.child import MeasuringProcess
from recsim_train.config.speed import MachineSpeed
from recsim_train.results.environment import cores

ROUNDS = 77
"""Rounds of a reading, which takes four fifths of a second: so many, and their mean, because a run
sees a virtual machine's slow spells of tenths of a second as often as they come: docs/fidelity.md
has what each statistic explains of runs."""
SHORT = 30
"""Rounds of each reading where there are many."""
_LIMIT = 60.0
"""Seconds; nearly all of it for importing torch, where no process has yet."""
_MOST = 32
"""Processes at most: each fills 40 MiB."""
_DIGITS = 4


class Speedometer:
    """A process for each core that does the reference work when it is told; a context."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._working: list[MeasuringProcess] = []

    def __enter__(self) -> Self:
        """Raises RunFailed where a process fails or takes too long, as `read` does."""
        with ExitStack() as stack:
            self._working = [
                stack.enter_context(MeasuringProcess("speed", {}, _LIMIT))
                for _ in range(min(cores(), _MOST))
            ]
            for child in self._working:
                child.hear()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self, rounds: int = ROUNDS) -> MachineSpeed:
        """How fast the machine is now, by all cores side by side; `ROUNDS` take 0.8 s."""
        for child in self._working:
            child.tell({"rounds": rounds})
        speeds = [child.hear()["speeds"] for child in self._working]
        return MachineSpeed(
            **{part: round(mean(s[part] for s in speeds), _DIGITS) for part in speeds[0]}
        )


@contextmanager
def against(at: float | None) -> Iterator[Callable[[], float]]:
    """How fast the machine is each time that it is called, by the speed ``at``; 1 where that is not
    known. Raises RunFailed as `Speedometer` does."""
    if at is None:
        yield lambda: 1.0
        return
    with Speedometer() as speedometer:
        yield lambda: speedometer.read(SHORT).overall / at


def measure_speed() -> MachineSpeed:
    """One reading, in about a second. Raises RunFailed where a process fails or takes too long."""
    with Speedometer() as speedometer:
        return speedometer.read()
