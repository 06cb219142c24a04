"""What would lift every bound of a design above a target: the smallest of some changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, combinations, islice
from math import ceil
from typing import Any, NamedTuple

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.units import Times
from recsim_train.designs.answer import Change, Changes
from recsim_train.designs.searching import Design
from recsim_train.designs.space import with_batches
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import BOUND_IN_RACKS
from recsim_train.report import text
from recsim_train.results.row import Row
from recsim_train.session.job import NOBODY, Caller

_TIMES = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""How many times as much of something is tried, the least first."""
_SPLITS = (2, 4, 8)
"""The same of processes among which a host's cores are divided."""
_MOST_PAIRS = 2
"""Pairs of changes that are named, where no single one is enough."""


class _Step(NamedTuple):
    """One change of a kind, by so much."""

    says: Callable[[Case], str]
    """In words, of the case that it makes."""
    overrides: Callable[[Case], Mapping[str, Any]]

    def make(self, case: Case) -> Case:
        """The case after it."""
        return case.with_(self.overrides(case))


_Choice = tuple[_Step, ...]
"""Changes that are made together."""


def changes(
    design: Design,
    target: float,
    *,
    processes: int = 1,
    caller: Caller = NOBODY,
    seconds: float | None = BOUND_IN_RACKS.seconds,
) -> Changes:
    """Of each kind the smallest change that is enough by the bounds; where none is by itself, the
    smallest of two kinds together. ``seconds``: of CPU, for each; where one takes more no pairs are
    tried, since an answer waits for them."""
    job = design.candidate.job
    start = job.case
    more = _hosts(start)
    kinds = [steps for steps in (_wire(start), _faster(), _split(start), more) if steps]
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
    found = tuple(Change(bounds.says(c), bounds.of(c)) for c in enough)
    return Changes(found, bounds.all_tried, _slower(design, start, bounds, more))


def _slower(design: Design, start: Case, bounds: _Bounds, more: Sequence[_Step]) -> str:
    """Why more hosts are no help; empty: they are, or it is not known."""
    known = {step: bound for step in more if (bound := bounds.of((step,)))}
    if not known or max(known.values()) >= design.bound:
        return ""
    step, bound = max(known.items(), key=lambda item: item[1])
    then = step.make(start)
    said = f"more hosts alone allow less: {step.says(then)}, at most {text.rate(bound)} examples/s"
    parts, now = (
        sum(len(shard.slices) for shard in case.plan.embedding.shards) if case.plan.embedding else 0
        for case in (then, start)
    )
    if parts <= now:
        return said
    return (
        f"{said}; large tables are split over all embedding servers, so that an example's vectors "
        f"come from {parts:,} parts of tables instead of {now:,}: more bytes "
        "(placement.split_rows_above keeps tables whole)"
    )


