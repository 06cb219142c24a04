"""Sizing: how many servers it takes until everything fits, and what else helps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import NoHostError, UserError
from recsim_train.placement.build import with_servers
from recsim_train.placement.hosts import hosts_of
from recsim_train.placement.plan import SERVERS, Plan, ServerRole
from recsim_train.sim.host.memory import PART_NAMES, HostMemory, MemoryUse, by_host, memory_uses

MOST_SERVERS = 1024
"""More are not suggested."""

Enough = Callable[[list[HostMemory]], bool]

_SMALLER = "use a larger host, fewer threads or a smaller batch"
OTHER_WAYS = dict.fromkeys(PART_NAMES, _SMALLER) | {
    "tables": "cap the tables' rows or use a larger host",
    "dense": "use a smaller net or a larger host",
    "cache": "use a smaller cache or a larger host",
    "snapshot": "use a larger host, or keep no checkpoints (checkpoint.every)",
    "process": "use a larger host or fewer processes on it",
}
"""What helps, by the part that most of the memory is for."""


def smallest(plan: Plan, cluster: Cluster, role: ServerRole) -> int | None:
    """The smallest number of servers of a role of which each fits into its host."""

    def enough(hosts: list[HostMemory]) -> bool:
        return all(h.filled <= 1.0 for h in hosts if h.uses[0].instance.role == role)

    return _search(plan, cluster, role, 1, enough)


def advice(plan: Plan, cluster: Cluster, host: HostMemory) -> str:
    """What makes the whole plan fit, of which the processes of ``host`` do not."""

    def enough(hosts: list[HostMemory]) -> bool:
        return all(h.filled <= 1.0 for h in hosts)

    full = host.uses[0].instance.role

    # tables and dense shards sit in the trainers where there are no servers for them
    for role in SERVERS:
        if full not in (role, "trainer"):
            continue
        present = len(plan.of_role(role))
        servers = _search(plan, cluster, role, present + 1, enough)
        if servers is not None:
            return f"{servers} {plural(role, servers)} would be enough" + _room(
                with_servers(plan, {role: servers}), cluster
            )
        servers = smallest(plan, cluster, role)
        if full == role and servers is not None and servers > present:
            return f"it takes {servers} {plural(role, servers)}, but others do not fit either"
    return OTHER_WAYS[largest_part(host.uses)]


def _room(plan: Plan, cluster: Cluster) -> str:
    """What to add where a larger plan needs more hosts than the racks hold."""
    try:
        hosts_of(plan.instances, cluster)
    except NoHostError:
        return ", but the profile's racks have no room for so many"
    return ""


def largest_part(uses: Sequence[MemoryUse]) -> str:
    """What most of the memory is for."""
    total: dict[str, float] = {}
    for use in uses:
        for part, size in use.parts.items():
            total[part] = total.get(part, 0.0) + size
    return max(total, key=total.__getitem__)


def plural(role: str, count: int) -> str:
    """A role's name for so many of it."""
    name = role.replace("_", " ")
    return name if count == 1 else f"{name}s"


def _search(
    plan: Plan, cluster: Cluster, role: ServerRole, first: int, enough: Enough
) -> int | None:
    """The smallest number from ``first`` on that is enough: doubling, then halving."""

    def fits(servers: int) -> bool:
        try:
            other = with_servers(plan, {role: servers})
            hosts = by_host(memory_uses(other, cluster), cluster)
            return bool(other.of_role(role)) and enough(hosts)
        except UserError:
            return False  # no table is left to hold, or no host

    if fits(first):
        return first
    low, high = first, first * 2
    while not fits(high):
        if high >= MOST_SERVERS:
            return None
        low, high = high, min(MOST_SERVERS, high * 2)
    return low + 1 + bisect_left(range(low + 1, high), True, key=fits)
