"""What the processes of a job hold, without the processes, and checkpoints of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recsim_train.checkpoints.manifest import (
    Manifest,
    WholeCheckpoint,
    complete,
    manifest_of,
    merged,
    place,
)
from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.checkpoint import state
from recsim_train.executor.checkpoint.files import MemoryBlock, snapshot, write
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan

ROWS = (1000, 90, 7)


def plan_of(
    trainers: int = 2,
    servers: int = 2,
    dense: int = 0,
    kind: str = "allreduce",
    options: dict[str, Any] | None = None,
    **training: Any,
) -> Plan:
    rules = {"batch_size": 8, "steps": 20, "warmup_steps": 2, "threads": 1}
    rules |= {"dense_optimizer": "adagrad", "sparse_optimizer": "rowwise_adagrad"}
    spec = Experiment(
        name="kept",
        model=Model(
            embedding_dim=4, bottom_mlp=(6, 4), top_mlp=(5, 1),
            tables=tuple(Table(rows=rows) for rows in ROWS),
        ),
        data=Data(eval_rows=0),
        roles=Roles(trainers=trainers, embedding_servers=servers, dense_servers=dense),
        training=Training.model_validate(rules | training),
        strategies=(StrategyChoice(kind=kind, options=options or {}),),
    )  # fmt: skip
    return build_plan(spec, spec.strategies[0])


class Job:
    """Of one plan: shards, replicas and loops, filled with numbers that nothing else has."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        shards = plan.embedding.shards if plan.embedding else ()
        self.tables = [EmbeddingServer(plan, shard) for shard in shards]
        self.dense = [
            DenseServer(plan, shard) for shard in (plan.dense.shards if plan.dense else ())
        ]
        trainers = range(plan.experiment.roles.trainers)
        hosts = [0 if plan.net is None else plan.host(trainer) for trainer in trainers]
        self.replicas = [Replica.of(plan, host) for host in hosts]
        self.workers = {
            loop.name: Worker(self.replicas[loop.trainer], "server", plan.net, hosts[loop.trainer])
            for loop in plan.all_loops
        }
        draw = torch.Generator().manual_seed(seed)
        for held in [*self.shards(), *self.of_trainers()]:
            held.tensor.copy_(torch.rand(held.tensor.shape, generator=draw))

    def shards(self) -> list[MemoryBlock]:
        return list(state.of_shards(self.plan, [*self.tables, *self.dense]))

    def of_trainers(self) -> list[MemoryBlock]:
        found: list[MemoryBlock] = []
        for trainer, replica in enumerate(self.replicas):
            found += state.of_replica(trainer, replica)
        for name, worker in self.workers.items():
            found += state.of_loop(name, worker)
        return found

    def kept(self, folder: Path, iteration: int = 4, *, ended: bool = False) -> WholeCheckpoint:
        """A checkpoint, each shard's and all trainers' files written by themselves."""
        path = place(folder, iteration)
        path.mkdir(parents=True)
        written = [
            write(path, f"process-{number}", snapshot(held))
            for number, held in enumerate(
                [
                    *(state.of_shards(self.plan, [one]) for one in [*self.tables, *self.dense]),
                    self.of_trainers(),
                ]
            )
        ]
        tensors = merged(some for some, _ in written)
        files = {name: size for _, sizes in written for name, size in sizes.items()}
        manifest: Manifest = manifest_of(self.plan, iteration, tensors, files, ended=ended)
        complete(path, manifest)
        return WholeCheckpoint(path, manifest)

    def table(self, number: int) -> tuple[Tensor, Tensor]:
        """Rows and sums of squares of a table, put together by hand from the shards' slices."""
        rows = torch.full((ROWS[number], 4), torch.nan)
        squares = torch.full((ROWS[number],), torch.nan)
        for server in self.tables:
            position = 0
            for part in server.rules.shard.slices:
                own = slice(position, position + part.rows)
                position = own.stop
                if part.table == number:
                    columns = slice(part.first, part.last or None)
                    rows[part.start : part.stop : part.step, columns] = server.state.rows[own]
                    squares[part.start : part.stop : part.step] = server.state.state[own]
        return rows, squares
