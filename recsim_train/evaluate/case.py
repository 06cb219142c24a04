"""A case: a job on a cluster, which is what a prediction is of, changed by overrides only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.results.rundir import identity

_UNPLANNED = (
    "simulation.", "execution.max_spans", "data.queue_batches", "training.steps",
    "training.warmup_steps",
)  # fmt: skip
"""Keys of which no plan depends on what they say."""


@dataclass(frozen=True)
class Case:
    """An experiment, one of its strategies, and a cluster."""

    experiment: Experiment
    choice: StrategyChoice
    cluster: Cluster

    @classmethod
    def of(cls, plan: Plan, cluster: Cluster, identity: str | None = None) -> Case:
        """Of a plan that is there, and its identity, where that is known."""
        case = cls(plan.experiment, plan.strategy, cluster)
        case.__dict__["plan"] = plan
        if identity is not None:
            case.__dict__["identity"] = identity
        return case

    @cached_property
    def plan(self) -> Plan:
        """Every process, shard, loop and group. Raises UserError where there can be none."""
        return build_plan(self.experiment, self.choice)

    @cached_property
    def identity(self) -> str:
        """Of everything that decides its prediction: equal ones are one."""
        return identity(self.plan, "simulated", self.cluster)

    def with_(self, changes: Mapping[str, Any]) -> Case:
        """The same with other values by dotted keys, as ``--set`` takes them: ``cluster.`` those of
        the profile, ``strategy.`` its kind and options (`recsim_train.config.units`). Nothing
        is checked but the plan, once it is asked for."""
        own: dict[str, Any] = {}
        chosen: dict[str, Any] = {}
        profile: dict[str, Any] = {}
        for key, value in changes.items():
            section, _, rest = key.partition(".")
            if section == "cluster":
                profile[rest] = value
            elif section == "strategy":
                chosen[rest if rest == "kind" else f"options.{rest}"] = value
            else:
                own[key] = value
        choice = self.choice.with_(chosen)
        if chosen:
            own["strategies"] = (choice,)
        experiment, cluster = self.experiment.with_(own), self.cluster.with_(profile)
        made = replace(self, experiment=experiment, choice=choice, cluster=cluster)
        if "plan" in self.__dict__ and all(key.startswith(_UNPLANNED) for key in own):
            made.__dict__["plan"] = replace(self.plan, experiment=made.experiment)
        return made
