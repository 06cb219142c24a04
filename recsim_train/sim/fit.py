"""How many servers it takes to fit, and the whole answer to "does it fit?"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.sim.memory import (
    OTHER_WAYS,
    MemoryUse,
    check_memory,
    gib,
    largest_part,
    memory_uses,
    nearly_full,
)

ServerRole = Literal["embedding_server", "dense_server"]
SERVERS: tuple[ServerRole, ...] = ("embedding_server", "dense_server")
MOST_SERVERS = 1024
"""More are not suggested."""

Enough = Callable[[list[MemoryUse]], bool]


@dataclass(frozen=True, slots=True)
class Fit:
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
            f"{number} {_plural(role, number)}"
            for role, number in self.smallest.items()
            if number is not None and number < self.present[role]
        ]
        return found + (f"; {' and '.join(fewer)} would be enough" if fewer else "")

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "fits": self.problem is None,
            "problem": self.problem,
            "warnings": list(self.warnings),
            "fullest": {"process": self.fullest.name, **self.fullest.document()},
            "smallest_servers": dict(self.smallest),
        }


def fit(plan: Plan, cluster: Cluster) -> Fit:
    """Whether and how a plan fits."""
    uses = memory_uses(plan, cluster)
    fullest = max(uses, key=lambda use: use.needed / use.available)
    problem = None
    try:
        check_memory(plan, cluster)
    except UserError as error:
        problem = str(error)
    warnings = () if problem else tuple(nearly_full(uses, cluster.colocate))
    roles = () if cluster.colocate else [r for r in SERVERS if plan.of_role(r)]
    return Fit(
        fullest,
        problem,
        warnings,
        {role: smallest(plan, cluster, role) for role in roles},
        {role: len(plan.of_role(role)) for role in roles},
    )


def smallest(plan: Plan, cluster: Cluster, role: ServerRole) -> int | None:
    """The smallest number of servers of a role of which each fits into its host."""

    def enough(uses: list[MemoryUse]) -> bool:
        return all(u.needed <= u.available for u in uses if u.instance.role == role)

    return _search(plan, cluster, role, 1, enough)


def advice(plan: Plan, cluster: Cluster, use: MemoryUse) -> str:
    """What makes the whole plan fit, of which ``use`` does not."""

    def enough(uses: list[MemoryUse]) -> bool:
        return all(u.needed <= u.available for u in uses)

    # tables and dense shards sit in the trainers where there are no servers for them
    for role in SERVERS:
        if use.instance.role not in (role, "trainer"):
            continue
        present = len(plan.of_role(role))
        servers = _search(plan, cluster, role, present + 1, enough)
        if servers is not None:
            return f"{servers} {_plural(role, servers)} would be enough"
        servers = smallest(plan, cluster, role)
        if use.instance.role == role and servers is not None and servers > present:
            return f"it takes {servers} {_plural(role, servers)}, but others do not fit either"
    return OTHER_WAYS[largest_part([use])]


def _plural(role: str, count: int) -> str:
    name = role.replace("_", " ")
    return name if count == 1 else f"{name}s"


def _search(
    plan: Plan, cluster: Cluster, role: ServerRole, first: int, enough: Enough
) -> int | None:
    """The smallest number from ``first`` on that is enough: doubling, then halving."""

    def fits(servers: int) -> bool:
        roles = plan.experiment.roles.model_copy(update={f"{role}s": servers})
        try:
            other = build_plan(plan.experiment.model_copy(update={"roles": roles}), plan.strategy)
        except UserError:
            return False
        return bool(other.of_role(role)) and enough(memory_uses(other, cluster))

    if fits(first):
        return first
    low, high = first, first * 2
    while not fits(high):
        if high >= MOST_SERVERS:
            return None
        low, high = high, min(MOST_SERVERS, high * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
