"""The shards of the central dense parameters: Pull, Push and Exchange."""

from __future__ import annotations

from dataclasses import replace

from recsim_train.placement.plan import DensePlan, DenseShard
from recsim_train.sim.engine import Steps
from recsim_train.sim.ghosts import GhostDense, GhostSparse
from recsim_train.sim.messages.services import Service
from recsim_train.sim.messages.serving import Request
from recsim_train.sim.pricing import NOTHING
from recsim_train.sim.world import LoopState, World


class DenseRuntime(Service[DenseShard]):
    """The shards of the central dense parameters."""

    def __init__(self, world: World, plan: DensePlan) -> None:
        super().__init__(world, plan.service.name, plan.shards)
        self.elements = sum(shard.elements for shard in plan.shards)

    def pull(self, loop: LoopState) -> Steps:
        """Returns (dense, payload bytes)."""
        sent = yield from self._talk(
            loop, "pull", "dense_read", down=self.world.number_bytes(loop), here=True
        )
        return GhostDense(self.elements, self.elements * self.world.value_bytes), sent

    def push(self, loop: LoopState, gradient: object, *, add: bool = False) -> Steps:
        """Returns (None, payload bytes). ``add``: it is a difference, which travels in full."""
        if isinstance(gradient, GhostSparse):
            return None, (yield from self._talk(loop, "push", "sparse_apply", share=gradient.share))
        if not isinstance(gradient, GhostDense):
            raise TypeError(f"Push needs dense values, not {type(gradient).__name__}")
        if gradient.elements != self.elements:
            raise TypeError(f"Push needs {self.elements} values, not {gradient.elements}")
        size = self.world.value_bytes if add else self.world.number_bytes(loop)
        whole = self.world.number_bytes(loop) == self.world.value_bytes
        made = gradient.maker == loop.name and whole
        return None, (yield from self._talk(loop, "push", "dense_apply", up=size, made=made))

    def exchange(self, loop: LoopState, parameters: object, central: str = "old") -> Steps:
        """Returns (dense difference, payload bytes)."""
        if not isinstance(parameters, GhostDense):
            raise TypeError(f"Exchange needs dense values, not {type(parameters).__name__}")
        part = (parameters.start, parameters.start + parameters.elements)
        operation = "dense_elastic" if central == "old" else "dense_elastic_new"
        size = self.world.value_bytes
        sent = yield from self._talk(loop, "exchange", operation, up=size, down=size, part=part)
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
        up: int = 0,
        down: int = 0,
        share: float | None = None,
        made: bool = False,
        part: tuple[int, int] | None = None,
        here: bool = False,
    ) -> Steps:
        """Returns payload bytes. ``up``, ``down``: bytes of each element that is sent and of each
        that is answered; ``share``: of the entries, what is sent; ``made``: in memory from
        which it can be sent to one shard; ``part``: of the copy; ``here``: only shards in the
        loop's own process do the operation."""
        world = self.world
        shards = self.split(loop, part)
        several = len(shards.remote) + len(shards.local) > 1

        def request(shard: DenseShard) -> Request:
            elements, kept = shard.elements, 0
            payload = up * elements
            if share is not None:
                payload = world.sparse_bytes(share, shard.start, shard.stop)
                kept = sum(world.layout.within(share, shard.start, shard.stop))
            work = NOTHING
            if not here or shard.host.name == loop.process.name:
                work = world.pricing.operation(operation, elements=elements, kept=kept)
            rounded = [elements * (0 < size < world.value_bytes) for size in (up, down)]
            gathered = several and not rounded[1]  # what is widened then is used where it lies
            lies, answer = made and not several, down * elements
            narrow = rounded[0], rounded[1]
            return Request(payload, work, answer, uncopied=lies, gathered=gathered, rounded=narrow)

        sent, answers = yield from self.ask(loop, effect, shards, request)
        if answers != NOTHING:
            yield world.work(loop, answers, f"{effect}.answer")
        return sent
