"""What checkpoints take of a job's hosts, by the profile's prices and what each process holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from recsim_train.config.cluster import Cluster
from recsim_train.data.mixcache import cached_bytes
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.cluster.hosts import Site
from recsim_train.sim.host.memory import checkpoint_bytes


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """Seconds; none where the profile has no prices of checkpoints."""

    still: float = 0.0
    """For which all stand still: until caches are written back, and all have their copies."""
    writing: Mapping[Instance, float] = field(default_factory=dict)
    """Of one core, for a process's files."""
    disk: float = 0.0
    """Until a disk has all files of its host, from then on."""
    again: float = 0.0
    """From when all hosts work until all go on: start, verify and load."""
    taken: float = 0.0
    """Of training by one checkpoint: `still`, and what writing takes of cores that are all busy;
    where some are idle it is less."""


def checkpoint_times(
    plan: Plan, cluster: Cluster, sites: Mapping[Instance, Site]
) -> CheckpointTimes:
    """Of a plan's hosts, of each step that of the slowest one.

    What processes of one host copy, write and load shares its cores, each on at most one, as
    computations do. Before that trainers write all that their caches hold back to servers.
    """
    if (prices := cluster.checkpoints) is None:
        return CheckpointTimes()
    sizes, hosts = checkpoint_bytes(plan), []
    cached = {i: cached_bytes(plan, i.index) for i in plan.of_role("trainer")}
    held = () if plan.embedding is None else plan.embedding.shards
    shards = Counter(sites[shard.host].host for shard in held)
    for site in dict.fromkeys(sites.values()):
        cores = site.host.kind.cores * (cluster.contention if site.host.kind.cores > 1 else 1.0)
        own = [sizes[instance] for instance in site.host.instances]
        # the launcher of one machine looks at all of it, elsewhere each process
        whole = sum(sizes.values()) * (1.0 if cluster.colocate else max(1.0, len(own) / cores))
        timed = 1.0, max(*own, sum(own) / cores), sum(own) / cores, whole
        nic = inf if cluster.colocate else site.host.kind.nic * cluster.network.efficiency
        # of all that come back, its shards get their share
        sent = sum(cached[i] for i in site.host.instances if i in cached)
        back = max(sent, sum(cached.values()) * shards[site.host] / max(1, shards.total()))
        hosts.append((*(figure / site.speed for figure in timed), sum(own), back / nic))
    slowest, longest, shared, looked_at, most, back = map(max, zip(*hosts, strict=True))
    still = longest * prices.copied_byte.value + back
    return CheckpointTimes(
        still=still,
        writing={who: size * prices.written_byte.value for who, size in sizes.items()},
        disk=most * prices.disk_byte.value,
        again=slowest * prices.start.value
        + looked_at * prices.verified_byte.value
        + longest * prices.loaded_byte.value,
        taken=still + shared * prices.written_byte.value,
    )
