"""Machines alone, without loops or strategies, and how long what happens on them takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.placement.plan import Plan
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.folding import Folding
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Process
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.messages.gloo_group import GlooGroup
from recsim_train.sim.pricing import NOTHING


class World:
    """Machines, and how long things take on them."""

    def __init__(self, plan: Plan, cluster: Cluster, folding: Folding | None = None) -> None:
        self.engine = Engine()
        self.machines = Machines(plan, cluster, self.engine, Jitter(1), folding)
        self.size = plan.experiment.roles.trainers
        self.of = {i.name: p for i, p in self.machines.processes.items()}
        self.prices = {n: getattr(cluster.costs, n).value for n in Costs.model_fields}
        self.trainers = [p for i, p in self.machines.processes.items() if i.role == "trainer"]

    def meetings(self, *, beside: bool = False) -> GlooGroup:
        """Of all trainers, whose messages cost nothing. ``beside``: as if others might use their
        links meanwhile."""
        pricing = SimpleNamespace(meeting=lambda steps: NOTHING, prices=self.prices)
        world: Any = SimpleNamespace(machines=self.machines, engine=self.engine, pricing=pricing)
        return GlooGroup(world, "all", self.trainers, self.size, beside=beside)

    def seconds(self, *events: Event) -> list[float]:
        """When each event happens."""
        ends = [0.0] * len(events)

        def note(n: int) -> Callable[[object], None]:
            def happened(_: object) -> None:
                ends[n] = self.engine.now

            return happened

        for n, event in enumerate(events):
            event.callbacks.append(note(n))
        self.engine.run()
        return ends

    def used(self) -> dict[str, float]:
        names = [r.name for r in self.engine.fluid.resources]
        return dict(zip(names, self.engine.fluid.used(), strict=True))


def move(world: World, source: Process, target: Process, size: float) -> Event:
    return world.machines.transfer(source, target, size).done
