"""Flows that go side by side: from one end to many equal ones, and what equality saves.

A trainer talks to all servers at once. As long as equal servers are always used together, in equal
amounts, they carry the same load at every moment, so one of them can stand for all: n equal flows
are one activity that uses what they share n times and one of the far ends once. That is exact:
exchanging two such servers changes nothing in the problem, hence nothing in its only max-min fair
solution.

When something uses a far end in another way, ends that are no longer equal part for good; what runs
at that moment goes on flow by flow.
"""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.sim.fluid.solver import Fan, Fluid, Kind, Resource, Uses


class Ends:
    """Far ends of flows that start together: what a flow uses at each of them.

    Raises ValueError when two ends share a resource.
    """

    def __init__(self, fluid: Fluid, ends: Sequence[Uses]) -> None:
        self.fluid = fluid
        self.version = 0
        """Changes whenever ends part."""
        self._ends = [tuple(end) for end in ends]
        self._of = {r: place for place, end in enumerate(self._ends) for r, _ in end}
        if len(self._of) != sum(map(len, self._ends)):
            raise ValueError("ends of flows that go side by side must not share a resource")
        self._parts: list[list[int]] = []
        """Places of ends that are equal; the first of each stands for all."""
        self._made: dict[Kind, tuple[Uses, float | None, float]] = {}
        """Near end, cap and weight of the flows of each kind that stands for several."""
        alike: dict[object, list[int]] = {}
        for place, end in enumerate(self._ends):
            # what is in use already may carry more than its equals
            known = any(r.known for r, _ in end)
            alike.setdefault((known and place, *((r.capacity, c) for r, c in end)), []).append(
                place
            )
            for resource, _ in end:
                _part(resource)
                resource.known = True
        self._parts = list(alike.values())
        for places in self._parts:
            self._stand(places)

    def _stand(self, places: list[int]) -> None:
        """The first of ``places`` stands for all of them."""
        for place in places:
            pairs = zip(self._ends[place], self._ends[places[0]], strict=True)
            for (resource, _), (first, _) in pairs:
                resource.alias = (self, first) if len(places) > 1 else None

    def flows(
        self, near: Uses, works: Sequence[float], cap: float | None = None, weight: float = 1.0
    ) -> Flows:
        """One flow to each end, with the work of its place; all of them use ``near``, too."""
        if len(works) != len(self._ends):
            raise ValueError(f"{len(self._ends)} ends need as many works, not {len(works)}")
        return Flows(self, tuple(near), works, cap, weight)

    def fan(self, near: Uses, works: Sequence[float], cap: float | None, weight: float) -> Fan:
        """Flows as activities; good as long as `version` stays the same."""
        for resource, _ in near:
            _part(resource)
        for places in list(self._parts):
            by_work: dict[float, list[int]] = {}
            for place in places:
                by_work.setdefault(works[place], []).append(place)
            if len(by_work) > 1:
                self._divide(places, list(by_work.values()))
        items = [(self._kind(p, near, cap, weight), works[p[0]]) for p in self._parts]
        return self.fluid.fan(items, len(works))

    def _kind(self, places: list[int], near: Uses, cap: float | None, weight: float) -> Kind:
        total: dict[Resource, float] = {}
        for resource, coefficient in near:
            total[resource] = total.get(resource, 0.0) + coefficient * len(places)
        for resource, coefficient in self._ends[places[0]]:
            total[resource] = total.get(resource, 0.0) + coefficient
        kind = self.fluid.plain_kind({r: c for r, c in total.items() if c > 0.0}, cap, weight)
        if len(places) > 1:
            self._made[kind] = near, cap, weight
        return kind

    def part(self, resource: Resource) -> None:
        """Something else uses ``resource``: it is equal to no other any longer."""
        place = self._of[resource]
        places = next(p for p in self._parts if place in p)
        self._divide(places, [[place], [p for p in places if p != place]])

    def _divide(self, places: list[int], into: list[list[int]]) -> None:
        """Equal ends part."""
        first = self._ends[places[0]]
        stopped, kept = [], {}
        for kind, made in self._made.items():
            if any(r is first[0][0] for r, _ in kind.uses):
                stopped += [(made, *left) for left in self.fluid.stop_all(kind, len(into))]
            else:
                kept[kind] = made
        self._made = kept
        for place in places[1:]:
            for (source, _), (target, _) in zip(first, self._ends[place], strict=True):
                self.fluid.copy_used(source, target)
        at = self._parts.index(places)
        self._parts[at : at + 1] = into
        self.version += 1
        for some in into:
            self._stand(some)
            for (near, cap, weight), work, group in stopped:
                self.fluid.resume(self._kind(some, near, cap, weight), work, group)


class Flows:
    """Flows to all of `Ends`, to be started together as often as one likes."""

    __slots__ = ("_ends", "_fan", "_made", "_version")

    def __init__(
        self, ends: Ends, near: Uses, works: Sequence[float], cap: float | None, weight: float
    ) -> None:
        self._ends = ends
        self._made = near, works, cap, weight
        self._fan = ends.fan(*self._made)
        self._version = ends.version

    def fan(self) -> Fan:
        """What to start now."""
        if self._version != self._ends.version:
            self._fan = self._ends.fan(*self._made)
            self._version = self._ends.version
        return self._fan


def _part(resource: Resource) -> None:
    """Something uses this one in a way of its own."""
    if resource.alias is not None:
        resource.alias[0].part(resource)
