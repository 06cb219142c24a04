"""What a prediction's throughput is limited by: its resources' bounds, which of them binds, and the
critical path of one iteration, effect by effect, with what hides beside it; and what answers to
"what if" can be: between nothing and what the bounds leave.

Where trainers do not wait for each other, what one of them lacks leaves others free. If all
had to do as many steps, a rack's uplink that half of the trainers need would bound the other half
as well, and the slowest host would bound all. Of free ones each does what its own host and its own
loops allow, and of a link that they share most is done where an example needs least of it: a
fractional knapsack (Dantzig 1957), which no division of the link among them is above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.placement.plan import SERVERS, Plan
from recsim_train.sim.fluid.resources import Resource, Unshared
from recsim_train.sim.records import PARTS, merged
from recsim_train.sim.runtime import Runtime
from recsim_train.sim.why.usage import Snapshot
from recsim_train.strategy.effects import COLLECTIVE, LOCAL, NextRound, Start, Wait
from recsim_train.trace.binding import Binding, class_of
from recsim_train.trace.facts import CriticalPath
from recsim_train.trace.record import Iteration, Outcome, Total, TotalKey, loop_of

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


SATURATED = 0.9
"""A resource that is busy for this share of the time binds."""
DOMINANT = 0.6
"""Share of an iteration from which one effect is named as what its length comes from; below, the
largest part of all effects together is."""
RATES = ("cores", "nic", "uplink")
"""Inputs of which more is faster; all others are seconds, of which more is slower."""
_LOCAL = {effect.kind for effect in LOCAL}
_COLLECTIVES = {effect.kind for effect in COLLECTIVE} | {NextRound.kind}


def iterations_within(iterations: Sequence[Iteration], start: float, end: float) -> float:
    """Iterations done between two times; one that lies partly inside counts for that part."""
    return sum(_inside(i, start, end) for i in iterations)


def _inside(i: Iteration, start: float, end: float) -> float:
    """Which share of an iteration lies between two times."""
    if i.end > i.start:
        return max(0.0, min(i.end, end) - max(i.start, start)) / (i.end - i.start)
    return float(start <= i.start <= end)


def nic_bytes(runtime: Runtime, iterations: Sequence[Iteration]) -> float | None:
    """See `recsim_train.trace.facts.Facts.nic_bytes`; ``iterations``: of all loops."""
    done = iterations_within(iterations, 0.0, runtime.engine.now)
    if runtime.machines.cluster.colocate or not done:
        return None
    fluid = runtime.engine.fluid
    standing = {p.send: p.standing for p in runtime.machines.processes.values()}
    sent = sum(
        units * standing[resource]
        for resource, units in zip(fluid.resources, fluid.used(), strict=True)
        if resource in standing
    )
    return sent * FRAME / SEGMENT / done * len(runtime.plan.training)


def _done(runtime: Runtime, start: float, end: float) -> dict[str, tuple[float, float]]:
    """By training loop: what it did between two times, and the seconds that this takes at least
    (`recsim_train.sim.records.Account.least`)."""
    done = {loop.name: (0.0, 0.0) for loop in runtime.training}
    least = {loop.name: loop.account.least for loop in runtime.training}
    for i in runtime.records.iterations:
        if i.iteration in least[i.loop]:
            share, (count, seconds) = _inside(i, start, end), done[i.loop]
            done[i.loop] = count + share, seconds + share * least[i.loop][i.iteration]
    return done


def _loops_bound(runtime: Runtime, start: float, end: float) -> float | None:
    """Iterations per second of all training loops together, if each took its least time in all
    that it did between two times.

    An iteration lasts at least so long, with the ids and the luck that this run had, so that no
    loop does more. None where some loop's iterations take no time at all, and where hosts or links
    change meanwhile: what was begun on a slow one may end on a fast one.
    """
    done = {} if runtime.machines.there.changing else _done(runtime, start, end)
    if not done or any(seconds <= 0.0 for _, seconds in done.values()):
        return None
    return sum(
        runtime.folding.standing(loop.loop.trainer) * done[loop.name][0] / done[loop.name][1]
        for loop in runtime.training
    )


def add_bounds(
    outcome: Outcome,
    runtime: Runtime,
    iterations: Sequence[Iteration],
    used: Sequence[float],
    start: float,
    end: float,
) -> None:
    """Add what limits a run, of the counted window between two times.

    ``iterations``: of all loops, also those beyond the window; ``used``: of each resource in it.
    """
    plan, totals, facts = runtime.plan, outcome.totals, outcome.facts
    facts.critical_path = _critical_path(runtime, outcome)
    aside = _aside(runtime, totals)
    for resource, units in zip(runtime.engine.fluid.resources, used, strict=True):
        capacity = resource.mean_capacity(start, end)
        busy = units / (capacity * (end - start)) if end > start and capacity > 0 else 0.0
        outcome.utilisation[resource.name] = min(1.0, busy)
    facts.bounds.update(_allowed(runtime, aside, iterations, used, start, end))
    predicted = outcome.speed.examples_per_second if outcome.speed else None
    outcome.bound_eps = min(facts.bounds.values(), default=predicted)
    waited = {r: b for r, b in outcome.utilisation.items() if r.partition(".")[0] not in aside}
    busiest, busy = max(waited.items(), key=lambda known: known[1])
    serial = _serial(plan, totals, facts.critical_path, runtime.machines.latency)
    what, share = (busiest.partition(".")[2], None) if busy >= SATURATED else serial
    others_busier = max(outcome.utilisation.values()) > busy
    outcome.binding = Binding(what, busiest, busy, share, others_busier)


def least_bounds(
    runtime: Runtime,
    totals: dict[TotalKey, Total],
    iterations: Sequence[Iteration],
    closings: Sequence[Snapshot],
    times: float,
) -> dict[str, float]:
    """What each resource allows, by the step that asks least of it, of those between ``closings``:
    of what is done every k-th step they may have more than their share. ``times``: as many loops
    are there as went."""
    aside, plan = _aside(runtime, totals), runtime.plan
    steps = []
    for (start, before), (end, after) in pairwise(closings):
        used = [last - first for first, last in zip(before, after, strict=True)]
        allowed = _allowed(runtime, aside, iterations, used, start, end)
        if "loops" in allowed:
            allowed["loops"] *= times
        if plan.apart > 1 and not plan.trainers_serve:
            allowed = at_own_pace(runtime, allowed, _done(runtime, start, end), times)
        steps.append(allowed)
    always = set.intersection(*map(set, steps))
    return {name: max(step[name] for step in steps) for name in steps[0] if name in always}


def _allowed(
    runtime: Runtime,
    aside: set[str],
    iterations: Sequence[Iteration],
    used: Sequence[float],
    start: float,
    end: float,
) -> dict[str, float]:
    """Examples per second that each resource, but those of ``aside``, and the loops allow, as all
    of them were used between two times."""
    batch = runtime.plan.experiment.training.batch_size
    examples = iterations_within(iterations, start, end) * batch
    allowed = {
        resource.name: resource.mean_capacity(start, end) * examples / units
        for resource, units in zip(runtime.engine.fluid.resources, used, strict=True)
        if units > 0 and resource.name.partition(".")[0] not in aside
    }
    if (loops := _loops_bound(runtime, start, end)) is not None:
        allowed["loops"] = loops * batch
    return allowed


def _aside(runtime: Runtime, totals: dict[TotalKey, Total]) -> set[str]:
    """Processes that serve background loops only, and hosts of nothing else: those take what they
    get, and training does not wait for them, however busy such a server is."""
    plan = runtime.plan
    background = {loop.name for loop in plan.background}
    clients: dict[str, set[str]] = {}
    for key in totals:
        if key.effect.startswith("serve_"):
            clients.setdefault(key.instance, set()).add(key.loop)
    servers = {i.name for i in plan.instances if i.role != "trainer"}
    found = {name for name, asking in clients.items() if name in servers and asking <= background}
    hosts = runtime.machines.there.hosts
    return found | {h.name for h in hosts if all(i.name in found for i in h.instances)}


def _serial(
    plan: Plan,
    totals: dict[TotalKey, Total],
    path: CriticalPath | None,
    latency: float,
) -> tuple[str, float | None]:
    """What the length of a loop's own iteration mostly comes from, and that share of it."""
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
    if whole <= 0.0:
        return "unknown", None
    for effect, what in ("compute", "own_compute"), ("next_batch", "readers"):
        share = spent.get(effect, 0.0) / whole
        if share >= DOMINANT:
            return what, share
    effects = path.effects.values() if path else ()
    parts = {part: sum(effect[part] for effect in effects) for part in PARTS}
    known = sum(parts.values())
    if known <= 0.0:
        return "unknown", None
    largest = max(parts, key=parts.__getitem__)
    share = parts[largest] / known
    if largest == "transfer":
        members = max((len(group.members) for group in plan.groups), default=1)
        messages = latency * (2 * requests + 4 * (members - 1) * steps)
        if messages >= 0.5 * share * whole:
            return "latency", share
    return largest, share


