"""One trainer, as its loops reach it: services, groups, queues, its part of the net."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from recsim_train.placement.plan import Plan
from recsim_train.sim.ghosts import GhostDense
from recsim_train.sim.messages.cache import CacheRuntime
from recsim_train.sim.messages.collectives import GroupRuntime
from recsim_train.sim.messages.dense import DenseRuntime
from recsim_train.sim.messages.embedding import EmbeddingRuntime
from recsim_train.sim.net import NetRuntime
from recsim_train.sim.queues import LoopBarrier, LoopProgress, LoopQueue
from recsim_train.sim.world import World
from recsim_train.workload import shape


@dataclass(eq=False)
class Trainer:
    """One simulated trainer."""

    index: int
    world: World
    plan: Plan
    iterations: int
    """Of each of its loops that consumes batches."""
    embedding: dict[str, EmbeddingRuntime]
    dense: dict[str, DenseRuntime]
    """Services by name."""
    cache: CacheRuntime | None
    net: NetRuntime | None
    progress: LoopProgress
    groups: dict[str, GroupRuntime] = field(default_factory=dict)
    queues: dict[str, LoopQueue] = field(default_factory=dict)
    barriers: dict[str, LoopBarrier] = field(default_factory=dict)

    @cached_property
    def whole(self) -> GhostDense:
        """All dense parameters of its replica."""
        elements = shape.dense_parameters(self.world.model)
        return GhostDense(elements, elements * shape.value_bytes(self.world.model))
