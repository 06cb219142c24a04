"""Max-min fair sharing of resources by activities whose rates change over time.

Theory of operation
-------------------
A resource has a capacity. An activity has an amount of work and belongs to a *kind*: which
resources it uses and with which coefficient (running at rate r it consumes ``coefficient * r`` of
each), the highest rate it can use (its cap) and its weight. Rates are max-min fair in
``rate / weight``: all activities are raised together; one stops when it reaches its cap or when a
resource it uses is full (progressive filling, Bertsekas and Gallager, section 6.5.2).

Capacities may change at any time, down to 0: then those that use the resource stand still. A
resource may also have a *pace*, as a host whose clock is slow: a kind with a paced cap runs at most
at that cap times the lowest pace of what it uses.

What keeps a change cheap and the result exact:

- Activities of one kind always have one rate, so the kind carries one clock of work done, and an
  activity is finished when that clock has moved by its work. All kinds that one resource holds back
  have one level, so the resource carries one clock for them.
- A resource whose users' caps together fit in it never limits anyone. Only the others (*contended*)
  join kinds into cells, and only a cell that a change touches is solved again.
- Changes of one instant are solved together, when time next moves; until then they are a list.
- All of this is compiled (`recsim_train.sim.fluid.core`); this file is the door to it.

What this file must NOT know: SimPy, strategies, what a resource stands for. Nothing here depends on
the order of a set or on addresses in memory: equal calls give equal results, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite

import numpy as np

from recsim_train.sim.fluid import core
from recsim_train.sim.fluid import layout as lay
from recsim_train.sim.fluid.activities import set_capacity, set_pace
from recsim_train.sim.fluid.memory import WordBlock
from recsim_train.sim.fluid.resources import Activity, Kind, PooledKind, Resource, Uses, demand

__all__ = ["Activity", "Fluid", "Kind", "Resource", "Uses"]

_REMEMBERED = 1 << 14
"""Kinds that are known again by their uses; which ones are remembered changes no result."""


class Fluid:
    """The resources, the activities that share them, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due = inf
        """When the next activity is finished, if nothing changes; -inf: rates are not known yet.

        Does not count what waits in `changed`.
        """
        self.changed = 0
        """Changes that wait for the end of this instant."""
        self.resources: list[Resource] = []
        self.added = 0
        """Activities started so far."""
        self.block = WordBlock()
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._kind_pools: dict[int, list[int]] = {}
        self._tags: dict[int, tuple[object, object]] = {}
        """By record of an activity: the tag, and what has to live as long."""
        self._free: list[int] = []
        """Records of activities that are over."""
        self._last = 0
        """Of the records of those that are to start."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs, stands still or waits to start."""
        return not self._tags

    @property
    def solves(self) -> int:
        """How often rates were worked out."""
        return self.block.ints[lay.SOLVES]

    # ------------------------------------------------------------------ building

    def resource(
        self, name: str, capacity: float, pace: float = inf, *, listed: bool = True
    ) -> Resource:
        """A new resource with the highest capacity that it ever has.

        ``listed``: among `resources`, so that what is used of it counts.
        Raises ValueError unless the capacity is positive and finite, and the pace positive.
        """
        if not (capacity > 0.0 and isfinite(capacity)):
            raise ValueError(f"capacity of {name} must be positive and finite, not {capacity!r}")
        if not pace > 0.0:
            raise ValueError(f"pace of {name} must be positive, not {pace!r}")
        made = Resource(
            name, capacity, len(self.resources), self.block.resource(capacity, pace), pace
        )
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
        """The kind with these uses; coefficients of a resource named twice add up, zeros drop.

        ``paced``: a cap, too, in units of the lowest pace of what it uses. Raises ValueError where
        neither cap nor resource limits the rate, or a figure is negative.
        """
        wanted, alone = demand(uses, cap)
        if not (0.0 < alone < inf and 0.0 < weight < inf and paced > 0.0):
            raise ValueError("a kind needs a positive, finite cap or resource, and such a weight")
        key = (*wanted, alone, weight, paced)
        known = self._kinds.get(key)
        if known is None:
            if len(self._kinds) >= _REMEMBERED:
                self._kinds.clear()
            known = self._kinds[key] = self._make(wanted, alone, paced, weight)
        return known

    def _make(self, uses: Uses, cap: float, paced: float, weight: float) -> Kind:
        for resource, _ in uses:
            resource.users += 1
            if resource.users > resource.room:
                resource.room = max(4, 2 * resource.room)
                self.block.users(resource.address, resource.room)
        pool = self._kind_pools.setdefault(len(uses), [])
        address = self.block.kind([(r.address, c) for r, c in uses], cap, paced, weight, pool)
        return PooledKind(address, uses, cap, paced, weight, pool)

    # ------------------------------------------------------------------ changing

    def start(self, kind: Kind, work: float, tag: object = None) -> None:
        """Start an activity now. Raises ValueError unless its work is positive and finite."""
        if not 0.0 < work < inf:
            raise ValueError(f"work must be positive and finite, not {work!r}")
        block = self.block
        record = self._free.pop() if self._free else block.take(lay.A_WORDS)
        self._tags[record] = tag, kind
        ints = block.ints
        ints[record + lay.A_KIND] = kind.address
        block.floats[record + lay.A_WORK] = work
        ints[record + lay.A_SERIAL] = self.added
        ints[record + lay.A_NEXT] = 0
        ints[self._last + lay.A_NEXT if self.changed else lay.PENDING] = record
        self._last = record
        self.changed += 1
        self.added += 1

    def add(self, kind: Kind, work: float, tag: object = None) -> Activity:
        """`start`, with a handle."""
        self.start(kind, work, tag)
        return Activity(kind, self.added - 1, self._last)

    def _apply(self) -> None:
        core.apply(self.block.f, self.block.i, self.now)
        self.changed = 0
        self.due = -inf

    def remove(self, activity: Activity) -> float:
        """Stop an activity before its end; returns the work that was left.

        Raises ValueError when it is not running.
        """
        self._apply()
        block, record = self.block, activity.record
        known = record in self._tags and block.ints[record + lay.A_SERIAL] == activity.serial
        if not known:
            raise ValueError("this activity is not running")
        left: float = core.cancel(block.f, block.i, self.now, activity.kind.address, record)
        del self._tags[record]
        self._free.append(record)
        return left

    def set_capacity(self, resource: Resource, capacity: float) -> None:
        """From now on a resource has another capacity; 0: its users stand still.

        Raises ValueError unless it lies between 0 and the capacity that the resource was made with.
        """
        if not 0.0 <= capacity <= resource.capacity:
            raise ValueError(
                f"capacity of {resource.name} must lie between 0 and {resource.capacity!r}, "
                f"not {capacity!r}"
            )
        if capacity == (resource.history[-1][1] if resource.history else resource.capacity):
            return
        resource.history.append((self.now, capacity))
        set_capacity(self.block.f, self.block.i, resource.address, capacity)
        self.due = -inf
        if resource.changes is not None:
            resource.changes(capacity)

    def set_pace(self, resource: Resource, pace: float) -> None:
        """From now on a resource has another pace. Raises ValueError unless it is positive."""
        if not pace > 0.0:
            raise ValueError(f"pace of {resource.name} must be positive, not {pace!r}")
        if pace == resource.pace:
            return
        resource.pace = pace
        set_pace(self.block.f, self.block.i, resource.address, pace)
        self.due = -inf

    # ------------------------------------------------------------------ time

    def run(self, until: float) -> list[object]:
        """Move on to where activities are finished, but not beyond ``until``; returns their tags.

        Where nothing is finished the clock stays: then `due` lies after ``until``.
        """
        block = self.block
        self.due = due = core.run(block.f, block.i, self.now, until)
        self.changed = 0
        ints = block.ints
        record = ints[lay.DONE]
        if record == 0:
            return []
        self.now = due
        done = []
        tags, free = self._tags, self._free
        while record:
            done.append(tags.pop(record)[0])
            free.append(record)
            record = ints[record + lay.A_NEXT]
        return done

    def used(self) -> list[float]:
        """Per resource, by index: units consumed so far (capacity-seconds)."""
        self._apply()
        block = self.block
        addresses = np.array([r.address for r in self.resources], dtype=np.int64)
        found: list[float] = core.used(block.f, block.i, self.now, addresses).tolist()
        for resource in self.resources:
            if resource.carried is not None:
                found[resource.index] += resource.carried()
        return found