class _Bounds:
    """Bounds of a design after changes; each is asked once, as long as there is time."""

    def __init__(
        self, design: Design, start: Case, processes: int, caller: Caller, seconds: float | None
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
        cases = accumulate(choice, lambda case, step: step.make(case), initial=self._start)
        made = zip(choice, islice(cases, 1, None), strict=True)
        return " and ".join(step.says(case) for step, case in made)

    def ask(self, choices: Sequence[_Choice]) -> None:
        """Those that were not asked yet."""
        new = [choice for choice in choices if choice not in self._known]
        made = {choice: case for choice in new if (case := self._case(choice))}
        asked = list(made)
        try:
            for place, row in self._bounds(list(made.values())):
                self._known[asked[place]] = next(iter((row.bounds or {}).values()), 0.0)
                self.all_tried &= not row.too_long
        except KeyboardInterrupt:  # the answer stands without them
            self._seconds = 0.0
        self.all_tried &= all(choice in self._known for choice in new)

    def _bounds(self, cases: Sequence[Case]) -> Iterator[tuple[int, Row]]:
        if not cases or not self._seconds:
            return
        many, level, limit = self._processes, BOUND_IN_RACKS, self._seconds
        with (
            self._caller.progress(f"bounds of {len(cases)} changes") as meter,
            contextlib.closing(
                evaluate(cases, level, processes=many, meter=meter, seconds=limit)
            ) as rows,
        ):
            for done, row in enumerate(rows, start=1):
                yield row
                meter(done, len(cases))

    def _case(self, choice: _Choice) -> Case | None:
        """None: there can be none."""
        case = reduce(lambda case, step: step.make(case), choice, self._start)
        try:
            made = case.with_(with_batches(case, self._origin))
            _ = made.plan  # or it says why there is none
        except UserError:
            self._known[choice] = 0.0
            return None
        return made


def _wire(start: Case) -> list[_Step]:
    if start.experiment.execution.wire != "full":
        return []
    said = "numbers that travel as bfloat16 (execution.wire)"
    return [_Step(lambda _: said, lambda _: {"execution.wire": "bfloat16"})]


def _faster() -> list[_Step]:
    def step(much: float) -> _Step:
        # one connection's limit is none of the card
        keys = ("hosts.*.nic", "mixed.*.*.nic", "topology.uplink")
        faster = {f"cluster.{key}": Times(much) for key in keys}
        said = f"{much:g} times as fast network cards and uplinks"
        return _Step(lambda _: said, lambda _: faster)

    return [step(much) for much in _TIMES]


def _split(start: Case) -> list[_Step]:
    """More processes on each host of trainers, of fewer threads: each has an interpreter lock."""
    threads = start.experiment.training.threads

    def step(parts: int) -> _Step:
        def overrides(case: Case) -> dict[str, Any]:
            return {
                "roles.trainers": case.experiment.roles.trainers * parts,
                "training.threads": threads // parts,
                "cluster.per_host.trainer": case.cluster.together("trainer") * parts,
            }

        def says(case: Case) -> str:
            each, left = case.cluster.together("trainer"), case.experiment.training.threads
            return f"{each} trainers of {left} threads on each host (per_host)"

        return _Step(says, overrides)

    return [step(parts) for parts in _SPLITS if threads % parts == 0]


def _hosts(start: Case) -> list[_Step]:
    def step(much: float) -> _Step:
        def overrides(case: Case) -> dict[str, Any]:
            counts = {
                f"roles.{role}s": round(hosts * much) * each
                for role, (hosts, each) in _divided(case).items()
            }
            return {**counts, **_with_room(case.cluster, _count(case.with_(counts)), much)}

        def says(case: Case) -> str:
            return f"{_count(case)} hosts instead of {_count(start)}, divided alike"

        return _Step(says, overrides)

    return [step(much) for much in _TIMES]


def _divided(case: Case) -> dict[str, tuple[int, int]]:
    """By role its hosts, and the processes on each."""
    found = {}
    for roles, count in case.experiment.roles.model_dump().items():
        role = roles.removesuffix("s")
        each = case.cluster.together(role)  # type: ignore[arg-type]
        found[role] = (round(count / each), each)
    return found


def _count(case: Case) -> int:
    return sum(hosts for hosts, _ in _divided(case).values())


def _with_room(cluster: Cluster, hosts: int, much: float) -> dict[str, Any]:
    """As many hosts as that; in racks beyond those there are, each as large as the largest, and of
    each type so many times as many."""
    changes: dict[str, Any] = {"cluster.most_hosts": None}
    for role, entries in (cluster.mixed or {}).items():
        for number, entry in enumerate(entries):
            if entry.count is not None:
                changes[f"cluster.mixed.{role}.{number}.count"] = ceil(entry.count * much)
    if cluster.topology is not None and (rooms := cluster.topology.rooms) is not None:
        more = max(0, -(-(hosts - sum(rooms)) // max(rooms)))
        changes["cluster.topology.racks"] = len(rooms) + more
        changes["cluster.topology.hosts_per_rack"] = (*rooms, *[max(rooms)] * more)
    return changes
