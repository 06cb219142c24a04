"""What the processes of a run hold, by what it is: the same list is written and filled again.

Rows of tables and the central dense parameters are named without regard to who holds them. What
belongs to one trainer or loop has its number in its name: where there are as many of them again,
each gets its own back; else a trainer begins with the mean of all, which of equal ones is exactly
the one, and what loops had not sent yet is summed up at the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from recsim_train.checkpoints.going_on import Keeping
from recsim_train.checkpoints.manifest import WholeCheckpoint, read_manifest, table_names
from recsim_train.executor.checkpoint.files import CENTRAL, MODEL, MemoryBlock, Source
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.shards.cache import held_rows
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer, central_order
from recsim_train.executor.worker import EmbeddingState, MixCache, Replica, Worker
from recsim_train.placement.plan import DenseShard, Instance, Plan
from recsim_train.workload.graph import graph_of


def of_tables(plan: Plan, state: EmbeddingState) -> Iterator[MemoryBlock]:
    """Rows, and Adagrad's sums of squares beside them."""
    model, position = plan.experiment.model, 0
    names = table_names(model, plan.experiment.data)
    for part in state.slices:
        rows, own = model.tables[part.table].rows, slice(position, position + part.rows)
        name, position = f"tables.{names[part.table]}", position + part.rows
        begin = part.start, part.first
        yield MemoryBlock(
            f"{name}.rows", (rows, model.row_width), begin, state.rows[own], part.step
        )
        if state.training.sparse_optimizer != "sgd":
            # of a row's columns by themselves these are no part of those of the whole row
            columns = f".columns-{part.first}-{part.last}" if part.last else ""
            named = f"{name}.squares{columns}"
            yield MemoryBlock(named, (rows,), (part.start,), state.state[own], part.step)


def of_central(plan: Plan, server: DenseServer, shard: DenseShard) -> Iterator[MemoryBlock]:
    """A shard of the central parameters, in the order of the model's."""
    whole, state = graph_of(plan.experiment.model).elements, server.state
    order = central_order(plan)
    places = torch.arange(whole) if order is None else order
    own = places[shard.start : shard.stop]
    cuts = [0, *((own.diff() != 1).nonzero().flatten() + 1).tolist(), own.numel()]
    for first, stop in zip(cuts, cuts[1:], strict=False):
        if stop > first:
            begin = (int(own[first]),)
            yield MemoryBlock(CENTRAL, (whole,), begin, state.values[first:stop])
            if state.optimizer.state.numel():
                squares = state.optimizer.state[first:stop]
                yield MemoryBlock(f"{CENTRAL}.squares", (whole,), begin, squares)


def of_replica(trainer: int, replica: Replica) -> Iterator[MemoryBlock]:
    """A trainer's dense parameters, of a part of the net operator by operator, their optimizer, and
    moves kept back."""
    graph = graph_of(replica.model)
    if replica.names is None:
        parts = [(0, graph.elements)]
    else:
        offsets = graph.offsets()
        parts = [(offsets[name], graph.operator(name).elements) for name in replica.names]
    position = 0
    for offset, elements in parts:
        own = slice(position, position + elements)
        position = own.stop
        for what, values in (("", replica.parameters), (".squares", replica.optimizer.state)):
            if elements and values.numel():
                named = f"trainers.{trainer}.dense{what}"
                yield MemoryBlock(named, (graph.elements,), (offset,), values[own])
    if replica.pending.numel():
        shape = tuple(replica.pending.shape)
        yield MemoryBlock(f"trainers.{trainer}.pending", shape, (0,), replica.pending)


def of_loop(name: str, worker: Worker) -> Iterator[MemoryBlock]:
    """What one loop keeps from one step to the next: what it has not sent, or not yet, and the
    global model of blockwise updates."""
    residual, block = worker.residual, worker.block or (None, None)
    kept = {
        "residual": residual.error,
        "thresholds": torch.tensor(residual.taus, dtype=torch.float64) if residual.taus else None,
        "accumulated": worker.accumulated,
        "block": block[0],
        "momentum": block[1],
    }
    for what, values in kept.items():
        if values is not None:
            yield MemoryBlock(f"loops.{name}.{what}", tuple(values.shape), (0,), values)


def restore(found: Source, held: Iterable[MemoryBlock]) -> None:
    """Fill shards from a checkpoint. Raises RunFailed where it lacks a part of them."""
    for block in held:
        found.fill(block)


def begin_with(found: Source, held: Iterable[MemoryBlock]) -> None:
    """Fill what fits of another run's tables and dense net: what has its name and shape."""
    dense = found.dense()
    for block in held:
        whole = found.manifest.tensors.get(block.name)
        if block.name.startswith("tables.") and whole is not None and whole.shape == block.shape:
            found.fill(block)
        elif block.name.endswith(".dense") and dense.shape == block.shape:
            (begin,) = block.offsets
            block.tensor.copy_(dense[begin : begin + block.tensor.numel()])


