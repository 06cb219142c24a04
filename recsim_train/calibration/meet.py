"""Runs of calibration's own program whose members meet: what collectives cost in a run.

As in `recsim_train.calibration.talk` a net's passes lie between the meetings, and what the ledger
books under collectives is what is priced: all threads of a member, its waiting included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from recsim_train.calibration import grid, talk
from recsim_train.calibration.fit import Observation
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.experiment import Experiment, Roles, StrategyChoice
from recsim_train.strategy.base import (
    EMBEDDING,
    TRAINERS,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import AllGather, AllReduce, Compute, Lookup, batches
from recsim_train.strategy.operations import FORWARD_BACKWARD
from recsim_train.trace.ledger import COLLECTIVES
from recsim_train.workload.operations import MEETINGS
from recsim_train.workload.shape import dense_parameters, net_work

Meeting = Literal["reduce", "gather"]


@dataclass
class Meet(Strategy):
    """Collectives of one kind only, with other work between them."""

    kind: ClassVar[str] = "meet"
    summary: ClassVar[str] = "calibration's own program of collectives"
    source: ClassVar[str] = "recsim-train"
    lock_step: ClassVar[bool] = True

    does: Literal["reduce", "gather"] = option("reduce", help="which collective")

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("member"),),
            services=(EmbeddingService(),),
            groups=(Group(TRAINERS, loop="member"),),
        )

    async def member(self) -> None:
        first = rows = None
        async for batch in batches():
            if first is None or rows is None:
                first, rows = batch, await Lookup(EMBEDDING, batch.ids)
            gradients = await Compute(FORWARD_BACKWARD, first, rows)
            if self.does == "reduce":
                await AllReduce(gradients.dense, TRAINERS)
            else:
                await AllGather(gradients.dense, TRAINERS)


class _Run(NamedTuple):
    does: Meeting
    setting: Setting
    batch: int
    steps: int


_RUNS = (
    _Run("reduce", Setting(8, 4, (512, 512), (768, 768), (), 4 * MEBI), 96, 160),
    _Run("gather", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 350),
    _Run("reduce", Setting(64, 18, (48,), (32,), (), 32 * MEBI), 224, 900),
    _Run("reduce", Setting(8, 24, (384, 192), (320, 160), (), 16 * MEBI), 112, 400),
    _Run("gather", Setting(64, 18, (48,), (32,), (), 32 * MEBI), 224, 800),
)
"""Long vectors and short ones, and both kinds in the first two, which are all of a quick
calibration; as long as the runs of `recsim_train.calibration.talk`."""
_QUICK = 2


class Met(NamedTuple):
    """One run."""

    seen: Observation
    moved: float
    """Bytes that a step moves through the caches between meetings."""
    own: OwnRun
    """To hold a prediction against."""


def runs_of(*, quick: bool) -> int:
    """How many runs `measure` makes."""
    return _QUICK if quick else len(_RUNS)


def measure(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[Met]:
    """What one meeting took of one member, in each run."""
    found, members = [], talk.trainers_on(cores)
    with talk.known(Meet):
        for number, run in enumerate(_RUNS[: runs_of(quick=quick)]):
            path, steps = folder / f"meet-{number}.parquet", run.steps // 4 if quick else run.steps
            talk.write_log(path, run.setting.model(), 53, members)
            spec = _experiment(run._replace(steps=steps), path, members)
            done = OwnRun.of(*talk.outcome_of(spec))
            work = meeting_work(run.does, 4 * dense_parameters(spec.model), members)
            each = done.ledger.spent(COLLECTIVES) / (steps * members)
            moved = net_work(spec.model, done.plan.examples)["stream_byte"]
            found.append(Met(Observation(MEETINGS, work, max(1e-9, each)), moved, done))
            tick()
    return found


def meeting_work(does: Meeting, size: int, members: int) -> dict[str, float]:
    """Of one member, for a vector of ``size`` bytes: steps, and bytes sent and received."""
    others = members - 1
    work = {"collective_message": 2.0 * others}
    if does == "reduce":
        return work | {"reduced_byte": 4.0 * others / members * size}
    return work | {"exchanged_byte": 2.0 * others * size}


def _experiment(run: _Run, path: Path, trainers: int) -> Experiment:
    roles = Roles(trainers=trainers, embedding_servers=0)
    choice = StrategyChoice(kind=Meet.kind, options={"does": run.does})
    return grid.run(run.setting, run.batch, run.steps, path, roles, choice)
