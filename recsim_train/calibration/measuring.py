"""What one calibration asks of its measuring processes, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, median
from typing import Any

from recsim_train.calibration.child import answers, both_ends, side_by_side
from recsim_train.calibration.own import unit
from recsim_train.calibration.own.measure import MOST_BUSY
from recsim_train.calibration.prices import Crowd, contention
from recsim_train.calibration.runs import STARTS, meetings, readings, talks
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
"""Seconds of a reading of the machine's speed, of a turn of a plan of `unit`, of one of
`recsim_train.calibration.runs`, of a prediction of it; in a full calibration and in a quick one."""


def seconds_of(*, quick: bool) -> dict[str, float]:
    """About what each stage of a calibration takes, in their order."""
    plan, run = _PLAN[quick], _RUN[quick]
    reading, asking, meeting = (of(quick=quick) for of in (readings, talks, meetings))
    own = sum(one.travels_as_usual for one in (*reading, *asking, *meeting))
    return {
        CORES: 4.0 if quick else 12.0,
        OPERATIONS: _SPEED + plan * unit.turns_of(quick=quick) * len(unit.plans(quick=quick)),
        LOCK: _SPEED + (1.0 if quick else 16.0),
        MESSAGES: 4.0 if quick else 8.0,
        READING: _SPEED + run / 2.0 * len(reading),
        REQUESTS: _SPEED + run * len(asking),
        COLLECTIVES: 2.0 * _SPEED + run * len(meeting),
        KEEPING: 3.0 + 3.0 * STARTS[quick],
        OWN: _OWN[quick] * own,
    }


def measure_lock(cores: int, *, quick: bool) -> list[Crowd]:
    """Threads of one process, which share its lock; nothing where there is one core."""
    if cores == 1:
        return []
    with side_by_side("lock", [{}], _LIMIT) as children:
        (seen,) = answers(children, {"quick": quick})
    return [Crowd(*each) for each in seen]


def measure_wire(folder: Path, *, quick: bool, crowded_cores: int = 0) -> list[dict[str, Any]]:
    """Both ends of a connection over loopback.

    ``crowded_cores``: while training steps of other processes keep so many cores busy. That is
    where messages live in a run: caches are cold, and the threads at both ends are preempted.
    """
    busy: list[dict[str, Any]] = [{}] * min(crowded_cores, MOST_BUSY)
    message = {"quick": quick, "crowded": crowded_cores > 0}
    with side_by_side("busy", busy, _LIMIT) as children:
        for child in children:
            child.tell({"seconds": _LIMIT})
        return both_ends("wire", folder / f"store-{crowded_cores}", message, _LIMIT)


def measure_turn() -> float | None:
    """Seconds for which a thread keeps a core that another wants; None: not to be measured."""
    with side_by_side("turns", [{}] * 2, _LIMIT) as children:
        turns = [turn for kept in answers(children, {"seconds": 0.3}) for turn in kept]
    return median(turns) if turns else None


def measure_busy(cores: int, *, quick: bool) -> tuple[float, float]:
    """(contention, jitter): in turn one busy process and one for each core, because the machine may
    be slower in one second than in the next. Jitter is that of steps on busy cores."""
    count, message = min(cores, MOST_BUSY), {"seconds": 0.1 if quick else 0.4}
    alone, crowd = list[dict[str, float]](), list[dict[str, float]]()
    with side_by_side("busy", [{}] * count, _LIMIT) as children:
        for _ in range(_BUSY_TURNS):
            alone += answers(children[:1], message)
            crowd += answers(children, message)
    rates = ([seen["rate"] for seen in windows] for windows in (alone, crowd))
    jitter = min(2.0, mean(seen["spread"] for seen in crowd))
    return contention(*rates) if count > 1 else 1.0, jitter


def measure_keeping(folder: Path, *, quick: bool) -> dict[str, list[float]]:
    """What a process takes for checkpoints: values by the name of their price."""
    with side_by_side("keeping", [{"folder": str(folder)}], _LIMIT) as children:
        (found,) = answers(children, {"quick": quick})
    seen: dict[str, list[float]] = found
    return seen