def restore_replica(found: Source, trainer: int, replica: Replica, trainers: int) -> None:
    """Fill a trainer's replica. Raises RunFailed."""
    for block in of_replica(trainer, replica):
        _, _, what = block.name.split(".", 2)
        if found.manifest.trainers == trainers and found.has(block):
            found.fill(block)
        elif what != "pending":  # of groups that are no more
            each = range(found.manifest.trainers)
            found.fill_mean(block, [f"trainers.{other}.{what}" for other in each])


def restore_loops(found: Source, loops: Sequence[tuple[str, Worker]], everyone: set[str]) -> None:
    """Fill what loops keep. ``loops``: of this trainer, by name; ``everyone``: the names of all
    loops of the run."""
    before = {name.split(".", 1)[1].rpartition(".")[0] for name in found.names("loops.")}
    alike = before <= everyone
    first = min(everyone, default="")
    for name, worker in loops:
        like = worker.replica.parameters

        def kept(what: str, *, summed: bool, own: str = name) -> Tensor | None:
            if alike and (summed or own in before):
                return found.whole(f"loops.{own}.{what}")
            values = [found.whole(f"loops.{other}.{what}") for other in sorted(before)]
            there = [value for value in values if value is not None]
            if not there or (summed and own != first):
                return None
            return torch.stack(there).sum(0) if summed else there[0]

        worker.accumulated = kept("accumulated", summed=True)
        if (error := kept("residual", summed=True)) is not None:
            worker.residual.left(like).copy_(error)
        if (taus := kept("thresholds", summed=False)) is not None:
            worker.residual.taus = taus.tolist()
        model, momentum = kept("block", summed=False), kept("momentum", summed=False)
        if model is not None and momentum is not None:
            worker.block = model, momentum


def of_shards(
    plan: Plan, servers: Iterable[EmbeddingServer | DenseServer]
) -> Iterator[MemoryBlock]:
    """All that a process's shards hold."""
    for server in servers:
        if isinstance(server, EmbeddingServer):
            yield from of_tables(plan, server.state)
        else:
            yield from of_central(plan, server, server.rules.shard)


class RoleState:
    """Of one process: its shards, and of a trainer its replica, its loops and its cache.

    ``contexts``: of its loops, once there are any.
    """

    def __init__(
        self,
        plan: Plan,
        instance: Instance,
        servers: Collection[EmbeddingServer | DenseServer],
        cache: MixCache | None,
        contexts: Sequence[LoopContext],
    ) -> None:
        self.plan, self.instance = plan, instance
        self.servers, self.cache, self.contexts = servers, cache, contexts
        self.replica: Replica | None = None
        """None: it has none, or not yet."""
        self.evaluated: Tensor | None = None
        """The dense parameters that were, at trainer 0."""

    def settle(self) -> None:
        """Loops stand still: what servers have to know before anything is copied."""
        if self.cache is not None:
            stub = next(c.embedding for c in self.contexts if c.embedding is not None)
            stub.store(held_rows(self.cache), -1)()

    def held(self) -> Iterator[MemoryBlock]:
        """All of it, while loops stand still."""
        yield from of_shards(self.plan, self.servers)
        if self.replica is not None:
            yield from of_replica(self.instance.index, self.replica)
        for context in self.contexts:
            yield from of_loop(context.name, context.worker)

    def at_the_end(self) -> Iterator[MemoryBlock]:
        """All of it when training is over, and the model that was evaluated."""
        yield from self.held()
        if (model := self.evaluated) is not None:
            yield MemoryBlock(MODEL, tuple(model.shape), (0,), model.clone())

    def restore_shards(self, keeping: Keeping) -> None:
        """Fill shards from the checkpoint that the run goes on from, or begins with.

        Raises RunFailed where it lacks a part of them.
        """
        _go_on(keeping.begin, lambda source: restore(source, self.held()))
        _go_on(keeping.init, lambda source: begin_with(source, self.held()))

    def restore_trainer(self, keeping: Keeping) -> None:
        """The same of a trainer's replica and loops."""

        def fill(source: Source) -> None:
            everyone = {loop.name for loop in self.plan.all_loops}
            trainers = self.plan.experiment.roles.trainers
            assert self.replica is not None
            restore_replica(source, self.instance.index, self.replica, trainers)
            loops = [(context.name, context.worker) for context in self.contexts]
            restore_loops(source, loops, everyone)

        def begin(source: Source) -> None:
            assert self.replica is not None
            own = of_replica(self.instance.index, self.replica)
            begin_with(source, own)

        _go_on(keeping.begin, fill)
        _go_on(keeping.init, begin)


def _go_on(path: Path | None, fill: Callable[[Source], None]) -> None:
    if path is not None:
        with Source(WholeCheckpoint(path, read_manifest(path))) as source:
            fill(source)
