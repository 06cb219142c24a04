"""Several gloo processes that pass batches through cut nets, all cases in one start.

Each process drives the real kernels over real collectives: own embedding shards in its memory, its
part of the net, plain SGD. What is left of every case goes back to the test.
"""

from __future__ import annotations

import pickle
import signal
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.data.stream import open_stream
from recsim_train.executor.feed import to_batch
from recsim_train.executor.link.gloo import Collective
from recsim_train.executor.net.model import initial_rows
from recsim_train.executor.process import forkserver
from recsim_train.executor.process.attend import schedule
from recsim_train.executor.runtime import LoopContext, run_loop
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.shards.stubs import Answer, EmbeddingStub, Near
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import LoopId, Plan, TableSlice
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy.registry import create
from recsim_train.strategy.values import Batch
from recsim_train.trace.record import Recorder

SINGLE = (Table(rows=120), Table(rows=2), Table(rows=60), Table(rows=50))
BAGS = (
    Table(rows=120),
    Table(rows=2),
    Table(rows=60, ids=3),
    Table(rows=50, ids=4, variable=True),
)
GLOBAL_BATCH = 24
CASES = "cases.pickle"
LIMIT = 300.0
"""Seconds that a group may take."""


@dataclass(frozen=True)
class Case:
    """One training run of a few steps."""

    kind: str = "dlrm"
    strategy: str = "allreduce"
    options: tuple[tuple[str, object], ...] = ()
    bags: bool = False
    top: tuple[int, ...] = (8, 1)
    dtype: str = "float64"
    steps: int = 4
    optimizer: str = "sgd"

    def whole(self) -> Experiment:
        """The experiment of the uncut net with the global batch."""
        return replace(self, strategy="allreduce", options=()).plan(1).experiment

    def plan(self, trainers: int) -> Plan:
        choice = StrategyChoice(kind=self.strategy, options=dict(self.options))
        model = Model(
            kind=self.kind,
            embedding_dim=4,
            bottom_mlp=(8, 4) if self.kind == "dlrm" else (),
            top_mlp=self.top,
            cross_layers=2,
            tables=BAGS if self.bags else SINGLE,
            dtype=self.dtype,
        )
        spec = Experiment(
            name="net group",
            model=model,
            data=Data(eval_rows=0, synthetic=Synthetic(rows=4000)),
            roles=Roles(trainers=trainers),
            training=Training(
                batch_size=GLOBAL_BATCH // trainers,
                steps=self.steps,
                warmup_steps=0,
                sparse_optimizer="sgd",
                dense_optimizer=self.optimizer,
                dense_lr=0.02,
                sparse_lr=0.02,
            ),
            strategies=(choice,),
        )
        return build_plan(spec, choice)


@dataclass
class Left:
    """What one process holds after a case."""

    losses: list[float]
    shards: list[tuple[Any, Tensor]]
    trained: Tensor


class _Batches:
    def __init__(self, plan: Plan, rank: int) -> None:
        loop = LoopId(rank, "worker", 0)
        spec = plan.experiment
        self._model = spec.model
        self._stream = open_stream(
            spec.model,
            spec.data,
            batch_size=plan.examples,
            positions=(plan.positions[loop],),
            total=plan.streams,
            iterations=spec.training.steps,
            seed=spec.seed,
        )

    def next(self) -> Batch | None:
        fed = next(self._stream, None)
        return None if fed is None else to_batch(self._model, fed.batch, fed.iteration)


def train(case: Case, rank: int, size: int, collectives: dict[str, Collective]) -> Left:
    """One process's run of a case whose embedding shards this process owns."""
    plan = case.plan(size)
    spec = plan.experiment
    assert plan.embedding is not None
    stub: Any
    if plan.embedding.service.access == "own":
        shard = plan.embedding.shards[rank]
        server = EmbeddingServer(plan, shard)
        stub = EmbeddingStub([Near(server, rank)])
        stub.whole = False
        shards = [(shard.slices, server.state.rows)]
    else:
        group = next(iter(collectives.values())).group
        stub = tables = ReplicatedTables(plan, group, size)
        slices = [TableSlice(t, 0, len(rows)) for t, rows in enumerate(tables.tables)]
        shards = [((s,), rows) for s, rows in zip(slices, tables.tables, strict=True)]
    held, everywhere = None, 0
    if isinstance(plan.net, TaggedNet):
        held, everywhere = plan.net.held(rank), plan.net.shared_numbers
    replica = Replica(spec.model, spec.training, spec.seed, held, everywhere)
    context = LoopContext(
        instance=f"trainer[{rank}]",
        label="worker[0]",
        definition=plan.loop("worker"),
        topology=plan.topology,
        worker=Worker(replica, "server", plan.net, 0 if plan.net is None else plan.host(rank)),
        feed=_Batches(plan, rank),
        embedding=stub,
        dense=None,
        collectives=collectives,
        clock=lambda: 0.0,
        recorder=Recorder(0, spec.training.steps, 0),
    )
    strategy = create(plan.used, plan.place(rank))
    run_loop(context, strategy.program("worker"))
    assert context.recorder is not None
    losses = [i.loss for i in context.recorder.iterations if i.loss is not None]
    trained = getattr(strategy, "trained", None)
    final = replica.parameters if trained is None else trained.tensor
    return Left(losses, shards, final)


