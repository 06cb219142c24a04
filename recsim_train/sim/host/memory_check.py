"""The check of memory: what every process needs, against what its host has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import UserError
from recsim_train.placement.hosts import MACHINE
from recsim_train.placement.plan import SERVERS, Instance, Plan, Role
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.host.memory import (
    PART_NAMES,
    HostMemory,
    MemoryUse,
    by_host,
    memory_of_all,
    memory_uses,
)
from recsim_train.sim.host.sizing import OTHER_WAYS, advice, largest_part, plural, smallest

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
