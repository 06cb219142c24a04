"""One trainer, as its loops reach it: services, groups, queues, and its part of a cut net, whose
passes are sizes and counts of work."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from recsim_train.placement.plan import Plan
from recsim_train.placement.program import Segment, TaggedNet, segment_of
from recsim_train.sim.ghosts import Ghost, GhostBlock, GhostDense, GhostParts, GhostPass, GhostRows
from recsim_train.sim.messages.cache import CacheRuntime
from recsim_train.sim.messages.collectives import GroupRuntime
from recsim_train.sim.messages.shards import DenseRuntime, EmbeddingRuntime
from recsim_train.sim.queues import LoopBarrier, LoopProgress, LoopQueue
from recsim_train.sim.world import World
from recsim_train.strategy.values import Batch, NetGradients
from recsim_train.workload import shape


class NetRuntime:
    """What the operations on a cut net do at one host."""

    def __init__(self, plan: Plan, trainer: int) -> None:
        assert plan.net is not None
        self.program = program = plan.net
        self.host = host = plan.host(trainer)
        self._bytes = shape.value_bytes(plan.experiment.model)
        self._whole = program.graph.elements
        self._elements = program.elements(host) if isinstance(program, TaggedNet) else self._whole
        """Parameters that this host holds."""

        @cache
        def segment(name: str, cut: int = 0) -> Segment:
            batch = plan.experiment.training.batch_size
            return segment_of(program, host, name, cut, batch, self._bytes)

        self._segment = segment

    def open(self, _: Batch, rows: GhostRows) -> Ghost:
        return GhostPass(rows.ids), self._work("net_open")

    def send(self, name: str, cut: int) -> Ghost:
        """A pass up to a cut, and what crosses it."""
        out = self._segment(name, cut).out
        crossing = GhostBlock(out) if isinstance(out, int) else GhostParts(out)
        return crossing, self._work(name, cut)

    def receive(self, name: str, cut: int) -> Ghost:
        """What has crossed a cut is taken up."""
        return None, self._work(name, cut)

    def gradients(self, tape: GhostPass) -> Ghost:
        # with the moves that were kept back
        times = 2 if isinstance(self.program, TaggedNet) and self.program.outer else 1
        own, common = self._dense(self._elements), self._dense(times * self.program.shared_numbers)
        rows = GhostRows(tape.ids, gradient=True)
        return NetGradients(own, common, rows), self._work("net_gradients")

    def apply(self, _: NetGradients, __: GhostDense) -> Ghost:
        return None, {"elements": self._elements}

    def whole(self) -> Ghost:
        return self._dense(self._whole), {"elements": self._elements}

    def answered(self, *_: object) -> Ghost:
        """A vector over the parameters that this host answers for to other groups."""
        elements, start = self._answered
        return self._dense(elements, start), {"elements": elements}

    def move(self, _: GhostDense) -> Ghost:
        return None, {"elements": self._answered[0]}

    def _dense(self, elements: int, start: int = 0) -> GhostDense:
        return GhostDense(elements, elements * self._bytes, start)

    @cached_property
    def _answered(self) -> tuple[int, int]:
        """How many elements this host answers for, and where they start in a central copy."""
        assert isinstance(self.program, TaggedNet)
        return self.program.answered_elements(self.host), self.program.answered_start(self.host)

    def _work(self, name: str, cut: int = 0) -> dict[str, Any]:
        segment = self._segment(name, cut)
        return {"pieces": segment.pieces, "numbers": segment.numbers}


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
        return GhostDense(elements, elements * self.world.value_bytes)
