"""Sites: the host of each instance, and whether it is a slow one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.topology import host_of_name
from recsim_train.placement.hosts import JobHost, hosts_of, kinds_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.jitter import stream
from recsim_train.trace.facts import Rented


@dataclass(frozen=True, slots=True)
class Site:
    """The host of one instance."""

    host: JobHost
    slow: float
    """All its computations take this many times as long; 1: it is no slow one."""

    @property
    def speed(self) -> float:
        """Of one core, relative to one that has the profile's prices."""
        return self.host.kind.speed / self.slow


def sites_of(plan: Plan, cluster: Cluster) -> dict[Instance, Site]:
    """The host of every instance; the same racks and slow hosts for every strategy that has them.

    Raises UserError where the profile describes too few hosts, or names one that does not exist.
    """
    for key, name in _named(cluster):
        role, index = host_of_name(name)
        count: int = getattr(plan.experiment.roles, f"{role}s")
        if index >= count:
            raise UserError(
                f"cluster profile {cluster.name}: {key}: there is no {name}: roles.{role}s is "
                f"{count}"
            )
    hosts = hosts_of(plan.instances, cluster)
    slow = slow_hosts(plan, cluster, hosts)
    sites = [Site(host, slow.get(host, 1.0)) for host in hosts]
    return {instance: site for site in sites for instance in site.host.instances}


def _named(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """(key, host name) of every host that the profile names."""
    if cluster.stragglers is not None:
        for n, slow in enumerate(cluster.stragglers.slow):
            for m, name in enumerate(slow.hosts):
                yield f"stragglers.slow[{n}].hosts[{m}]", name
    if cluster.failures is not None:
        for n, failure in enumerate(cluster.failures.schedule):
            yield f"failures.schedule[{n}].host", failure.host


def slow_hosts(plan: Plan, cluster: Cluster, hosts: Sequence[JobHost]) -> dict[JobHost, float]:
    """Factors of the hosts that are slow all the time.

    A share of a role are those with the smallest numbers drawn from streams of their own, so a
    host stays slow when others are added.
    """
    if cluster.stragglers is None or not plan.experiment.simulation.stragglers:
        return {}
    found: dict[JobHost, float] = {}
    for n, slow in enumerate(cluster.stragglers.slow):
        chosen = [h for h in hosts if any(i.name in slow.hosts for i in h.instances)]
        if slow.share is not None:
            role = [host for host in hosts if host.instances[0].role == slow.role]
            seed = plan.experiment.seed
            drawn = {h: stream(seed, h.instances[0].name, f"slow/{n}").random() for h in role}
            count = max(1, int(slow.share * len(role) + 0.5))
            chosen = sorted(role, key=drawn.__getitem__)[:count]
        for host in chosen:
            found[host] = found.get(host, 1.0) * slow.factor
    return found


def busy_cores(plan: Plan, cluster: Cluster) -> int:
    """Most cores of one host that loops' threads can keep busy side by side. At a server each loop
    has a thread."""
    every = [plan.threads_of(plan.loop(loop.loop)) for loop in plan.all_loops]
    if cluster.colocate:
        return min(cluster.host("trainer").cores, sum(every))
    own = sum(plan.threads_of(plan.loop(loop.loop)) for loop in plan.loops(0))
    return max(
        min(
            kind.cores,
            cluster.together(i.role) * (own if i.role == "trainer" else len(every)),
        )
        for i, kind in kinds_of(plan.instances, cluster).items()
        if i.role != "reader"
    )


def rented(plan: Plan, cluster: Cluster) -> Rented | None:
    """What all hosts cost; None where one of them has no price, or has it in another currency."""
    hosts = hosts_of(plan.instances, cluster)
    rents = [host.kind.rent for host in hosts if host.kind.rent is not None]
    if len(rents) < len(hosts) or len({rent.currency for rent in rents}) > 1:
        return None
    sources = dict.fromkeys(f"{rent.source}, {rent.date}" for rent in rents)
    whole = fsum(rent.per_hour for rent in rents)
    return Rented(len(hosts), whole, rents[0].currency, tuple(sources))


def cores_beyond(plan: Plan, cluster: Cluster) -> int | None:
    """How many cores of a host are busy side by side, where that is more than when the prices were
    measured; None where it is not, or where the profile does not say how many that were."""
    measured, busy = cluster.measured_cores, busy_cores(plan, cluster)
    return busy if measured is not None and busy > measured else None
