"""The check of memory: what every process needs, against what its host has; how many servers it
takes until everything fits, and what else helps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import NoHostError, UserError
from recsim_train.placement.build import with_servers
from recsim_train.placement.hosts import MACHINE, hosts_of
from recsim_train.placement.plan import SERVERS, Instance, Plan, Role, ServerRole
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.host.memory import (
    PART_NAMES,
    HostMemory,
    MemoryUse,
    by_host,
    memory_of_all,
    memory_uses,
)

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


NEARLY = 0.9
"""Share of a host's memory above which an estimate of the large parts is no promise."""


class DoesNotFitError(UserError):
    """A process, or all of a machine, needs more memory than there is."""


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """Whether a plan fits into its hosts' memory."""

    fullest: HostMemory
    problem: str | None
    """What does not fit, in one sentence; None: all does."""
    warnings: tuple[str, ...]
    smallest: dict[str, int | None]
    """By role of servers in the plan: the smallest number of them of which each one fits; None:
    no number up to `MOST_SERVERS` does."""
    present: dict[str, int]
    """By the same roles: how many the plan has."""
    asked: Literal["memory", "hosts"] = "memory"
    """Of what the problem is: the hosts may be too few, or not those that the profile names."""

    @property
    def phrase(self) -> str:
        """The answer in half a line."""
        if self.problem is not None:
            return f"does not fit: {self.problem}"
        host = self.fullest
        machine = host.name == MACHINE
        found = f"fits: {f'{host.whose} need' if machine else f'{host.name} is the fullest,'} "
        found += f"{gib(host.needed)} of {gib(host.available)} GiB"
        found += f" ({host.filled:.0%})" if host.filled >= 0.01 else ""
        fewer = [
            f"{number} {plural(role, number)}"
            for role, number in self.smallest.items()
            if number is not None and number < self.present[role]
        ]
        return found + (f"; for memory alone {' and '.join(fewer)} would do" if fewer else "")

    def document(self) -> dict[str, object]:
        """As JSON."""
        parts: dict[str, float] = {}
        for use in self.fullest.uses:
            for part, size in use.parts.items():
                parts[part] = parts.get(part, 0.0) + size
        return {
            "fits": self.problem is None,
            "problem": self.problem,
            "warnings": list(self.warnings),
            "fullest": {
                "host": self.fullest.name,
                "bytes": self.fullest.needed,
                "available": self.fullest.available,
                **parts,
            },
            "smallest_servers": dict(self.smallest),
        }


def memory_check(plan: Plan, cluster: Cluster) -> MemoryCheck:
    """Whether and how a plan fits."""
    roles = () if cluster.colocate else [r for r in SERVERS if plan.of_role(r)]
    return _checked(
        by_host(memory_uses(plan, cluster), cluster),
        lambda: check_memory(plan, cluster),
        {role: smallest(plan, cluster, role) for role in roles},
        {role: len(plan.of_role(role)) for role in roles},
    )


def machine_check(plan: Plan, host: Host) -> MemoryCheck:
    """Whether and how a plan fits into one machine of type ``host``."""
    uses = tuple(memory_of_all(plan, [(i, host.memory) for i in plan.instances]))
    return _checked([HostMemory(MACHINE, uses)], lambda: check_machine(plan, host), {}, {})


def _checked(
    hosts: Sequence[HostMemory],
    check: Callable[[], object],
    smallest: dict[str, int | None],
    present: dict[str, int],
) -> MemoryCheck:
    """What ``check`` comes to, which raises UserError where something does not fit."""
    problem: UserError | None = None
    try:
        check()
    except UserError as error:
        problem = error
    return MemoryCheck(
        max(hosts, key=attrgetter("filled")),
        str(problem) if problem else None,
        () if problem else tuple(nearly_full(hosts)),
        smallest,
        present,
        "memory" if problem is None or isinstance(problem, DoesNotFitError) else "hosts",
    )


def check_memory(plan: Plan, cluster: Cluster) -> list[HostMemory]:
    """Memory of every host, in rank order.

    Raises DoesNotFitError, in one sentence with the role and the figures, where something does not
    fit, other UserErrors where the profile has not the hosts that the plan needs.
    """
    if cluster.colocate:
        return [check_machine(plan, cluster.hosts["default"])]
    sites_of(plan, cluster)
    hosts = by_host(memory_uses(plan, cluster), cluster)
    for host in sorted(hosts, key=attrgetter("filled"), reverse=True):
        if host.needed > host.available:
            raise DoesNotFitError(
                f"{host.whose} {host.verb} {gib(host.needed)} GiB{_mostly(host.uses)}, but "
                f"{'its' if len(host.uses) == 1 else 'that'} host has {gib(host.available)} GiB: "
                f"{gib(host.needed - host.available)} GiB too much; "
                f"{advice(plan, cluster, host)}"
            )
    return hosts


def check_machine(plan: Plan, host: Host, here: Sequence[Instance] | None = None) -> HostMemory:
    """Memory of all processes, or of those that are ``here``, on one machine of type ``host``.

    Raises DoesNotFitError, in one sentence with the figures, where they do not fit together.
    """
    uses = memory_of_all(plan, [(i, host.memory) for i in here or plan.instances])
    needed = sum(use.needed for use in uses)
    if needed > host.memory:
        shares: dict[Role, float] = {}
        for use in uses:
            role = use.instance.role
            shares[role] = shares.get(role, 0.0) + use.needed
        most = max(shares, key=shares.__getitem__)
        every = len(uses) == len(plan.instances)
        whose = "all processes together" if every else f"the {len(uses)} processes of this machine"
        raise DoesNotFitError(
            f"{whose} need {gib(needed)} GiB{_mostly(uses)}, most of it the "
            f"{plural(most, 2)} with {gib(shares[most])} GiB, but the machine has "
            f"{gib(host.memory)} GiB: {gib(needed - host.memory)} GiB too much; "
            f"{OTHER_WAYS[largest_part(uses)]}"
        )
    return HostMemory(MACHINE, tuple(uses))


def nearly_full(hosts: Sequence[HostMemory]) -> list[str]:
    """A sentence where what fits by this estimate may not fit in truth."""
    host = max(hosts, key=attrgetter("filled"))
    if host.filled <= NEARLY:
        return []
    return [
        f"{host.whose} {host.verb} {gib(host.needed)} of {gib(host.available)} GiB: only the large "
        "parts are counted, so that it may not fit after all"
    ]


def gib(size: float) -> str:
    """Bytes as a number of GiB."""
    number = size / 2**30
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2g}"


def _mostly(uses: Sequence[MemoryUse]) -> str:
    part = largest_part(uses)
    size = sum(use.parts.get(part, 0.0) for use in uses)
    return f" (of which {PART_NAMES[part]} {gib(size)} GiB)"