class ReplicatedTables:
    """Whole tables at every process, stepped together with the mean of all gradients."""

    def __init__(self, plan: Plan, group: dist.ProcessGroup | None, size: int) -> None:
        spec = plan.experiment
        self.model, self.lr = spec.model, spec.training.sparse_lr
        self.group, self.size = group, size
        self.tables = [
            initial_rows(spec.model, spec.seed, t, 0, table.rows)
            for t, table in enumerate(spec.model.tables)
        ]

    def _bags(self, ids: RealIds, table: int) -> tuple[Tensor, Tensor]:
        lengths = ids.lengths[table]
        if lengths is None:
            lengths = torch.full((ids.batch,), self.model.tables[table].ids)
        return ids.table(table), lengths.to(torch.int64)

    def lookup(self, ids: RealIds, _: int) -> Answer:
        """Pooled vectors [tables, batch, row_width]."""
        pooled = []
        for t, table in enumerate(self.tables):
            values, lengths = self._bags(ids, t)
            pooled.append(torch.stack([b.sum(0) for b in table[values].split(lengths.tolist())]))
        return lambda: (RealRows(torch.stack(pooled), ids), 0)

    def update(self, gradient: RealRows, _: int) -> Answer:
        """One step of plain SGD with the mean over the processes."""
        for t, table in enumerate(self.tables):
            values, lengths = self._bags(gradient.ids, t)
            total = torch.zeros_like(table)
            total.index_add_(0, values, gradient.tensor[t].repeat_interleave(lengths, 0))
            if self.group is not None:
                dist.all_reduce(total, group=self.group)
            table.sub_(self.lr * total / self.size)
        return lambda: (None, 0)


def main() -> None:
    """One process of the group; its command line: FOLDER RANK."""
    path, rank = Path(sys.argv[1]), int(sys.argv[2])
    size, cases = pickle.loads((path / CASES).read_bytes())
    torch.set_num_threads(1)
    schedule("SCHED_BATCH")
    store = dist.FileStore(str(path / "store"), size)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    group = dist.group.WORLD if size > 1 else None
    names = ("trainers", "hosts", "group")
    collectives = {name: Collective(group, size, rank) for name in names}
    found = [train(case, rank, size, collectives) for case in cases]
    torch.save(found, path / f"{rank}.pt")
    dist.barrier()


def run_group(size: int, cases: list[Case], folder: Path) -> list[list[Left]]:
    """By case, what each of ``size`` processes holds at the end."""
    folder.mkdir()
    (folder / CASES).write_bytes(pickle.dumps((size, cases)))
    with (folder / "errors.txt").open("wb") as errors:
        started = [
            forkserver.start("tests.executor.net_group", [str(folder), str(rank)], errors)
            for rank in range(size)
        ]
    try:
        codes = [process.poll(LIMIT) for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.stdin.close()
            process.stdout.close()
    assert codes == [0] * size, (folder / "errors.txt").read_text()
    parts = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]
    return [[part[index] for part in parts] for index in range(len(cases))]


def whole_tables(case: Case, left: list[Left]) -> list[Tensor]:
    """Every table's rows, put together from all shards."""
    model = case.whole().model
    width = model.row_width
    tables = [torch.full((t.rows, width), torch.nan, dtype=torch.float64) for t in model.tables]
    for part in left:
        for slices, rows in part.shards:
            position = 0
            for s in slices:
                columns = slice(s.first, s.last or None)
                held = rows[position : position + s.rows].double()
                tables[s.table][s.start : s.stop : s.step, columns] = held
                position += s.rows
    return tables
