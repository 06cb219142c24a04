"""Resources and kinds of activities, which are handles of records where they are shared; and
resources that nobody has to share, so that each activity is as fast as if it were alone.

What the latter take the place of is `recsim_train.sim.fluid.solver.Fluid`, for a look at a run
before it is simulated: which work there is for each resource shows in a few steps, what of it
collides does not. Nothing is solved here, so that nothing needs compiling.
"""

from __future__ import annotations

import heapq
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


_ROUNDING = 1.0 + 1e-12
"""Completions closer than this are one instant, as in the solver."""


class Unshared:
    """The resources, the activities that use them, and a clock; calls as those of the solver."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changed = 0
        self.solves = 0
        self.resources: list[Resource] = []
        self.added = 0
        self._running: dict[int, tuple[Kind, float, float, float, object]] = {}
        """By serial: (kind, rate, when it begins, when it ends, tag)."""
        self._ends: list[tuple[float, int]] = []
        """Heap of (when, serial)."""
        self._used: dict[Resource, float] = {}
        """By all that has been started, to its end."""
        self.by_whom: dict[Resource, dict[str, float]] = {}
        """What was counted for somebody."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._running

    @property
    def due(self) -> float:
        """When the next activity is finished; inf: never."""
        return self._ends[0][0] if self._ends else inf

    def resource(
        self, name: str, capacity: float, pace: float = inf, *, listed: bool = True
    ) -> Resource:
        """A new resource."""
        made = Resource(name, capacity, len(self.resources), 0, pace)
        self._used[made] = 0.0
        if listed:
            self.resources.append(made)
        return made

    def kind(
        self,
        uses: Iterable[tuple[Resource, float]],
        cap: float | None = None,
        weight: float = 1.0,
        paced: float = inf,
    ) -> Kind:
        """Activities with these uses."""
        wanted, alone = demand(uses, cap)
        return Kind(0, wanted, alone, paced, weight)

    def start(self, kind: Kind, work: float, tag: object = None, delay: float = 0.0) -> None:
        """Start an activity after a ``delay``, in which nothing can slow it here, either."""
        pace, used = inf, self._used
        for resource, coefficient in kind.uses:
            pace = min(pace, resource.pace)
            used[resource] += coefficient * work
        rate = min(kind.cap, kind.paced * pace)
        begin = self.now + delay
        end = begin + work / rate
        self._running[self.added] = kind, rate, begin, end, tag
        heapq.heappush(self._ends, (end, self.added))
        self.added += 1

    def count(self, kind: Kind, work: float, whom: str = "") -> None:
        """Count work that took no time. ``whom``: whose it was."""
        for resource, coefficient in kind.uses:
            self._used[resource] += coefficient * work
            if whom:
                known = self.by_whom.setdefault(resource, {})
                known[whom] = known.get(whom, 0.0) + coefficient * work

    def set_capacity(self, resource: Resource, capacity: float) -> None:
        """From now on a resource has another capacity, which slows nobody here."""
        resource.history.append((self.now, capacity))

    def set_pace(self, resource: Resource, pace: float) -> None:
        """From now on a resource has another pace, for what is started."""
        resource.pace = pace

    def run(self, until: float) -> list[object]:
        """Move on to the next completion, if it is not beyond ``until``; returns its tags."""
        due = self.due
        if due == inf or due > until * _ROUNDING:
            return []
        self.now = max(self.now, due)
        done, ends, last = [], self._ends, due * _ROUNDING
        while ends and ends[0][0] <= last:
            _, serial = heapq.heappop(ends)
            done.append(self._running.pop(serial)[-1])
        return done

    def used(self) -> list[float]:
        """Per resource, by index: units consumed so far."""
        used = dict(self._used)
        for kind, rate, begin, end, _ in self._running.values():
            left = (end - max(self.now, begin)) * rate
            for resource, coefficient in kind.uses:
                used[resource] -= coefficient * left
        return [used[resource] for resource in self.resources]
