"""AllReduce: all members arrive, then one ring moves everybody's bytes at one rate."""

from __future__ import annotations

from recsim_train.placement.plan import GroupPlan
from recsim_train.sim.blame import StrategyError
from recsim_train.sim.ghosts import GhostDense
from recsim_train.sim.kernel import Barrier, Steps
from recsim_train.sim.loop import LoopState
from recsim_train.sim.pricing import plus
from recsim_train.sim.services import World
from recsim_train.workload import shape


class GroupRuntime:
    """A ring over the processes of a group's members.

    2(n-1) steps, each with the network's latency and the profile's ``collective_step``; every
    member sends and receives 2(n-1)/n of the vector. A group of one does nothing.
    """

    def __init__(self, world: World, plan: GroupPlan) -> None:
        self.world = world
        self.plan = plan
        self.name = plan.name
        self._members = {member.name for member in plan.members}
        instances = {member.trainer for member in plan.members}
        self._processes = [
            process
            for instance, process in world.machines.processes.items()
            if instance.role == "trainer" and instance.index in instances
        ]
        self.size = len(plan.members)
        self._steps = 2 * (self.size - 1)
        self._barrier = Barrier(world.kernel, self.size, self._ring)

    def all_reduce(self, loop: LoopState, value: object) -> Steps:
        """Returns (dense mean, payload bytes)."""
        if not isinstance(value, GhostDense):
            raise TypeError(f"AllReduce needs dense values, not {type(value).__name__}")
        if loop.name not in self._members:
            raise ValueError(f"{loop.name} is not a member of group {self.name!r}")
        world = self.world
        out = plus(world.overhead(), world.messages(self._steps))
        loop.waiting = "a core"
        yield world.compute(loop.process, out, f"{loop.label}.all_reduce")
        if self.size == 1:
            return GhostDense(value.elements), 0
        loop.waiting = f"AllReduce of group {self.name!r}"
        yield self._barrier.arrive(value.elements)
        return GhostDense(value.elements), value.elements * shape.value_bytes(world.model)

    @property
    def arrived(self) -> str:
        """How many members wait now."""
        return f"{self._barrier.arrived} of {self.size} members arrived"

    def _ring(self, sizes: list[int]) -> Steps:
        if len(set(sizes)) > 1:
            raise StrategyError(
                f"group {self.name!r}: members reduce vectors of different sizes {sizes}"
            )
        machines = self.world.machines
        step = machines.latency + self.world.pricing.prices["collective_step"]
        yield self.world.kernel.timeout(self._steps * step)
        vector = sizes[0] * shape.value_bytes(self.world.model)
        yield machines.ring(self._processes, self._steps / self.size * vector)
