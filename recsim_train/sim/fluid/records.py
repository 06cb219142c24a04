"""What `recsim_train.sim.fluid` hands out: handles of records in its block of memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf


class Resource:
    """Something of limited capacity, in units per second."""

    __slots__ = (
        "address", "capacity", "history", "index", "name", "pace", "room", "users",
    )  # fmt: skip

    def __init__(self, name: str, capacity: float, index: int, address: int, pace: float) -> None:
        self.name = name
        self.capacity = capacity
        """The highest that it ever has."""
        self.history: list[tuple[float, float]] = []
        """(since when, capacity), where it has changed; before that the highest."""
        self.pace = pace
        """Limits the paced cap of whoever uses it."""
        self.index = index
        self.address = address
        self.users = 0
        """Kinds that use it, at work or not."""
        self.room = 0
        """For how many of them there is room at a time."""

    def mean_capacity(self, start: float, end: float) -> float:
        """Mean capacity between two times, of which the second is later."""
        if not self.history:
            return self.capacity
        total, since, capacity = 0.0, start, self.capacity
        for time, value in self.history:
            until = min(max(time, start), end)
            total += capacity * (until - since)
            since, capacity = until, value
        total += capacity * (end - since)
        return total / (end - start)

    def __repr__(self) -> str:
        return f"Resource({self.name!r}, {self.capacity:g})"


Uses = tuple[tuple[Resource, float], ...]


def demand(uses: Iterable[tuple[Resource, float]], cap: float | None) -> tuple[Uses, float]:
    """What an activity uses, and its rate if it is alone; coefficients of a resource named twice
    add up, zeros drop. Raises ValueError where one is negative."""
    total: dict[Resource, float] = {}
    for resource, coefficient in uses:
        if coefficient < 0.0:
            raise ValueError(f"negative use of {resource.name}: {coefficient!r}")
        if coefficient > 0.0:
            total[resource] = total.get(resource, 0.0) + coefficient
    alone = inf if cap is None else cap
    for resource, coefficient in total.items():
        alone = min(alone, resource.capacity / coefficient)
    return tuple(total.items()), alone


class Kind:
    """Activities that are alike: same uses, same cap, same weight, hence always the same rate."""

    __slots__ = ("address", "cap", "paced", "uses", "weight")

    def __init__(self, address: int, uses: Uses, cap: float, paced: float, weight: float) -> None:
        self.address = address
        self.uses = uses
        self.cap = cap
        self.paced = paced
        """Times the lowest pace of what it uses: another cap."""
        self.weight = weight


class PooledKind(Kind):
    """One whose address is given to another one once nobody needs it any more."""

    __slots__ = ("_pool",)

    def __init__(
        self, address: int, uses: Uses, cap: float, paced: float, weight: float, pool: list[int]
    ) -> None:
        super().__init__(address, uses, cap, paced, weight)
        self._pool = pool

    def __del__(self) -> None:
        for resource, _ in self.uses:
            resource.users -= 1
        self._pool.append(self.address)


class Activity:
    """Work in progress, for those who want to ask about it or stop it."""

    __slots__ = ("group", "kind", "serial")

    def __init__(self, kind: Kind, serial: int, group: int) -> None:
        self.kind = kind
        self.serial = serial
        self.group = group
