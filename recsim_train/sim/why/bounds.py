"""What a prediction's throughput is limited by: its resources' bounds, which of them binds, and the
critical path of one iteration, effect by effect, with what hides beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_train.placement.plan import Plan
from recsim_train.sim.accounts import PARTS, merged
from recsim_train.sim.fluid.solver import Resource
from recsim_train.sim.folding import Folding
from recsim_train.sim.loop import LoopState
from recsim_train.strategy.effects import COLLECTIVE, LOCAL, NextRound, Start, Wait
from recsim_train.trace.facts import CriticalPath
from recsim_train.trace.record import Iteration, Total, TotalKey, Utilisation, loop_of

SATURATED = 0.9
"""A resource that is busy for this share of the time binds."""
DOMINANT = 0.6
"""Share of an iteration from which one effect is named as what its length comes from; below, the
largest part of all effects together is."""
_PARTS = {
    "compute": "computation in loops and servers",
    "queueing": "queueing for what others use",
    "transfer": "bytes on their way",
    "waiting": "waiting for other loops",
}
_LOCAL = {effect.kind for effect in LOCAL}
_COLLECTIVES = {effect.kind for effect in COLLECTIVE} | {NextRound.kind}


@dataclass(frozen=True, slots=True)
class Window:
    """The counted window: its ends, and of each resource what was there and what was consumed."""

    start: float
    end: float
    used: list[float]
    capacities: list[float]
    """Mean capacity of each resource."""
    iterations: float
    """Iterations of all loops done in it, parts included."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a run."""

    utilisation: list[Utilisation]
    bottleneck: str
    bound_eps: float
    bounds: dict[str, float]
    """Examples per second that each resource in use can sustain."""
    busiest: str
    """The resource that is used most, of those that training waits for."""


def iterations_within(iterations: Sequence[Iteration], start: float, end: float) -> float:
    """Iterations done between two times; one that lies partly inside counts for that part."""
    return sum(_inside(i, start, end) for i in iterations)


def _inside(i: Iteration, start: float, end: float) -> float:
    """Which share of an iteration lies between two times."""
    if i.end > i.start:
        return max(0.0, min(i.end, end) - max(i.start, start)) / (i.end - i.start)
    return 1.0 if start <= i.start <= end else 0.0


def loops_bound(
    loops: Sequence[LoopState],
    folding: Folding,
    iterations: Sequence[Iteration],
    start: float,
    end: float,
) -> float | None:
    """Iterations per second of all training loops together, if each took its least time
    (`recsim_train.sim.accounts.Account.least`) in all that it did between two times.

    An iteration lasts at least so long, with the ids and the luck that this run had, so that no
    loop does more. None where some loop's iterations take no time at all.
    """
    done: dict[str, list[float]] = {loop.name: [0.0, 0.0] for loop in loops}
    least = {loop.name: loop.account.least for loop in loops}
    for i in iterations:
        if i.iteration in least[i.loop]:
            share = _inside(i, start, end)
            done[i.loop][0] += share
            done[i.loop][1] += share * least[i.loop][i.iteration]
    if any(seconds <= 0.0 for _, seconds in done.values()):
        return None
    return sum(
        folding.standing(loop.loop.trainer) * done[loop.name][0] / done[loop.name][1]
        for loop in loops
    )


def bounds_of(
    plan: Plan,
    resources: Sequence[Resource],
    window: Window,
    totals: dict[TotalKey, Total],
    *,
    predicted: float,
    loops: float | None,
    path: CriticalPath | None,
    latency: float,
) -> Bounds:
    """What limits a run.

    ``predicted``: its examples per second; ``loops``: those that the loops of this very run would
    do if nothing were shared and nobody late (`loops_bound`; None: no limit); ``path``: see
    `recsim_train.sim.why.bounds.critical_path`; ``latency``: of the network, in seconds.
    """
    seconds = window.end - window.start
    examples = window.iterations * plan.experiment.training.batch_size
    utilisation, bounds = [], {}
    aside = _aside(plan, totals)
    for resource, used, capacity in zip(resources, window.used, window.capacities, strict=True):
        busy = used / (capacity * seconds) if seconds > 0 and capacity > 0 else 0.0
        utilisation.append(Utilisation(resource.name, min(1.0, busy)))
        if used > 0 and resource.name.partition(".")[0] not in aside:
            bounds[resource.name] = capacity * examples / used
    if loops is not None:
        bounds["loops"] = loops
    bound = min(bounds.values(), default=predicted)
    binding = [u for u in utilisation if u.resource.partition(".")[0] not in aside]
    busiest = max(binding, key=lambda u: u.busy)
    if busiest.busy >= SATURATED:
        phrase = name_of(busiest.resource)
    else:
        most = f"the busiest, {name_of(busiest.resource)}, is {busiest.busy:.0%} busy"
        if any(u.busy > busiest.busy for u in utilisation):
            most = f"of those that training waits for, {most}"
        phrase = _serial(plan, totals, path, latency, most)
    return Bounds(utilisation, phrase, bound, bounds, busiest.resource)


