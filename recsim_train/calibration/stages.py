"""How far a calibration is, of all that it does until its profile is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recsim_train.trace.progress import Meter, unseen


class Stages:
    """Stages that follow each other, each with the seconds that it usually takes. Only how these
    compare matters: how fast the machine is shows as it goes on."""

    def __init__(self, seconds: Mapping[str, float], meter: Meter = unseen) -> None:
        self._seconds = dict(seconds)
        self._total = sum(self._seconds.values())
        self._before = self._share = 0.0
        self._stage = ""
        self._meter = meter

    def begin(self, stage: str, steps: int = 1) -> Callable[[], None]:
        """The next stage, of so many steps; what is returned is to be called after each. Raises
        KeyError for one that was not announced or has begun before."""
        self._before += self._share
        self._share = self._seconds.pop(stage)
        self._stage, done = stage, 0

        def step() -> None:
            nonlocal done
            done += 1
            self._tell(min(1.0, done / steps))

        self._tell(0.0)
        return step

    def _tell(self, share: float) -> None:
        self._meter(self._before + share * self._share, self._total, self._stage)
