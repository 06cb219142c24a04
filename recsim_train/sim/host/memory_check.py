"""The check of memory: what every process needs, against what its host has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import SERVERS, Instance, Plan, Role
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.host.memory import PART_NAMES, MemoryUse, memory_of, memory_uses
from recsim_train.sim.host.sizing import OTHER_WAYS, advice, largest_part, plural, smallest

NEARLY = 0.9
"""Share of a host's memory above which an estimate of the large parts is no promise."""


class DoesNotFitError(UserError):
    """A process, or all of a machine, needs more memory than there is."""


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """Whether a plan fits into its hosts' memory."""

    fullest: MemoryUse
    """The process that needs most of its host, or the largest one where all share a machine."""
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
        use = self.fullest
        share = use.needed / use.available
        found = f"fits: {use.name} is the fullest, {gib(use.needed)} of {gib(use.available)} GiB"
        found += f" ({share:.0%})" if share >= 0.01 else ""
        fewer = [
            f"{number} {plural(role, number)}"
            for role, number in self.smallest.items()
            if number is not None and number < self.present[role]
        ]
        return found + (f"; for memory alone {' and '.join(fewer)} would do" if fewer else "")

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "fits": self.problem is None,
            "problem": self.problem,
            "warnings": list(self.warnings),
            "fullest": {
                "process": self.fullest.name,
                "bytes": self.fullest.needed,
                "available": self.fullest.available,
                **self.fullest.parts,
            },
            "smallest_servers": dict(self.smallest),
        }


def memory_check(plan: Plan, cluster: Cluster) -> MemoryCheck:
    """Whether and how a plan fits."""
    roles = () if cluster.colocate else [r for r in SERVERS if plan.of_role(r)]
    return _checked(
        memory_uses(plan, cluster),
        lambda: check_memory(plan, cluster),
        cluster.colocate,
        {role: smallest(plan, cluster, role) for role in roles},
        {role: len(plan.of_role(role)) for role in roles},
    )


def machine_check(plan: Plan, host: Host) -> MemoryCheck:
    """Whether and how a plan fits into one machine of type ``host``."""
    uses = [memory_of(plan, instance, host.memory) for instance in plan.instances]
    return _checked(uses, lambda: check_machine(plan, host), True, {}, {})


def _checked(
    uses: Sequence[MemoryUse],
    check: Callable[[], object],
    colocate: bool,
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
        max(uses, key=lambda use: use.needed / use.available),
        str(problem) if problem else None,
        () if problem else tuple(nearly_full(uses, colocate)),
        smallest,
        present,
        "memory" if problem is None or isinstance(problem, DoesNotFitError) else "hosts",
    )


def check_memory(plan: Plan, cluster: Cluster) -> list[MemoryUse]:
    """Memory of every process, in rank order.

    Raises DoesNotFitError, in one sentence with the role and the figures, where something does not
    fit, other UserErrors where the profile has not the hosts that the plan needs.
    """
    if cluster.colocate:
        return check_machine(plan, cluster.hosts["default"])
    sites_of(plan, cluster)
    uses = memory_uses(plan, cluster)
    for use in sorted(uses, key=lambda u: u.needed / u.available, reverse=True):
        if use.needed > use.available:
            raise DoesNotFitError(
                f"{use.name} needs {gib(use.needed)} GiB{_mostly([use])}, but its host has "
                f"{gib(use.available)} GiB: {gib(use.needed - use.available)} GiB too much; "
                f"{advice(plan, cluster, use)}"
            )
    return uses


def check_machine(
    plan: Plan, host: Host, here: Sequence[Instance] | None = None
) -> list[MemoryUse]:
    """Memory of every process, or of those that are ``here``, on one machine of type ``host``.

    Raises DoesNotFitError, in one sentence with the figures, where they do not fit together.
    """
    uses = [memory_of(plan, instance, host.memory) for instance in here or plan.instances]
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
    return uses


def nearly_full(uses: Sequence[MemoryUse], colocate: bool) -> list[str]:
    """A sentence where what fits by this estimate may not fit in truth."""
    if colocate:
        needed, available = sum(u.needed for u in uses), uses[0].available
        names = "all processes together need"
    else:
        fullest = max(uses, key=lambda u: u.needed / u.available)
        needed, available = fullest.needed, fullest.available
        names = f"{fullest.name} needs"
    if needed <= NEARLY * available:
        return []
    return [
        f"{names} {gib(needed)} of {gib(available)} GiB: only the large parts are counted, so that "
        "it may not fit after all"
    ]


def gib(size: float) -> str:
    """Bytes as a number of GiB."""
    number = size / 2**30
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2g}"


def _mostly(uses: Sequence[MemoryUse]) -> str:
    part = largest_part(uses)
    size = sum(use.parts.get(part, 0.0) for use in uses)
    return f" (of which {PART_NAMES[part]} {gib(size)} GiB)"
