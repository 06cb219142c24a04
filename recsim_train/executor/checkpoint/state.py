"""What one process of a run holds, as its checkpoints have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from recsim_train.checkpoints.going_on import Keeping
from recsim_train.checkpoints.manifest import WholeCheckpoint, read_manifest
from recsim_train.executor.checkpoint import blocks
from recsim_train.executor.checkpoint.memory import MODEL, MemoryBlock
from recsim_train.executor.checkpoint.source import Source
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.shards.cache import held_rows
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer
from recsim_train.executor.worker import MixCache, Replica
from recsim_train.placement.plan import Instance, Plan


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
        yield from blocks.of_shards(self.plan, self.servers)
        if self.replica is not None:
            yield from blocks.of_replica(self.instance.index, self.replica)
        for context in self.contexts:
            yield from blocks.of_loop(context.name, context.worker)

    def at_the_end(self) -> Iterator[MemoryBlock]:
        """All of it when training is over, and the model that was evaluated."""
        yield from self.held()
        if (model := self.evaluated) is not None:
            yield MemoryBlock(MODEL, tuple(model.shape), (0,), model.clone())

    def restore_shards(self, keeping: Keeping) -> None:
        """Fill shards from the checkpoint that the run goes on from, or begins with.

        Raises RunFailed where it lacks a part of them.
        """
        _go_on(keeping.begin, lambda source: blocks.restore(source, self.held()))
        _go_on(keeping.init, lambda source: blocks.begin_with(source, self.held()))

    def restore_trainer(self, keeping: Keeping) -> None:
        """The same of a trainer's replica and loops."""

        def fill(source: Source) -> None:
            everyone = {loop.name for loop in self.plan.all_loops}
            trainers = self.plan.experiment.roles.trainers
            assert self.replica is not None
            blocks.restore_replica(source, self.instance.index, self.replica, trainers)
            loops = [(context.name, context.worker) for context in self.contexts]
            blocks.restore_loops(source, loops, everyone)

        def begin(source: Source) -> None:
            assert self.replica is not None
            own = blocks.of_replica(self.instance.index, self.replica)
            blocks.begin_with(source, own)

        _go_on(keeping.begin, fill)
        _go_on(keeping.init, begin)


def _go_on(path: Path | None, fill: Callable[[Source], None]) -> None:
    if path is not None:
        with Source(WholeCheckpoint(path, read_manifest(path))) as source:
            fill(source)
