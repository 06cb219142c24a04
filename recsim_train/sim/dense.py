"""The shards of the central dense parameters: Pull, Push and Exchange."""

from __future__ import annotations

from dataclasses import replace

from recsim_train.placement.plan import DensePlan, DenseShard
from recsim_train.sim.engine import Steps
from recsim_train.sim.ghosts import GhostDense, GhostSparse
from recsim_train.sim.loop import LoopState
from recsim_train.sim.services import Service
from recsim_train.sim.serving import Request
from recsim_train.sim.world import World
from recsim_train.workload import shape


class DenseRuntime(Service[DenseShard]):
    """The shards of the central dense parameters."""

    def __init__(self, world: World, plan: DensePlan) -> None:
        super().__init__(world, plan.service.name, plan.shards)
        self.elements = sum(shard.elements for shard in plan.shards)
        self._bytes = shape.value_bytes(world.model)

    def pull(self, loop: LoopState) -> Steps:
        """Returns (dense, payload bytes)."""
        sent = yield from self._talk(loop, "pull", "dense_read", sends=False, answers=True)
        return GhostDense(self.elements, self.elements * self._bytes), sent

    def push(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        if isinstance(gradient, GhostSparse):
            return None, (yield from self._talk(loop, "push", "sparse_apply", share=gradient.share))
        if not isinstance(gradient, GhostDense):
            raise TypeError(f"Push needs dense values, not {type(gradient).__name__}")
        if gradient.elements != self.elements:
            raise TypeError(f"Push needs {self.elements} values, not {gradient.elements}")
        return None, (yield from self._talk(loop, "push", "dense_apply"))

    def exchange(self, loop: LoopState, parameters: object, central: str = "old") -> Steps:
        """Returns (dense difference, payload bytes)."""
        if not isinstance(parameters, GhostDense):
            raise TypeError(f"Exchange needs dense values, not {type(parameters).__name__}")
        part = (parameters.start, parameters.start + parameters.elements)
        operation = "dense_elastic" if central == "old" else "dense_elastic_new"
        sent = yield from self._talk(loop, "exchange", operation, answers=True, part=part)
        return GhostDense(parameters.elements, parameters.size, parameters.start), sent

    def cut(self, start: int, stop: int) -> list[DenseShard]:
        cut = [replace(s, start=max(s.start, start), stop=min(s.stop, stop)) for s in self.shards]
        return [s for s in cut if s.elements > 0]

    def _talk(
        self,
        loop: LoopState,
        effect: str,
        operation: str,
        *,
        sends: bool = True,
        answers: bool = False,
        share: float | None = None,
        part: tuple[int, int] | None = None,
    ) -> Steps:
        """Returns payload bytes. ``share``: of the entries, what travels; ``part``: of the copy."""
        world = self.world

        def request(shard: DenseShard) -> Request:
            size, kept = self._bytes * shard.elements, 0
            payload = size
            if share is not None:
                payload = world.sparse_bytes(share, shard.start, shard.stop)
                kept = sum(world.layout.within(share, shard.start, shard.stop))
            work = world.pricing.operation(operation, elements=shard.elements, kept=kept)
            return Request(payload if sends else 0, work, size if answers else 0)

        sent, answered = yield from self.ask(loop, effect, self.split(loop, part), request)
        if answered:
            yield world.work(loop, world.pricing.answers(answered), f"{effect}.answer")
        return sent
