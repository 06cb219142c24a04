"""How fast the machine is, by the reference work: while it does something else, and alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from statistics import harmonic_mean, mean
from typing import Self

from recsim_train.calibration.child import MeasuringProcess
from recsim_train.config.speed import MachineSpeed
from recsim_train.results.environment import cores

ROUNDS = 77
"""Rounds of a reading while nothing else runs, which takes four fifths of a second; their mean,
because a run sees a virtual machine's slow spells as often as they come."""
GAP = 0.3
"""Seconds that the process rests between two rounds beside a run; a round takes about 10 ms."""
SHORT_GAP = 0.08
"""The same beside windows of a second, which are measured by CPU time."""
_NEAR = 1.0
"""Seconds by which a round may miss the window that it is read for, where none hits it."""
_LIMIT = 60.0
"""Seconds; nearly all of it for importing torch, where no process has yet."""
_MOST = 32
"""Processes at most: each fills 40 MiB."""
_DIGITS = 4


class Watch:
    """A process that now and then does one round of the reference work, on one core after the
    other, while the machine does something else; a context."""

    def __init__(self, gap: float = GAP) -> None:
        """``gap``: seconds between two rounds."""
        self._gap = gap
        self._stack = ExitStack()
        self._child: MeasuringProcess | None = None
        self._since = self._took = 0.0

    def __enter__(self) -> Self:
        """Raises RunFailed where the process fails or takes too long."""
        with ExitStack() as stack:
            child = stack.enter_context(MeasuringProcess("watch", {"gap": self._gap}, _LIMIT))
            child.hear()
            self._since, self._child, self._stack = time.monotonic(), child, stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self, begin: float = 0.0, end: float = inf) -> MachineSpeed | None:
        """Of the rounds since it was last asked, those that ended between two times on the
        monotonic clock, or where there was none, the one that ended nearest, at most `_NEAR`
        seconds before or after; None: there was none. A process that has failed meanwhile does
        none."""
        assert self._child is not None
        rounds = [said for said in self._child.heard() if "speeds" in said]
        self._took += sum(each["took"] for each in rounds)
        away = [max(begin - each["at"], each["at"] - end, 0.0) for each in rounds]
        nearest = min(away, default=inf)
        if nearest > _NEAR:
            return None
        speeds = [r["speeds"] for r, far in zip(rounds, away, strict=True) if far == nearest]
        # of equal work: by their mean time
        means = {part: harmonic_mean(s[part] for s in speeds) for part in speeds[0]}
        return MachineSpeed(**{part: round(each, _DIGITS) for part, each in means.items()})

    @property
    def share(self) -> float:
        """What the rounds that were read have taken of all cores."""
        return self._took / (cores() * (time.monotonic() - self._since))


class Window:
    """Progress of a run, passed on, and when its counted window lay on the monotonic clock: as far
    as progress tells, which it does a few times a second. It begins when that was last seen within
    the warm-up."""

    def __init__(self, progress: Callable[[int, int], None], warmup: int) -> None:
        """``warmup``: iterations before it."""
        self._progress, self._warmup = progress, warmup
        self.begin = self.end = inf

    def __call__(self, done: int, total: int) -> None:
        """``done``: iterations of the slowest loop."""
        now = time.monotonic()
        if done < self._warmup or self.begin == inf:
            self.begin = now
        if done >= total:
            self.end = min(self.end, now)
        self._progress(done, total)


@contextmanager
def against(at: float | None) -> Iterator[Callable[[], float]]:
    """How fast the machine was since this was last called, by the speed ``at``; 1 where either is
    not known. Raises RunFailed as `Watch` does."""
    if at is None:
        yield lambda: 1.0
        return
    with Watch(SHORT_GAP) as watch:
        yield lambda: 1.0 if (speed := watch.read()) is None else speed.overall / at


def measure_speed(rounds: int = ROUNDS) -> MachineSpeed:
    """One reading by a process for each core, side by side, in about a second. Raises RunFailed
    where a process fails or takes too long."""
    with ExitStack() as stack:
        working = [
            stack.enter_context(MeasuringProcess("speed", {}, _LIMIT))
            for _ in range(min(cores(), _MOST))
        ]
        for child in working:
            child.hear()
        for child in working:
            child.tell({"rounds": rounds})
        speeds = [child.hear()["speeds"] for child in working]
    return MachineSpeed(
        **{part: round(mean(s[part] for s in speeds), _DIGITS) for part in speeds[0]}
    )
