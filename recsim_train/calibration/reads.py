"""Runs of calibration's own program whose readers differ: by the generator, and with many streams.

All other runs of `recsim_train.calibration.talk` read text, in as many streams as there are
trainers. What reading takes is measured beside a net's passes, as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from recsim_train.calibration import talk
from recsim_train.calibration.fit import Observation
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.experiment import Data, Execution, Experiment, Synthetic
from recsim_train.config.formats import FORMATS, GENERATED
from recsim_train.data.source import reader_of


class Read(NamedTuple):
    """One run."""

    seen: Observation
    """What making a batch took."""
    own: OwnRun | None
    """To hold a prediction against; None: a trainer has more threads than there are cores, which is
    there to tell what many streams cost, and which no prediction is made for."""


class _Planned(NamedTuple):
    setting: Setting
    batch: int
    threads: int
    """Of each trainer; each reads a stream of its own."""
    steps: int
    source: str = GENERATED
    """"text": files, of every format."""


_RUNS = (
    _Planned(Setting(8, 6, (384, 192), (320, 160), (), 16 * MEBI), 192, 1, 150),
    _Planned(Setting(16, 5, (256, 96), (192, 64), (), 16 * MEBI, ids=30), 96, 1, 150),
    _Planned(Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 6, 60, source="text"),
    _Planned(Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 512, 2, 40, source="text"),
    _Planned(Setting(8, 34, (96,), (320, 160), (), 16 * MEBI), 160, 1, 150),
    _Planned(Setting(24, 12, (128,), (192,), (), 24 * MEBI, ids=9, variable=True), 256, 1, 100),
)
"""Tables of one id and of many, large batches and small ones, all with more to compute on than a
core's own cache holds."""
_QUICK = 3
"""So many of them in a quick calibration."""
_SYNTHETIC = Synthetic(rows=40_000, seed=47)


def _planned(*, quick: bool) -> list[_Planned]:
    """The runs, those of files once for each format."""
    return [
        read._replace(source=source)
        for read in _RUNS[: _QUICK if quick else None]
        for source in ((GENERATED,) if read.source == GENERATED else FORMATS)
    ]


def runs_of(*, quick: bool) -> int:
    """How many runs `measure` makes."""
    return len(_planned(quick=quick))


def measure(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[Read]:
    """All runs."""
    found, trainers = [], talk.trainers_on(cores)
    with talk.known(talk.Talk):
        for read in _planned(quick=quick):
            run = _experiment(read, folder, trainers, read.steps // 3 if quick else read.steps)
            if (path := run.data.path) is not None:
                reader_of(read.source).write(path, run.model, _SYNTHETIC, _SYNTHETIC.rows)
            done = OwnRun.of(*talk.outcome_of(run))
            seen = talk.read_of(done.plan, done.ledger)
            found.append(Read(seen, done if read.threads <= cores else None))
            tick()
    return found


def _experiment(read: _Planned, folder: Path, trainers: int, steps: int) -> Experiment:
    path = folder / f"read{'' if read.source == GENERATED else FORMATS[read.source].ending}"
    run = talk.experiment("embedding", read.setting, read.batch, trainers, steps, path, Execution())
    # whoever is far ahead when counting begins has little left to do
    data = Data(
        path=None if read.source == GENERATED else str(path), eval_rows=0, synthetic=_SYNTHETIC,
        queue_batches=1,
    )  # fmt: skip
    return run.with_({"data": data, "training.threads": read.threads})
