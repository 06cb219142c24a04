"""What would lift every bound of a design above a target: the smallest of some changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, combinations, islice
from math import ceil
from typing import NamedTuple

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment
from recsim_train.designs import looking
from recsim_train.designs.answer import Change
from recsim_train.designs.searching import Design
from recsim_train.designs.space import with_batches
from recsim_train.placement.build import build_plan
from recsim_train.session.caller import NOBODY, Caller
from recsim_train.session.pool import Finished, Task, each
from recsim_train.sim.why.elasticity import scaled

_TIMES = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""How many times as much of something is tried, the least first."""
_SPLITS = (2, 4, 8)
"""The same of processes among which a host's cores are divided."""
_MOST_PAIRS = 2
"""Pairs of changes that are named, where no single one is enough."""
_SECONDS = 10.0
"""Of CPU for each bound. Where one takes more no pairs are tried: an answer waits for it."""


class _State(NamedTuple):
    """What is changed."""

    experiment: Experiment
    cluster: Cluster


class _Step(NamedTuple):
    """One change of a kind, by so much."""

    says: Callable[[_State], str]
    """In words, of what it makes."""
    make: Callable[[_State], _State]


_Choice = tuple[_Step, ...]
"""Changes that are made together."""


def changes(
    design: Design,
    target: float,
    *,
    processes: int = 1,
    caller: Caller = NOBODY,
    seconds: float = _SECONDS,
) -> tuple[tuple[Change, ...], bool]:
    """Of each kind the smallest change that is enough by the bounds; where none is by itself, the
    smallest of two kinds together. And whether all were tried. ``seconds``: of CPU, for each."""
    job = design.candidate.job
    start = _State(job.plan.experiment, job.profile)
    kinds = [steps for steps in (_wire(start), _faster(), _split(start), _hosts(start)) if steps]
    bounds = _Bounds(design, start, processes, caller, seconds)

    def smallest(choices: Sequence[_Choice]) -> _Choice | None:
        bounds.ask(choices)
        return next((choice for choice in choices if bounds.of(choice) >= target), None)

    bounds.ask([(step,) for steps in kinds for step in steps])
    enough = [choice for steps in kinds if (choice := smallest([(step,) for step in steps]))]
    if not enough and bounds.all_tried:
        # where several are alike the most: it may do more beside another change
        most = [max(reversed(steps), key=lambda step: bounds.of((step,))) for steps in kinds]
        bounds.ask(list(combinations(most, 2)))
        for (one, first), (other, second) in combinations(zip(kinds, most, strict=True), 2):
            if len(enough) == _MOST_PAIRS or bounds.of((first, second)) < target:
                continue
            if (less := smallest([(step, second) for step in one])) is not None:
                least = smallest([(less[0], step) for step in other])
                enough.append(least or less)
    return tuple(Change(bounds.says(c), bounds.of(c)) for c in enough), bounds.all_tried


class _Bounds:
    """Bounds of a design after changes; each is asked once, as long as there is time."""

    def __init__(
        self, design: Design, start: _State, processes: int, caller: Caller, seconds: float
    ) -> None:
        self._origin, self._start = design.candidate.origin, start
        self._processes, self._caller = processes, caller
        self._seconds = seconds
        self._known: dict[_Choice, float] = {}
        self.all_tried = True
        """Whether none took too long or was interrupted."""

    def of(self, choice: _Choice) -> float:
        """Examples per second; 0 where there can be no such job, or where it is not known."""
        return self._known.get(choice, 0.0)

    def says(self, choice: _Choice) -> str:
        """In words."""
        states = accumulate(choice, lambda state, step: step.make(state), initial=self._start)
        made = zip(choice, islice(states, 1, None), strict=True)
        return " and ".join(step.says(state) for step, state in made)

    def ask(self, choices: Sequence[_Choice]) -> None:
        """Those that were not asked yet."""
        new = [choice for choice in choices if choice not in self._known]
        tasks = [task for number, choice in enumerate(new) if (task := self._task(number, choice))]
        try:
            for number, row in self._looks(tasks):
                self._known[new[number]] = looking.look_of(row).bound
                self.all_tried &= not row.get("too_long")
        except KeyboardInterrupt:  # the answer stands without them
            self._seconds = 0.0
        self.all_tried &= all(choice in self._known for choice in new)

    def _looks(self, tasks: Sequence[Task]) -> Iterator[Finished]:
        if not tasks or not self._seconds:
            return
        work, limit = looking.look_in_racks, self._seconds
        with (
            self._caller.progress(f"bounds of {len(tasks)} changes") as meter,
            contextlib.closing(
                each(work, tasks, self._processes, meter=meter, limit=limit)
            ) as rows,
        ):
            for done, row in enumerate(rows, start=1):
                yield row
                meter(done, len(tasks))

    def _task(self, number: int, choice: _Choice) -> Task | None:
        """None: there can be no such plan."""
        state = reduce(lambda state, step: step.make(state), choice, self._start)
        try:
            experiment = with_batches(state.experiment, self._origin)
            return Task(number, build_plan(experiment, self._origin.choice), state.cluster)
        except UserError:
            self._known[choice] = 0.0
            return None


def _wire(start: _State) -> list[_Step]:
    if start.experiment.execution.wire != "full":
        return []

    def make(state: _State) -> _State:
        return state._replace(experiment=state.experiment.having("execution", wire="bfloat16"))

    return [_Step(lambda _: "numbers that travel as bfloat16 (execution.wire)", make)]


def _faster() -> list[_Step]:
    def step(times: float) -> _Step:
        def make(state: _State) -> _State:
            known = state.cluster
            # one connection's limit is none of the card
            faster = scaled(known, {"nic": times, "uplink": times})
            return state._replace(cluster=faster.model_copy(update={"network": known.network}))

        return _Step(lambda _: f"{times:g} times as fast network cards and uplinks", make)

    return [step(times) for times in _TIMES]


def _split(start: _State) -> list[_Step]:
    """More processes on each host of trainers, of fewer threads: each has an interpreter lock."""
    threads = start.experiment.training.threads

    def step(times: int) -> _Step:
        def make(state: _State) -> _State:
            spec, cluster = state.experiment, state.cluster
            each = cluster.together("trainer") * times
            more = spec.having("roles", trainers=spec.roles.trainers * times)
            together = {**(cluster.per_host or {}), "trainer": each}
            return _State(
                more.having("training", threads=threads // times),
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
            made = state._replace(experiment=state.experiment.having("roles", **counts))
            return made._replace(cluster=_with_room(made.cluster, _count(made), times))

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


def _with_room(cluster: Cluster, hosts: int, times: float) -> Cluster:
    """As many hosts as that; in racks beyond those there are, each as large as the largest, and of
    each type so many times as many."""
    topology, mixed = cluster.topology, dict(cluster.mixed or {})
    for role, entries in mixed.items():
        counts = [entry.count and ceil(entry.count * times) for entry in entries]
        pairs = zip(entries, counts, strict=True)
        mixed[role] = tuple(entry.model_copy(update={"count": n}) for entry, n in pairs)
    if topology is not None and (rooms := topology.rooms) is not None:
        more = max(0, -(-(hosts - sum(rooms)) // max(rooms)))
        update = {"racks": len(rooms) + more, "hosts_per_rack": (*rooms, *[max(rooms)] * more)}
        topology = topology.model_copy(update=update)
    return cluster.model_copy(
        update={"topology": topology, "most_hosts": None, "mixed": mixed or None}
    )
