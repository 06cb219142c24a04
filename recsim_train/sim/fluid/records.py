"""What `recsim_train.sim.fluid` hands out: handles of records in its block of memory."""

from __future__ import annotations

from typing import Protocol


class Parting(Protocol):
    """Treats several equal resources as one (`recsim_train.sim.fans`)."""

    def part(self, resource: Resource) -> None:
        """Something else uses this one: it is equal no longer."""


class Resource:
    """Something of limited capacity, in units per second."""

    __slots__ = (
        "address", "alias", "capacity", "history", "index", "known", "name", "pace", "room",
        "users",
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
        self.known = False
        """Something has used it."""
        self.alias: tuple[Parting, Resource] | None = None
        """(who knows that it is one of several equal ones, the one that stands for all)"""

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


class Kind:
    """Activities that are alike: same uses, same cap, same weight, hence always the same rate."""

    __slots__ = ("_pool", "address", "cap", "paced", "uses", "weight")

    def __init__(
        self, address: int, uses: Uses, cap: float, paced: float, weight: float, pool: list[int]
    ) -> None:
        self.address = address
        self.uses = uses
        self.cap = cap
        self.paced = paced
        """Times the lowest pace of what it uses: another cap."""
        self.weight = weight
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


class Fan:
    """Activities that start together and are awaited together; made once, started often."""

    __slots__ = ("_pool", "address", "flows", "items", "kinds")

    def __init__(self, address: int, kinds: tuple[Kind, ...], flows: int, pool: list[int]) -> None:
        self.address = address
        self.kinds = kinds
        self.items = len(kinds)
        self.flows = flows
        self._pool = pool

    def __del__(self) -> None:
        self._pool.append(self.address)
