"""What would lift every bound of a design above a target: the smallest of some changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Experiment
from recsim_train.designs.answer import Change
from recsim_train.designs.looking import check_room
from recsim_train.designs.searching import Design
from recsim_train.placement.build import build_plan
from recsim_train.sim.why.beforehand import beforehand

_TIMES = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""How many times as much of something is tried, the least first."""
_SPLITS = (2, 4, 8)
"""The same of processes among which a host's cores are divided."""
_MOST_PAIRS = 2
"""Pairs of changes that are named, where no single one is enough."""


class _State(NamedTuple):
    """What is changed."""

    experiment: Experiment
    cluster: Cluster


class _Step(NamedTuple):
    """One change of a kind, by so much."""

    says: Callable[[_State], str]
    """In words, of what it makes."""
    make: Callable[[_State], _State]


def changes(design: Design, target: float) -> tuple[Change, ...]:
    """Of each kind the smallest change that is enough by the bounds; where none is by itself, the
    smallest of two kinds together."""
    job = design.candidate.job
    start = _State(job.plan.experiment, job.profile)
    kinds = [steps for steps in (_wire(start), _faster(), _split(start), _hosts(start)) if steps]

    def bound(*steps: _Step) -> float:
        state = start
        for step in steps:
            state = step.make(state)
        return _bound(design, state)

    found = []
    for steps in kinds:
        if (change := _smallest(start, [(step,) for step in steps], bound, target)) is not None:
            found.append(change)
    for one, other in combinations(kinds, 2):
        if found and (len(found) == _MOST_PAIRS or found[0].single):
            break
        if bound(one[-1], other[-1]) < target:
            continue
        first = next(step for step in one if bound(step, other[-1]) >= target)
        pairs = [(first, step) for step in other]
        if (change := _smallest(start, pairs, bound, target)) is not None:
            found.append(change)
    return tuple(found)


def _smallest(
    start: _State,
    choices: Sequence[tuple[_Step, ...]],
    bound: Callable[..., float],
    target: float,
) -> Change | None:
    """The first choice that is enough."""
    for steps in choices:
        if (most := bound(*steps)) >= target:
            said, state = [], start
            for step in steps:
                state = step.make(state)
                said.append(step.says(state))
            return Change(" and ".join(said), most, single=len(steps) == 1)
    return None


def _bound(design: Design, state: _State) -> float:
    """0 where there can be no such job."""
    try:
        plan = build_plan(state.experiment, design.candidate.job.plan.strategy)
        check_room(plan, state.cluster)
        return beforehand(plan, state.cluster).bound or 0.0
    except (UserError, RunFailed):
        return 0.0


def _wire(start: _State) -> list[_Step]:
    if start.experiment.execution.wire != "full":
        return []

    def make(state: _State) -> _State:
        execution = state.experiment.execution.model_copy(update={"wire": "bfloat16"})
        changed = state.experiment.model_copy(update={"execution": execution})
        return state._replace(experiment=changed)

    return [_Step(lambda _: "numbers that travel as bfloat16 (execution.wire)", make)]


def _faster() -> list[_Step]:
    def step(times: float) -> _Step:
        def make(state: _State) -> _State:
            hosts: dict[str, Host] = {
                name: host.model_copy(update={"nic": host.nic * times})
                for name, host in state.cluster.hosts.items()
            }
            cluster = _fast_uplinks(state.cluster, times)
            return state._replace(cluster=cluster.model_copy(update={"hosts": hosts}))

        return _Step(lambda _: f"{times:g} times as fast network cards and uplinks", make)

    return [step(times) for times in _TIMES]


def _fast_uplinks(cluster: Cluster, times: float) -> Cluster:
    topology = cluster.topology
    if topology is None or topology.uplink is None:
        return cluster
    faster = topology.model_copy(update={"uplink": topology.uplink * times})
    return cluster.model_copy(update={"topology": faster})


def _split(start: _State) -> list[_Step]:
    """More processes on each host of trainers, of fewer threads: each has an interpreter lock."""
    threads = start.experiment.training.threads

    def step(times: int) -> _Step:
        def make(state: _State) -> _State:
            spec, cluster = state.experiment, state.cluster
            each = cluster.together("trainer") * times
            roles = spec.roles.model_copy(update={"trainers": spec.roles.trainers * times})
            training = spec.training.model_copy(update={"threads": threads // times})
            together = {**(cluster.per_host or {}), "trainer": each}
            return _State(
                spec.model_copy(update={"roles": roles, "training": training}),
                cluster.model_copy(update={"per_host": together}),
            )

        def says(state: _State) -> str:
            each, left = state.cluster.together("trainer"), state.experiment.training.threads
            return f"{each} trainers of {left} threads on each host (per_host)"

        return _Step(says, make)

    return [step(times) for times in _SPLITS if threads % times == 0]


def _hosts(start: _State) -> list[_Step]:
    def step(times: float) -> _Step:
        def make(state: _State) -> _State:
            counts = {
                f"{role}s": round(hosts * times) * each
                for role, (hosts, each) in _divided(state).items()
            }
            roles = state.experiment.roles.model_copy(update=counts)
            made = state._replace(experiment=state.experiment.model_copy(update={"roles": roles}))
            return made._replace(cluster=_with_room(made.cluster, _count(made)))

        def says(state: _State) -> str:
            return f"{_count(state)} hosts instead of {_count(start)}, divided alike"

        return _Step(says, make)

    return [step(times) for times in _TIMES]


def _divided(state: _State) -> dict[str, tuple[int, int]]:
    """By role its hosts, and the processes on each."""
    found = {}
    for roles, count in state.experiment.roles.model_dump().items():
        role = roles.removesuffix("s")
        each = state.cluster.together(role)  # type: ignore[arg-type]
        found[role] = (round(count / each), each)
    return found


def _count(state: _State) -> int:
    return sum(hosts for hosts, _ in _divided(state).values())


def _with_room(cluster: Cluster, hosts: int) -> Cluster:
    """Racks of as many hosts, and as many of them as it takes."""
    topology = cluster.topology
    if topology is None or topology.hosts_per_rack is None:
        return cluster
    racks = max(topology.racks, -(-hosts // topology.hosts_per_rack))
    more = topology.model_copy(update={"racks": racks})
    return cluster.model_copy(update={"topology": more})