_NO_TALK = {effect.kind for effect in LOCAL} | {NextRound.kind, Start.kind}
"""Effects of a trainer under whose names nothing moves."""
_OF_STARTED = (Start.kind, Wait.kind)
"""What of a started request is not hidden."""


def _critical_path(runtime: Runtime, outcome: Outcome) -> CriticalPath | None:
    """Seconds of a mean iteration of a training loop; None where none was counted.

    The parts of an effect (`recsim_train.sim.records`) add up to its exact time, shared out as the
    loops' accounts say. What is hidden is communication of loops beside the training loops, and of
    requests that these have started, for the time in which they neither start it nor wait, per
    iteration of one of these.
    """
    plan, end = runtime.plan, runtime.engine.now
    warmup = plan.experiment.training.warmup_steps
    counted = [i for i in outcome.iterations if i.iteration >= warmup]
    if not counted:
        return None
    done = len(counted)
    training = {loop.name for loop in plan.training}
    background = {loop.name for loop in plan.background}
    exact: dict[str, float] = {}
    hidden: dict[str, float] = {}
    mean = sum(i.end - i.start for i in counted) / done
    for key, total in outcome.totals.items():
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
    accounts = merged(loop.account for loop in runtime.training)
    found = {
        effect: {part: seconds * share / known for part, share in zip(PARTS, split, strict=True)}
        for effect, seconds in sorted(exact.items())
        if (known := sum(split := accounts.get(effect, []))) > 0.0
    }
    rest = {e: max(0.0, s) for e, s in sorted(hidden.items())}
    return CriticalPath(found, rest, mean)