def _aside(plan: Plan, totals: dict[TotalKey, Total]) -> set[str]:
    """Processes that serve background loops only: those take what they get, and training does not
    wait for them, however busy such a server is."""
    background = {loop.name for loop in plan.background}
    clients: dict[str, set[str]] = {}
    for key in totals:
        if key.effect.startswith("serve_"):
            clients.setdefault(key.instance, set()).add(key.loop)
    servers = {i.name for i in plan.instances if i.role != "trainer"}
    return {name for name, asking in clients.items() if name in servers and asking <= background}


def name_of(resource: str) -> str:
    """A resource in words."""
    owner, _, part = resource.partition(".")
    words = {
        "cores": f"cores of {'the machine' if owner == 'machine' else owner}",
        "interpreter": f"interpreter lock of {owner}",
        "nic.tx": f"NIC send of {owner}",
        "nic.rx": f"NIC receive of {owner}",
        "thread": f"parsing thread of {owner}",
        "up": f"uplink out of {owner}",
        "down": f"uplink into {owner}",
    }
    return words[part]


def _serial(
    plan: Plan,
    totals: dict[TotalKey, Total],
    path: CriticalPath | None,
    latency: float,
    most: str,
) -> str:
    """No resource is saturated: what the length of a loop's own iteration mostly comes from."""
    feeding = {loop.name for loop in plan.training}
    spent: dict[str, float] = {}
    requests = steps = 0
    for key, total in totals.items():
        if f"{key.instance}.{key.loop}" in feeding:
            spent[key.effect] = spent.get(key.effect, 0.0) + total.seconds
            if key.effect in _COLLECTIVES:
                steps += total.count
            elif key.effect not in _LOCAL:
                requests += total.count
    whole = sum(spent.values())
    said = f"no resource is saturated; {most}"
    if whole <= 0.0:
        return f"nothing known: {said}"
    for effect, what in (
        ("compute", "computation in each training loop"),
        ("next_batch", "waiting for readers"),
    ):
        share = spent.get(effect, 0.0) / whole
        if share >= DOMINANT:
            return f"{what} ({share:.0%} of an iteration): {said}"
    parts: dict[str, float] = {}
    for of_effect in path.effects.values() if path else ():
        for part, seconds in of_effect.items():
            parts[part] = parts.get(part, 0.0) + seconds
    known = sum(parts.values())
    if known <= 0.0:
        return f"nothing known: {said}"
    largest = max(parts, key=parts.__getitem__)
    share = parts[largest] / known
    what = _PARTS[largest]
    if largest == "transfer":
        members = max((len(group.members) for group in plan.groups), default=1)
        alone = latency * (2 * requests + 4 * (members - 1) * steps)
        if alone >= 0.5 * share * whole:
            what = "latency"
    return f"{what} ({share:.0%} of an iteration): {said}"


_NO_TALK = {effect.kind for effect in LOCAL} | {NextRound.kind, Start.kind}
"""Effects of a trainer under whose names nothing moves."""
_OF_STARTED = (Start.kind, Wait.kind)
"""What of a started request is not hidden."""


def critical_path(
    plan: Plan,
    loops: Sequence[LoopState],
    totals: dict[TotalKey, Total],
    iterations: Sequence[Iteration],
    warmup: int,
    end: float,
) -> CriticalPath | None:
    """Seconds of a mean iteration of a training loop; None where none was counted.

    The parts of an effect (`recsim_train.sim.accounts`) add up to its exact time, shared out as the
    loops' accounts say. What is hidden is communication of loops beside the training loops, and of
    requests that these have started, for the time in which they neither start it nor wait, per
    iteration of one of these; ``end``: seconds of the run.
    """
    done = sum(i.iteration >= warmup for i in iterations)
    if not done:
        return None
    training = {loop.name for loop in plan.training}
    background = {loop.name for loop in plan.background}
    exact: dict[str, float] = {}
    hidden: dict[str, float] = {}
    mean = sum(i.end - i.start for i in iterations if i.iteration >= warmup) / done
    for key, total in totals.items():
        lane, loop = f"{key.instance}.{key.loop}", f"{key.instance}.{loop_of(key.loop)}"
        if lane in training:
            exact[key.effect] = exact.get(key.effect, 0.0) + total.seconds / done
            if key.effect in _OF_STARTED:
                hidden[key.name] = hidden.get(key.name, 0.0) - total.seconds / done
        elif key.instance.startswith("trainer") and key.effect not in _NO_TALK:
            if loop in background:  # its rounds cover the whole run
                beside = total.seconds / end * mean / len(training)
            elif key.effect.startswith("serve_"):
                continue
            else:
                beside = total.seconds / done
            hidden[key.effect] = hidden.get(key.effect, 0.0) + beside
    accounts = merged(loop.account for loop in loops)
    found = {}
    for effect, seconds in sorted(exact.items()):
        split = accounts.get(effect)
        known = 0.0 if split is None else sum(split)
        if split is None or known <= 0.0:
            continue
        found[effect] = {
            part: seconds * share / known for part, share in zip(PARTS, split, strict=True)
        }
    rest = {e: max(0.0, s) for e, s in sorted(hidden.items())}
    return CriticalPath(found, rest, mean)
