"""Predictions of plans that a test has made, whatever settings they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.evaluate import elasticity, prediction, simulations
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.simulations import representatives, simulation
from recsim_train.placement.plan import Plan
from recsim_train.sim.folding import Folding
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import ProcessTimes
from recsim_train.workload.scope import Scope


def simulate(plan: Plan, cluster: Cluster, **how: Any) -> Outcome:
    """See `recsim_train.evaluate.prediction.predict`."""
    return prediction.predict(Case.of(plan, cluster), **how)


def operations_of(plan: Plan, cluster: Cluster) -> list[tuple[str, Scope]]:
    """See `recsim_train.evaluate.simulations.operations_of`."""
    return simulations.operations_of(Case.of(plan, cluster))


def times_of(plan: Plan, cluster: Cluster) -> dict[str, ProcessTimes]:
    """See `recsim_train.evaluate.simulations.times_of`."""
    return simulations.times_of(Case.of(plan, cluster))


def elasticities(
    plan: Plan, cluster: Cluster, counts: IdCounts, steps: int
) -> elasticity.Elasticities:
    """See `recsim_train.evaluate.elasticity.elasticities`, of a prediction that nobody made."""
    case = Case.of(plan, cluster)
    return elasticity.elasticities(case, simulation(case, counts=counts), steps)


def scaled(cluster: Cluster, factors: Mapping[str, float]) -> Cluster:
    """See `recsim_train.evaluate.elasticity.scaling`."""
    changes = elasticity.scaling(cluster, factors)
    return cluster.with_({key.removeprefix("cluster."): value for key, value in changes.items()})


def folding_of(plan: Plan, cluster: Cluster, most: int | None = None) -> Folding:
    """See `recsim_train.evaluate.simulations.representatives`; ``most``: fold_above."""
    case = Case.of(plan, cluster)
    return representatives(case if most is None else case.with_({"simulation.fold_above": most}))