def possible(
    changes: Mapping[str, float],
    step: float,
    eps: float,
    bounds: Mapping[str, float],
    raised: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Relative changes of a prediction of ``eps`` examples per second, each cut to what can be.

    The answers of `recsim_train.evaluate.elasticity` are means over short runs, and scatter. But
    more of a resource cannot slow a job, what is dearer cannot speed it up, neither can change it
    by more than if all that it consists of were as much faster or dearer, and nothing can be faster
    than the bounds, which a resource raises where there is more of it. What lies beyond is scatter.

    ``changes``: by input, of which there is ``step`` more, or by servers, of which there is one
    more; ``bounds``: of the prediction, examples per second by resource; ``raised``: by each rate
    or servers, how many times as high each bound is then.
    """
    found = {}
    for name, change in changes.items():
        if name in RATES:
            least, most = 0.0, min(step, _left(eps, bounds, raised.get(name, {})))
        elif name.removesuffix("s") in SERVERS:
            least, most = -1.0, _left(eps, bounds, raised.get(name, {}))
        else:
            least, most = 1.0 / (1.0 + step) - 1.0, 0.0
        found[name] = min(max(least, change), most)
    return found


def _left(eps: float, bounds: Mapping[str, float], raised: Mapping[str, float]) -> float:
    """By how much ``eps`` may grow, at most; a resource of which nothing is known does not bind."""
    known = [bound * raised[name] for name, bound in bounds.items() if name in raised]
    return max(0.0, min(known, default=float("inf")) / eps - 1.0)
