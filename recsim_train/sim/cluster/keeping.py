"""What checkpoints take of a job's hosts, by the profile's prices and what each process holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.cluster.hosts import Site
from recsim_train.sim.host.memory import checkpoint_bytes


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """Seconds; 0 where the profile has no prices of checkpoints."""

    still: float
    """For which all stand still: until the last process has its copy."""
    writing: Mapping[Instance, tuple[float, float]]
    """By process: of one core for its files, and then until its host's disk has them."""
    again: float
    """From when all hosts work until all go on: start, verify and load."""
    taken: float
    """Of training by one checkpoint: `still`, and what writing takes of cores that are all busy.
    Where some are idle it is less."""


def checkpoint_times(
    plan: Plan, cluster: Cluster, sites: Mapping[Instance, Site]
) -> CheckpointTimes:
    """Copies and files of one host share its cores, each on at most one, as computations do."""
    prices = cluster.checkpoints
    if prices is None:
        return CheckpointTimes(0.0, {}, 0.0, 0.0)
    still = again = busy = 0.0
    writing: dict[Instance, tuple[float, float]] = {}
    sizes = checkpoint_bytes(plan)
    for site in dict.fromkeys(sites.values()):
        own = [sizes[instance] for instance in site.host.instances]
        cores: float = site.host.kind.cores
        cores *= cluster.contention if cores > 1 else 1.0
        longest, looking = max(*own, sum(own) / cores), 1.0
        if not cluster.colocate:  # each rank looks at all of it
            looking = max(1.0, len(own) / cores)
        still = max(still, longest * prices.copied_byte.value / site.speed)
        loading = prices.start.value + longest * prices.loaded_byte.value
        loading += looking * sum(sizes.values()) * prices.verified_byte.value
        again = max(again, loading / site.speed)
        busy = max(busy, sum(own) * prices.written_byte.value / cores / site.speed)
        disk = sum(own) * prices.disk_byte.value
        for instance, size in zip(site.host.instances, own, strict=True):
            writing[instance] = size * prices.written_byte.value, disk
    return CheckpointTimes(still, writing, again, still + busy)


def best_interval(taken: float, between_failures: float) -> float:
    """Seconds of training between two checkpoints that cost ``taken`` each, with which these and
    lost work take the least: to first order, where that is far less than ``between_failures``
    (Young, Communications of the ACM 17 (1974) 530; Daly, Future Generation Computer Systems 22
    (2006) 303)."""
    return sqrt(2.0 * taken * between_failures)
