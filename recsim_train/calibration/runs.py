"""Which runs calibration makes of its own programs, and how they are made.

With as many trainers as there are cores (of two to four). What reading takes is measured beside a
net's passes, as they are: most runs read files of whole numbers, in as many streams as there are
trainers; those of `readings` differ in what is read, by the generator, of text, and in how many
streams.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as of

from recsim_train.calibration import grid
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.calibration.programs import Asks, Meet, Talk, is_usual, known
from recsim_train.config.columns import Column
from recsim_train.config.experiment import (
    Data,
    Execution,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
)
from recsim_train.config.formats import FILES, GENERATED
from recsim_train.data.convert import write_rows
from recsim_train.data.generated import write_generated
from recsim_train.data.log import PIECE
from recsim_train.data.text import CRITEO
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome


class PlannedRun(NamedTuple):
    """A run of one of calibration's own programs."""

    asks: Asks
    setting: Setting
    batch: int
    steps: int
    threads: int = 1
    """Of each trainer; each reads a stream of its own."""
    source: str = FILES
    hashed: bool = False
    """Of files: whether ids are text, which is hashed; else whole numbers."""
    execution: Execution = Execution()
    """How its requests travel."""
    readers: int = 0
    """Processes that make the batches and send them; else threads beside the loops do."""
    queue: int = Data().queue_batches
    """Batches that readers are ahead."""

    @property
    def travels_as_usual(self) -> bool:
        """Whether its requests and batches do."""
        return self.execution == Execution() and not self.readers


TALKS = (
    PlannedRun("dense", Setting(8, 4, (512, 512), (768, 768), (), 4 * MEBI), 96, 341),
    PlannedRun("embedding", Setting(64, 18, (48,), (32,), (), 32 * MEBI, features=2), 224, 512),
    PlannedRun("embedding", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 439),
    PlannedRun("dense", Setting(64, 18, (48,), (32,), (), 32 * MEBI), 224, 585),
    PlannedRun("dense", Setting(8, 12, (24,), (24,), (), 2 * MEBI), 48, 1365),
    PlannedRun("embedding", Setting(8, 12, (24,), (24,), (), 2 * MEBI, features=2), 48, 1536),
    PlannedRun(
        "embedding", Setting(24, 20, (320, 160), (448, 192), (), 32 * MEBI, features=2), 1152, 57
    ),
)
"""Large messages and small ones, and steps that move 0.3 to 57 MB through the caches between them.
A run lasts one and a half seconds or more: one of 0.4 s keeps a sixth fewer cores busy than a
longer one of the same. It takes whole pieces of its file (`recsim_train.data.log.PIECE`), four or
more: they are decoded at one go."""


def _the_usual_way(run: PlannedRun) -> PlannedRun:
    return run


def _without_shared_memory(run: PlannedRun) -> PlannedRun:
    return run._replace(execution=Execution(shared_memory=False))


def _with_reader(run: PlannedRun) -> PlannedRun:
    return run._replace(readers=1)


WAYS = _the_usual_way, _without_shared_memory, _with_reader
"""How requests and batches may travel."""
_OTHER_WAYS = 2
"""Of `TALKS`, the first ones, that are made in the other ways, too: one of each kind of request."""
_QUICK_TALKS = (
    (0, WAYS[0], 2), (1, WAYS[0], 2), (3, WAYS[0], 2), (4, WAYS[0], 2),
    (0, WAYS[1], 4), (1, WAYS[2], 4),
)  # fmt: skip
"""(which of `TALKS`, in which way, how many times shorter) of a quick calibration: so many go the
usual way that prices which are asked for everywhere show how they scatter."""
STARTS = 3, 2
"""How many short runs there are to see what starting takes; in full and quick."""
MEETINGS = (
    PlannedRun("reduce", Setting(8, 4, (512, 512), (768, 768), (), 4 * MEBI), 96, 160),
    PlannedRun("gather", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 350),
    PlannedRun("reduce", Setting(64, 18, (48,), (32,), (), 32 * MEBI), 224, 900),
    PlannedRun("reduce", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 400),
    PlannedRun("gather", Setting(64, 18, (48,), (32,), (), 32 * MEBI), 224, 800),
)
"""Long vectors and short ones, and both kinds in the first two, which are all of a quick
calibration; as long as `TALKS`."""
_QUICK_MEETINGS = 2
_FEW = Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI, features=2)


READINGS = (
    PlannedRun(
        "embedding", Setting(8, 6, (384, 192), (320, 160), (), 16 * MEBI), 192, 150, 1, GENERATED
    ),
    PlannedRun(
        "embedding", Setting(16, 5, (256, 96), (192, 64), (), 16 * MEBI, ids=30), 96, 150, 1,
        GENERATED,
    ),
    PlannedRun(
        "embedding", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 293, 2,
        hashed=True,
    ),
    PlannedRun("embedding", _FEW, 112, 146, 6),
    PlannedRun("embedding", _FEW, 512, 80, 2),
    PlannedRun(
        "embedding", Setting(8, 4, (384, 192), (320, 160), (), 16 * MEBI), 512, 128, 2,
        hashed=True,
    ),
    PlannedRun(
        "embedding", Setting(8, 34, (96,), (320, 160), (), 16 * MEBI), 160, 150, 1, GENERATED
    ),
    PlannedRun(
        "embedding", Setting(24, 12, (128,), (192,), (), 24 * MEBI, ids=9, variable=True), 256,
        100, 1, GENERATED,
    ),
)  # fmt: skip
"""Tables of one id and of many, large batches and small ones, files of few numbers (of others there
are 13), all with more to compute on than a core's own cache holds."""
_QUICK_READINGS = 4
"""So many of them in a quick calibration."""
_SYNTHETIC = Synthetic(rows=40_000, seed=47)
_GROUPS = 8
"""Row groups of a file, at least."""


