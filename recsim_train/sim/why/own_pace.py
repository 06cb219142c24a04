"""Bounds where trainers do not wait for each other: what one of them lacks leaves others free.

If all had to do as many steps, a rack's uplink that half of the trainers need would bound the other
half as well, and the slowest host would bound all. Of free ones each does what its own host and
its own loops allow, and of a link that they share most is done where an example needs least of it:
a fractional knapsack (Dantzig 1957), which no division of the link among them is above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf

from recsim_train.sim.fluid.records import Resource
from recsim_train.sim.fluid.unshared import Unshared
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.binding import class_of

_NOBODY = -1
"""In place of a set of trainers."""
Done = tuple[float, float]
"""(iterations of a loop, the seconds that they take at least)."""


def at_own_pace(
    runtime: Runtime, allowed: Mapping[str, float], done: Mapping[str, Done], times: float
) -> dict[str, float]:
    """What each resource allows, in examples per second by its name, where every set of trainers
    goes at its own pace.

    ``allowed``: the same where all do as much; ``done``: by training loop; ``times``: as many loops
    are there as went.
    """
    plan, batch = runtime.plan, runtime.plan.experiment.training.batch_size
    units = _units(runtime)
    sets = {loop.name: units[plan.sets[loop.loop.trainer]] for loop in runtime.training}
    examples: dict[int, float] = defaultdict(float)
    paces: dict[int, float] = defaultdict(float)
    """By set, examples per second that it does at most, of all that it stands for."""
    for loop in runtime.training:
        iterations, least = done[loop.name]
        many = runtime.folding.standing(loop.loop.trainer) * batch
        examples[sets[loop.name]] += many * iterations
        paces[sets[loop.name]] += many * times * (iterations / least if least else inf)
    if not all(examples.values()):
        return dict(allowed)  # one has stood still, and what it would need is not known
    whole = sum(examples.values())
    classes: dict[str, dict[int, float]] = {}
    owned = list(_owned(runtime, sets))
    for resource, owner in owned:
        if resource.name in allowed:
            mine = classes.setdefault(class_of(resource.name), {})
            its = allowed[resource.name] * examples[owner] / whole
            mine[owner] = min(its, mine.get(owner, inf))
    found = dict(allowed)
    for resource, _ in owned:
        mine = classes.get(class_of(resource.name), {})
        if resource.name in allowed:
            found[resource.name] = sum(mine.get(owner, paces[owner]) for owner in examples)
    for mine in classes.values():
        for owner, its in mine.items():
            paces[owner] = min(paces[owner], its)
    for resource, parts in _parts(runtime, sets):
        if allowed.get(resource.name):
            needs = {
                owner: parts[owner] * whole / (allowed[resource.name] * examples[owner])
                for owner in examples
            }
            found[resource.name] = _most(needs, paces)
    return {name: bound for name, bound in found.items() if bound < inf}


def _most(needs: Mapping[int, float], paces: Mapping[int, float]) -> float:
    """Examples per second of all sets together, each of which does no more than its own; where all
    of them leave some of the resource, as many more as that is enough for. ``needs``: by set, the
    part of the resource that one example per second takes."""
    total, left = 0.0, 1.0
    for owner, need in sorted(needs.items(), key=lambda known: known[1]):
        here = min(paces[owner], left / need if need else inf)
        total, left = total + here, max(0.0, left - here * need)
    return total / (1.0 - left) if left < 1.0 else inf


def _units(runtime: Runtime) -> dict[int, int]:
    """By set of trainers that wait for each other, the first set of those on the same hosts: they
    have all of these alike."""
    found = {name: name for name in runtime.plan.sets}
    hosts: dict[Resource, set[int]] = defaultdict(set)
    for loop in runtime.training:
        hosts[loop.process.cores].add(runtime.plan.sets[loop.loop.trainer])
    for together in hosts.values():
        here = {found[name] for name in together}
        found |= {name: min(here) for name, unit in found.items() if unit in here}
    return found


def _owned(runtime: Runtime, sets: Mapping[str, int]) -> Iterator[tuple[Resource, int]]:
    """Resources that the loops of one set of trainers use, and whose they are."""
    owners: dict[Resource, set[int]] = {}
    of = {loop.process.name: sets[loop.name] for loop in runtime.training}
    for process in runtime.machines.processes.values():
        owner = of.get(process.name, _NOBODY)
        ends = (process.cores, process.send, process.receive, process.interpreter, *process.near)
        for resource in ends:
            owners.setdefault(resource, set()).add(owner)
    for resource, those in owners.items():
        if len(those) == 1 and _NOBODY not in those:
            yield resource, min(those)


def _parts(
    runtime: Runtime, sets: Mapping[str, int]
) -> Iterator[tuple[Resource, Mapping[int, float]]]:
    """Which part of what went through each rack's links each set's messages were."""
    assert isinstance(runtime.engine.fluid, Unshared)
    of = {loop.process.name: sets[loop.name] for loop in runtime.training}
    for rack in runtime.machines.there.racks.values():
        for link in rack:
            used: dict[int, float] = defaultdict(float)
            for process, units in runtime.engine.fluid.by_whom.get(link, {}).items():
                used[of[process]] += units
            if whole := sum(used.values()):
                yield link, {owner: used[owner] / whole for owner in set(sets.values())}
