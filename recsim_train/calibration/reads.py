"""Runs of calibration's own program whose readers differ: by the generator, of text, and with many
streams.

All other runs of `recsim_train.calibration.talk` read files of whole numbers, in as many streams
as there are trainers. As there, a run that reads a file takes whole pieces of it. What reading
takes is measured beside a net's passes, as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as of

from recsim_train.calibration import talk
from recsim_train.calibration.fit import Observation
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.columns import Column
from recsim_train.config.experiment import Data, Experiment, Model, Synthetic
from recsim_train.config.formats import FILES, GENERATED
from recsim_train.data.convert import write_rows
from recsim_train.data.log import PIECE
from recsim_train.data.text import CRITEO


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
    hashed: bool = False
    """Of files: whether ids are text, which is hashed; else whole numbers."""


_FEW = Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI, features=2)
_RUNS = (
    _Planned(Setting(8, 6, (384, 192), (320, 160), (), 16 * MEBI), 192, 1, 150),
    _Planned(Setting(16, 5, (256, 96), (192, 64), (), 16 * MEBI, ids=30), 96, 1, 150),
    _Planned(Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 2, 293, FILES, True),
    _Planned(_FEW, 112, 6, 146, FILES),
    _Planned(_FEW, 512, 2, 80, FILES),
    _Planned(Setting(8, 4, (384, 192), (320, 160), (), 16 * MEBI), 512, 2, 128, FILES, True),
    _Planned(Setting(8, 34, (96,), (320, 160), (), 16 * MEBI), 160, 1, 150),
    _Planned(Setting(24, 12, (128,), (192,), (), 24 * MEBI, ids=9, variable=True), 256, 1, 100),
)
"""Tables of one id and of many, large batches and small ones, files of few numbers (of others there
are 13), all with more to compute on than a core's own cache holds."""
_QUICK = 4
"""So many of them in a quick calibration."""
_SYNTHETIC = Synthetic(rows=40_000, seed=47)


def runs_of(*, quick: bool) -> int:
    """How many runs `measure` makes."""
    return len(_RUNS[: _QUICK if quick else None])


def measure(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[Read]:
    """All runs."""
    found, trainers = [], talk.trainers_on(cores)
    with talk.known(talk.Talk):
        for read in _RUNS[: _QUICK if quick else None]:
            steps = read.steps // 3 if quick else read.steps
            run = _experiment(read, folder / "read.parquet", trainers, steps)
            done = OwnRun.of(*talk.outcome_of(run))
            seen = talk.read_of(done.plan, done.ledger)
            found.append(Read(seen, done if read.threads <= cores else None))
            tick()
    return found


def _experiment(read: _Planned, path: Path, trainers: int, steps: int) -> Experiment:
    run = talk.experiment("embedding", read.setting, read.batch, trainers, steps, path)
    # whoever is far ahead when counting begins has little left to do
    data = Data(eval_rows=0, synthetic=_SYNTHETIC, queue_batches=1)
    if read.source != GENERATED:
        data = data.with_({"path": (str(path),)})
        talk.write_log(path, run.model, _SYNTHETIC.seed, trainers * read.threads)
    if read.hashed:
        _as_text(path)
        data = data.with_({"label": CRITEO[0], "columns": _columns(run.model)})
    return run.with_({"data": data, "training.threads": read.threads})


def _as_text(path: Path) -> None:
    """Turn the categories of a file of Criteo's columns into text."""
    table = pq.read_table(path)
    texts = [pa.utf8() if of.is_uint64(field.type) else field.type for field in table.schema]
    table = table.cast(pa.schema(zip(table.column_names, texts, strict=True)))
    write_rows(path, table.schema, iter(table.to_batches()), group=PIECE)


def _columns(model: Model) -> tuple[Column, ...]:
    """Those that give a model's tables and features, ids hashed."""
    numeric = tuple(f"I{n + 1}" for n in range(model.dense_features))
    tables = enumerate(model.tables, start=1)
    return (
        Column(name=numeric, type="numeric", normalizer="log1p"),
        *(
            Column(name=(f"C{n}",), type="categorical", hash_bucket_size=table.rows - 1)
            for n, table in tables
        ),
    )
