"""What one calibration asks of its measuring processes, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from recsim_train.calibration import grid, meet, reads, talk
from recsim_train.calibration.child import MeasuringProcess, answers, both_ends, side_by_side
from recsim_train.calibration.own import unit
from recsim_train.calibration.own.measure import MOST_BUSY
from recsim_train.calibration.prices import Crowd, contention
from recsim_train.results import environment
from recsim_train.trace.progress import Meter, unseen


class Stages:
    """How far a calibration is: stages that follow each other, each with the seconds that it
    usually takes. Only how these compare matters: how fast the machine is shows as it goes on."""

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


_LIMIT = 150.0
"""Seconds that one part may take; each takes a fraction of it on an idle machine."""
_BUSY_TURNS = 10
"""Turns of one busy process and of all."""
CORES, OPERATIONS, LOCK, MESSAGES = "cores", "operations", "interpreter lock", "messages"
READING, REQUESTS, COLLECTIVES, KEEPING = "reading", "requests", "collectives", "checkpoints"
OWN = "predictions of its own runs"
"""Its stages."""
_SPEED, _PLAN, _RUN, _OWN = 1.0, (2.3, 1.2), (8.0, 4.0), (5.0, 3.0)
"""Seconds of a reading of the machine's speed, of a turn of a plan of `unit`, of a run of `talk`,
`reads` or `meet`, of a prediction of one; in a full calibration and in a quick one."""


def seconds_of(*, quick: bool) -> dict[str, float]:
    """About what each stage of a calibration takes, in their order."""
    plan, run = _PLAN[quick], _RUN[quick]
    own = talk.own_runs_of(quick=quick) + reads.runs_of(quick=quick) + meet.runs_of(quick=quick)
    return {
        CORES: 4.0 if quick else 12.0,
        OPERATIONS: _SPEED + plan * unit.turns_of(quick=quick) * len(unit.plans(quick=quick)),
        LOCK: _SPEED + (1.0 if quick else 16.0),
        MESSAGES: 4.0 if quick else 8.0,
        READING: _SPEED + run / 2.0 * reads.runs_of(quick=quick),
        REQUESTS: _SPEED + run * talk.runs_of(quick=quick),
        COLLECTIVES: 2.0 * _SPEED + run * meet.runs_of(quick=quick),
        KEEPING: 3.0 + 3.0 * talk.STARTS[quick],
        OWN: _OWN[quick] * own,
    }


class Measuring:
    """One calibration, part by part."""

    def __init__(self, quick: bool, stages: Stages) -> None:
        self.quick, self._stages = quick, stages
        self.cores = environment.cores()
        self.settings = grid.QUICK if quick else grid.GRID

    def operations(self) -> unit.FromPlans:
        """Operations of calibration's own plans, on one thread and, of large batches, on one for
        each core."""
        turns = unit.turns_of(quick=self.quick) * len(unit.plans(quick=self.quick))
        return unit.measure(self.cores, self._stages.begin(OPERATIONS, turns), quick=self.quick)

    def lock(self) -> list[Crowd]:
        """Threads of one process, which share its lock; nothing where there is one core."""
        if self.cores == 1:
            return []
        with MeasuringProcess("lock", {"quick": self.quick}, _LIMIT) as child:
            seen: list[Any] = child.result()
        return [Crowd(*each) for each in seen]

    def wire(self, folder: Path, *, crowded: bool = False) -> list[dict[str, Any]]:
        """Both ends of a connection over loopback.

        ``crowded``: while training steps of other processes keep every core busy. That is where
        messages live in a run: caches are cold, and the threads at both ends are preempted.
        """
        request = {
            "quick": self.quick,
            "crowded": crowded,
            "store": str(folder / ("store-crowded" if crowded else "store")),
        }
        busy = ["busy"] * (min(self.cores, MOST_BUSY) if crowded else 0)
        with side_by_side(busy, {"seconds": _LIMIT}, _LIMIT) as children:
            for child in children:
                child.tell({})
            return both_ends("wire", request, _LIMIT)

    def keeping(self, folder: Path) -> dict[str, list[float]]:
        """What checkpoints take, and starts: values by the name of their price."""
        done = self._stages.begin(KEEPING, talk.STARTS[self.quick])
        with MeasuringProcess(
            "keeping", {"folder": str(folder), "quick": self.quick}, _LIMIT
        ) as child:
            found: dict[str, list[float]] = child.result()
        return found | {"start": talk.starts(folder, self.cores, done, quick=self.quick)}

    def windows(self, parts: Sequence[str], turns: Sequence[int], seconds: float) -> list[Any]:
        """What a process for each of the ``parts`` reports, of windows of so many ``seconds``: in
        each of the ``turns`` so many of them, the first ones, have one side by side."""
        with side_by_side(parts, {"seconds": seconds}, _LIMIT) as children:
            for many in turns:
                answers(children[:many], {})
            for child in children:
                child.tell({"stop": True})
            return [child.result() for child in children]

    def turn(self) -> float | None:
        """Seconds for which a thread keeps a core that another wants; None: not to be measured."""
        kept = self.windows(["turns"] * 2, [2], 0.3)
        turns = [seconds for report in kept for seconds in report]
        return median(turns) if turns else None

    def busy(self) -> tuple[float, float]:
        """(contention, jitter): in turn one busy process and one for each core, because the machine
        may be slower in one second than in the next. Jitter is that of steps on busy cores."""
        count = min(self.cores, MOST_BUSY)
        turns, seconds = _BUSY_TURNS, 0.1 if self.quick else 0.4
        first, *others = self.windows(["busy"] * count, [1, count] * turns, seconds)
        alone, crowd = first[::2], [*first[1::2], *(seen for other in others for seen in other)]
        rates = ([seen["rate"] for seen in windows] for windows in (alone, crowd))
        jitter = min(2.0, mean(seen["spread"] for seen in crowd))
        return contention(*rates) if count > 1 else 1.0, jitter
