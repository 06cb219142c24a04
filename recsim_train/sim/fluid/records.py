"""What `recsim_train.sim.fluid` hands out: handles of records in its block of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True, eq=False, repr=False)
class Resource:
    """Something of limited capacity, in units per second."""

    name: str
    capacity: float
    """The highest that it ever has."""
    index: int
    address: int
    pace: float
    """Limits the paced cap of whoever uses it."""
    history: list[tuple[float, float]] = field(default_factory=list)
    """(since when, capacity), where it has changed; before that the highest."""
    users: int = 0
    """Kinds that use it, at work or not."""
    room: int = 0
    """For how many of them there is room at a time."""
    changes: Callable[[float], None] | None = None
    """Is told of another capacity."""
    carried: Callable[[], float] | None = None
    """Tells what was used of it by others than activities."""

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


@dataclass(slots=True, eq=False)
class Kind:
    """Activities that are alike: same uses, same cap, same weight, hence always the same rate."""

    address: int
    uses: Uses
    cap: float
    paced: float
    """Times the lowest pace of what it uses: another cap."""
    weight: float


@dataclass(slots=True, eq=False)
class PooledKind(Kind):
    """One whose address is given to another one once nobody needs it any more."""

    pool: list[int]

    def __del__(self) -> None:
        for resource, _ in self.uses:
            resource.users -= 1
        self.pool.append(self.address)


@dataclass(slots=True, eq=False)
class Activity:
    """Work in progress, for those who want to ask about it or stop it."""

    kind: Kind
    serial: int
    record: int