def talks(*, quick: bool) -> list[PlannedRun]:
    """One run for each kind of request and each way."""
    if quick:
        return [
            way(TALKS[number]._replace(steps=TALKS[number].steps // shorter))
            for number, way, shorter in _QUICK_TALKS
        ]
    return [
        way(run)
        for number, run in enumerate(TALKS)
        for way in (WAYS if number < _OTHER_WAYS else WAYS[:1])
    ]


def meetings(*, quick: bool) -> list[PlannedRun]:
    """Those whose members meet."""
    if quick:
        return [run._replace(steps=run.steps // 4) for run in MEETINGS[:_QUICK_MEETINGS]]
    return list(MEETINGS)


def readings(*, quick: bool) -> list[PlannedRun]:
    """Those whose readers differ. Whoever is far ahead when counting begins has little left to do:
    they are not."""
    runs = [run._replace(queue=1) for run in READINGS]
    if quick:
        return [run._replace(steps=run.steps // 3) for run in runs[:_QUICK_READINGS]]
    return runs


def trainers_on(cores: int) -> int:
    """How many trainers a run has."""
    return min(4, max(2, cores))


def measure(
    runs: Sequence[PlannedRun], folder: Path, cores: int, tick: Callable[[], None]
) -> list[OwnRun]:
    """All of them, in this order; ``tick`` is called after each."""
    found = []
    with known():
        for run in runs:
            spec = experiment(run, trainers_on(cores), folder)
            found.append(OwnRun.of(*outcome_of(spec)))
            tick()
    return found


def is_predicted(run: OwnRun, cores: int) -> bool:
    """Whether a prediction is held against it: all travels as users' do, and a trainer has no more
    threads than there are cores, or it is there to tell what many streams cost."""
    spec = run.plan.experiment
    return is_usual(spec) and spec.training.threads <= cores


def starts(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[float]:
    """Seconds from asking for a run's processes until all loops have begun, with what the first
    iteration takes longer than others; of short runs."""
    found = []
    with known():
        run = experiment(TALKS[4]._replace(steps=200), trainers_on(cores), folder)
        for _ in range(STARTS[quick]):
            asked = time.monotonic()
            _, outcome = outcome_of(run)
            first = max(i.end - i.start for i in outcome.iterations if i.iteration == 0)
            usual = median(i.end - i.start for i in outcome.iterations)
            found.append(outcome.began - asked + first - usual)
            tick()
    return found


def outcome_of(run: Experiment) -> tuple[Plan, Outcome]:
    """Do a run."""
    plan = build_plan(run, run.strategies[0])
    with tempfile.TemporaryDirectory(prefix="recsim-talk-") as staging:
        return plan, execute(plan, staging=Path(staging))


def experiment(run: PlannedRun, trainers: int, folder: Path) -> Experiment:
    """The experiment of a run; a file that it reads is made in the folder where it is not yet."""
    model, data = run.setting.model(), Data(eval_rows=0, queue_batches=run.queue)
    if run.source == GENERATED:
        data = data.with_({"synthetic": _SYNTHETIC})
    else:
        path = _log_of(run, model, trainers * run.threads, folder)
        data = data.with_({"path": (str(path),)})
    if run.hashed:
        data = data.with_({"label": CRITEO[0], "columns": _columns(model)})
    roles, program = Roles(trainers=trainers, embedding_servers=1, dense_servers=1), Talk.kind
    roles = roles.with_({"readers": run.readers})
    if run.asks in ("reduce", "gather"):
        roles, program = Roles(trainers=trainers), Meet.kind
    return Experiment(
        name="calibration",
        model=model,
        data=data,
        roles=roles,
        training=grid.training().with_(
            {
                "batch_size": run.batch, "steps": run.steps, "warmup_steps": 20,
                "threads": run.threads,
            }
        ),
        execution=run.execution,
        strategies=(StrategyChoice(kind=program, options={"asks": run.asks}),),
    )  # fmt: skip


def _log_of(run: PlannedRun, model: Model, loops: int, folder: Path) -> Path:
    """The generator's rows as a file, for so many loops: each decodes row groups of its own."""
    groups = max(_GROUPS, loops)
    what = f"{model.name} of {run.setting.rows}, {run.setting.features}, {groups}"
    path = folder / f"{what}{' text' * run.hashed}.parquet"
    if not path.exists():
        rows = PIECE * groups
        synthetic = Synthetic(rows=rows, seed=_SYNTHETIC.seed)
        write_generated(path, model, synthetic, rows, group=PIECE)
        if run.hashed:
            _as_text(path)
    return path


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
