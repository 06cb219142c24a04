"""Shards in trainers, looked at as if servers on hosts like theirs had them.

Trainers that ask each other do not stand for each other (`recsim_train.sim.folding`), so that a
look at T of them follows T times T requests. In servers the shards would do the same work, and
there one trainer stands for all: each trainer's host is charged with both afterwards. Of T shards
one is in the trainer that asks, and as many as processes share a host are on its host: what these
take less is taken off of all, so that what is left is a bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsim_train.config.cluster import Cluster
from recsim_train.placement.build import with_servers
from recsim_train.placement.plan import SERVERS, Plan
from recsim_train.sim.folding import foldable
from recsim_train.sim.why.usage import tightest_first

_WORTH_IT = 32
"""Up to so many trainers are looked at as they are: of few it matters more what each has itself."""
_HIDDEN = 0.05
"""Share of a loop's own time that is left out to be sure of a bound: beside its own shard's part it
was 0 to 0.046 less in looks at all trainers, of five strategies at two models. Why is not known."""


def with_shards_apart(plan: Plan, cluster: Cluster) -> tuple[Plan, Cluster] | None:
    """The plan and its cluster with as many servers as trainers for what all trainers ask each
    other for; None: they do not, or through caches, are few, or their hosts differ."""
    trainers, together = plan.experiment.roles.trainers, cluster.together("trainer")
    asked = not foldable(plan) and plan.topology.cache is None
    alike = not (cluster.colocate or cluster.mixed or cluster.topology or trainers % together)
    if not asked or not alike or trainers <= _WORTH_IT:
        return None
    apart, hosts, per_host = plan, dict(cluster.hosts), dict(cluster.per_host or {})
    for role, service in zip(SERVERS, (plan.embedding, plan.dense), strict=True):
        if service is not None and not plan.of_role(role):
            apart = with_servers(apart, role, trainers)
            hosts[role], per_host[role] = cluster.host("trainer"), together
    if apart.followed != plan.followed or apart.topology != plan.topology:
        return None
    return apart, cluster.model_copy(update={"hosts": hosts, "per_host": per_host})


def together_again(
    bounds: Mapping[str, float], plan: Plan, cluster: Cluster, *, moved: Plan
) -> dict[str, float]:
    """Bounds by class of resources of a ``plan`` from those of it with shards ``moved`` apart."""
    trainers, together = plan.experiment.roles.trainers, cluster.together("trainer")
    servers = [role for role in SERVERS if moved.of_role(role) and not plan.of_role(role)]
    names = {role.replace("_", " ") for role in servers}
    demand: dict[str, float] = {}
    for name, bound in bounds.items():
        owner, _, part = name.partition(": ")
        mine = f"trainer: {part}" if owner in names else name
        less = (together if "NIC" in part else 1) / trainers
        if owner == "loops":
            less += _HIDDEN
        remote = 1.0 - less if owner in {*names, "trainer", "loops"} else 1.0
        demand[mine] = demand.get(mine, 0.0) + remote / bound
    return tightest_first({name: 1.0 / each for name, each in demand.items() if each > 0.0})
