"""Resources that nobody has to share: each activity is as fast as if it were alone.

What it takes the place of is `recsim_train.sim.fluid.solver.Fluid`, for a look at a run before it
is simulated: which work there is for each resource shows in a few steps, what of it collides does
not. Nothing is solved here, so that nothing needs compiling.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import inf

from recsim_train.sim.fluid.records import Kind, Resource, demand

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
