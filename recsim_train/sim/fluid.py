"""Max-min fair sharing of resources by activities whose rates change over time.

Theory of operation
-------------------
A resource has a capacity. An activity has an amount of work and belongs to a *kind*: which
resources it uses and with which coefficient (running at rate r it consumes ``coefficient * r`` of
each), the highest rate it can use (its cap) and its weight. Rates are max-min fair in
``rate / weight``: all activities are raised together; one stops when it reaches its cap or when a
resource it uses is full (progressive filling, Bertsekas and Gallager, section 6.5.2).

Three facts keep a change cheap and the result exact:

- Activities of one kind always have one rate, so the kind carries one clock of work done, and an
  activity is finished when that clock has moved by its work.
- A resource whose users' caps together fit in it never limits anyone. Only the others (*contended*)
  join activities into components, and only the component that a change touches is solved again.
- Changes of one instant are solved together, when time next moves.

What this file must NOT know: SimPy, strategies, what a resource stands for. Nothing here depends on
the order of a set or on addresses: equal calls give equal results, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf, isfinite

_ROUNDING = 1e-12
"""Completions closer than this share of the clock are one instant."""
_FULL = 1.0 + 1e-9
"""A resource is contended when its users could consume more than this share of its capacity."""

_DIGITS = 1e-4
"""A sum that shrank by differences below this share of itself is summed anew."""


class Resource:
    """Something of limited capacity, in units per second."""

    __slots__ = (
        "_active",
        "_contended",
        "_demand",
        "_floor",
        "_kinds",
        "_left",
        "_mark",
        "_pull",
        "_touches",
        "_used",
        "capacity",
        "index",
        "name",
    )

    def __init__(self, name: str, capacity: float, index: int) -> None:
        self.name = name
        self.capacity = capacity
        self.index = index
        self._used = 0.0
        self._demand = 0.0  # what its users consume when each runs at its cap
        self._touches = 0
        self._contended = False
        self._kinds: dict[Kind, None] = {}
        self._mark = 0
        self._left = 0.0  # filling: capacity not yet given to frozen kinds
        self._pull = 0.0  # filling: consumption per unit of level by kinds still rising
        self._active = 0  # filling: kinds still rising
        self._floor = 0.0  # filling: below this the pull has lost its digits

    def __repr__(self) -> str:
        return f"Resource({self.name!r}, {self.capacity:g})"


Uses = tuple[tuple[Resource, float], ...]


class Activity:
    """Work in progress; ``tag`` is handed back when it is finished."""

    __slots__ = ("finish", "kind", "tag")

    def __init__(self, kind: Kind, finish: float, tag: object) -> None:
        self.kind = kind
        self.finish = finish
        self.tag = tag


class Kind:
    """Activities that are alike: same uses, same cap, same weight, hence always the same rate."""

    __slots__ = (
        "_clock",
        "_frozen",
        "_key",
        "_level",
        "_mark",
        "_queue",
        "_serial",
        "_since",
        "_version",
        "cap",
        "count",
        "rate",
        "uses",
        "weight",
    )

    def __init__(
        self, key: tuple[object, ...], uses: Uses, cap: float, weight: float, serial: int
    ) -> None:
        self.uses = uses
        self.cap = cap
        self.weight = weight
        self.rate = 0.0
        self.count = 0
        self._key = key
        self._level = cap / weight
        self._serial = serial
        self._clock = 0.0
        self._since = 0.0
        self._queue: list[tuple[float, int, Activity]] = []
        self._version = 0
        self._mark = 0
        self._frozen = 0


class Fluid:
    """The resources, the activities that share them, and a clock.

    ``ideal``: sharing costs nothing; every activity runs at what it would reach alone.
    """

    def __init__(self, *, ideal: bool = False) -> None:
        self.now = 0.0
        self.resources: list[Resource] = []
        self.solves = 0
        self.added = 0
        self._ideal = ideal
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._dirty: dict[Kind, None] = {}
        self._due: list[tuple[float, int, int, Kind]] = []
        self._serial = 0
        self._mark = 0

    # ------------------------------------------------------------------ building

    def resource(self, name: str, capacity: float) -> Resource:
        """A new resource. Raises ValueError unless the capacity is positive and finite."""
        if not (capacity > 0.0 and isfinite(capacity)):
            raise ValueError(f"capacity of {name} must be positive and finite, not {capacity!r}")
        made = Resource(name, capacity, len(self.resources))
        self.resources.append(made)
        return made

    def kind(
        self, uses: Iterable[tuple[Resource, float]], cap: float | None = None, weight: float = 1.0
    ) -> Kind:
        """The kind with these uses; coefficients of a resource named twice add up, zeros drop.

        Raises ValueError where neither cap nor resource limits the rate, or a figure is negative.
        """
        total: dict[Resource, float] = {}
        for resource, coefficient in uses:
            if coefficient < 0.0:
                raise ValueError(f"negative use of {resource.name}: {coefficient!r}")
            if coefficient > 0.0:
                total[resource] = total.get(resource, 0.0) + coefficient
        alone = inf if cap is None else cap
        for resource, coefficient in total.items():
            alone = min(alone, resource.capacity / coefficient)
        if not (0.0 < alone < inf and 0.0 < weight < inf):
            raise ValueError("a kind needs a positive, finite cap or resource, and such a weight")
        key = (*((r.index, c) for r, c in total.items()), alone, weight)
        known = self._kinds.get(key)
        if known is None:
            self._serial += 1
            known = Kind(key, tuple(total.items()), alone, weight, self._serial)
        return known

    # ------------------------------------------------------------------ changing

    def add(self, kind: Kind, work: float, tag: object = None) -> Activity:
        """Start an activity now. Raises ValueError unless its work is positive and finite."""
        if not 0.0 < work < inf:
            raise ValueError(f"work must be positive and finite, not {work!r}")
        if kind.count:
            self._sync(kind)
        else:
            self._kinds.setdefault(kind._key, kind)
            kind._clock = 0.0
            kind._since = self.now
            kind.rate = 0.0
            for resource, _ in kind.uses:
                resource._kinds[kind] = None
        self._serial += 1
        self.added += 1
        activity = Activity(kind, kind._clock + work, tag)
        heappush(kind._queue, (activity.finish, self._serial, activity))
        self._change(kind, 1)
        return activity

    def remove(self, activity: Activity) -> float:
        """Stop an activity before its end; returns the work that was left.

        Raises ValueError when it is not running.
        """
        kind = activity.kind
        self._sync(kind)
        rest = [entry for entry in kind._queue if entry[2] is not activity]
        if len(rest) == len(kind._queue):
            raise ValueError("this activity is not running")
        heapify(rest)
        kind._queue = rest
        kind._version += 1
        self._change(kind, -1)
        return max(0.0, activity.finish - kind._clock)

    def advance(self, time: float) -> list[object]:
        """Move the clock to ``time``; returns the tags of what was finished on the way, in order.

        Raises ValueError when ``time`` lies in the past.
        """
        if time < self.now:
            raise ValueError(f"time may not run back from {self.now!r} to {time!r}")
        done: list[object] = []
        while True:
            if time > self.now:
                self._solve()
            due = self._peek()
            if due is None or due > time * (1.0 + _ROUNDING):
                break
            self.now = max(self.now, min(due, time))
            self._complete(done)
            if self.now >= time:
                break
        self.now = time
        return done

    def next_completion(self) -> float | None:
        """When the next activity finishes if nothing changes; None when nothing runs."""
        self._solve()
        return self._peek()

    def used(self) -> list[float]:
        """Per resource, by index: units consumed so far (capacity-seconds)."""
        self._solve()
        for resource in self.resources:
            for kind in resource._kinds:
                self._sync(kind)
        return [resource._used for resource in self.resources]

    def rate_of(self, activity: Activity) -> float:
        """Current rate of a running activity."""
        self._solve()
        return activity.kind.rate

    # ------------------------------------------------------------------ inside

    def _change(self, kind: Kind, by: int) -> None:
        kind.count += by
        for resource, coefficient in kind.uses:
            resource._touches += 1
            if kind.count == 0:
                del resource._kinds[kind]
            if not resource._kinds:
                resource._demand = 0.0
            elif resource._touches & 1023:
                resource._demand += by * coefficient * kind.cap
            else:  # sums that only ever change by differences drift: start anew now and then
                resource._demand = sum(
                    k.count * k.cap * c for k in resource._kinds for r, c in k.uses if r is resource
                )
        if kind.count == 0:
            kind._version += 1
            if self._kinds.get(kind._key) is kind:
                del self._kinds[kind._key]
        self._dirty[kind] = None

    def _sync(self, kind: Kind) -> None:
        """Bring a kind's clock of work done up to now."""
        passed = self.now - kind._since
        if passed > 0.0:
            moved = kind.rate * passed
            kind._clock += moved
            kind._since = self.now
            moved *= kind.count
            for resource, coefficient in kind.uses:
                resource._used += moved * coefficient

    def _peek(self) -> float | None:
        due = self._due
        while due:
            time, _, version, kind = due[0]
            if kind._version == version:
                return time
            heappop(due)
        return None

    def _complete(self, done: list[object]) -> None:
        """Finish everything that is due at the present instant."""
        limit = self.now * (1.0 + _ROUNDING)
        while True:
            due = self._peek()
            if due is None or due > limit:
                return
            kind = heappop(self._due)[3]
            kind._version += 1
            self._sync(kind)
            reach = max(kind._clock, kind._queue[0][0]) + kind.rate * self.now * _ROUNDING
            ended = 0
            while kind._queue and kind._queue[0][0] <= reach:
                finish, _, activity = heappop(kind._queue)
                # rounding of the clock: exactly the activity's work is charged
                for resource, coefficient in kind.uses:
                    resource._used += (finish - kind._clock) * coefficient
                done.append(activity.tag)
                ended += 1
            self._change(kind, -ended)

    def _solve(self) -> None:
        """Give right rates to everything that the pending changes touch."""
        if not self._dirty:
            return
        self.solves += 1
        self._mark += 1
        mark = self._mark
        dirty = self._dirty
        self._dirty = {}
        spread: list[Resource] = []
        for kind in dirty:
            for resource, _ in kind.uses:
                if resource._mark != mark:
                    resource._mark = mark
                    before = resource._contended
                    resource._contended = (
                        not self._ideal and resource._demand > resource.capacity * _FULL
                    )
                    if before or resource._contended:
                        spread.append(resource)
        touched: list[Kind] = []
        filling: list[Resource] = []
        for resource in spread:  # grows while it is walked
            if resource._contended:
                filling.append(resource)
            for kind in resource._kinds:
                if kind._mark != mark:
                    kind._mark = mark
                    touched.append(kind)
                    for other, _ in kind.uses:
                        if other._contended and other._mark != mark:
                            other._mark = mark
                            spread.append(other)
        for kind in dirty:
            if kind._mark != mark and kind.count:
                kind._mark = mark
                touched.append(kind)
        rates = self._fill(touched, filling) if filling else None
        for index, kind in enumerate(touched):
            rate = kind.cap if rates is None else rates[index]
            if rate != kind.rate:
                self._sync(kind)
                kind.rate = rate
            elif kind not in dirty:
                continue
            kind._version += 1
            left = kind._queue[0][0] - kind._clock
            due = max(kind._since + left / rate, self.now)
            heappush(self._due, (due, kind._serial, kind._version, kind))

    def _fill(self, kinds: list[Kind], resources: list[Resource]) -> list[float]:
        """Progressive filling: the rate of each of ``kinds``, in their order."""
        mark = self._mark
        for resource in resources:
            resource._left = resource.capacity
            resource._pull = 0.0
            resource._active = 0
        for kind in kinds:
            crowd = kind.count * kind.weight
            for resource, coefficient in kind.uses:
                if resource._contended:
                    resource._pull += crowd * coefficient
                    resource._active += 1
        for resource in resources:
            resource._floor = resource._pull * _DIGITS
        rates = dict.fromkeys(kinds, 0.0)
        order = sorted(kinds, key=_by_level)
        first, last = 0, len(order)
        level = 0.0
        while True:
            tightest: Resource | None = None
            lowest = inf
            for resource in resources:
                if resource._active:
                    if resource._pull < resource._floor:
                        _refresh(resource, mark)
                    fits = resource._left / resource._pull
                    if fits < lowest:
                        lowest, tightest = fits, resource
            # levels only rise: what looks lower is rounding
            level = max(level, lowest)
            capped = False
            while first < last and order[first]._level <= level:
                kind = order[first]
                first += 1
                if kind._frozen != mark:
                    capped = True
                    rates[kind] = kind.cap
                    _freeze(kind, kind._level, mark)
            if capped:
                continue
            if tightest is None:
                return list(rates.values())
            for kind in tightest._kinds:
                if kind._frozen != mark:
                    rates[kind] = level * kind.weight
                    _freeze(kind, level, mark)


def _by_level(kind: Kind) -> tuple[float, int]:
    return kind._level, kind._serial


def _refresh(resource: Resource, mark: int) -> None:
    """Sum a resource's pull anew over the kinds that still rise."""
    resource._pull = sum(
        kind.count * kind.weight * coefficient
        for kind in resource._kinds
        if kind._frozen != mark
        for used, coefficient in kind.uses
        if used is resource
    )
    resource._floor = resource._pull * _DIGITS


def _freeze(kind: Kind, level: float, mark: int) -> None:
    """Take a kind out of the filling at ``level``."""
    kind._frozen = mark
    crowd = kind.count * kind.weight
    for resource, coefficient in kind.uses:
        if resource._contended:
            pull = crowd * coefficient
            resource._active -= 1
            resource._pull -= pull
            resource._left = max(0.0, resource._left - pull * level)
