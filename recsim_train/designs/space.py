"""The designs that a recommendation chooses among: strategies, and how a number of hosts is split
into those of trainers and those of servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from math import ceil
from typing import Any

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import NoHostError, UserError
from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.config.load import Loaded
from recsim_train.config.sweep import Search, written
from recsim_train.config.topology import ROLE_NAMES, RoleName
from recsim_train.evaluate.case import Case
from recsim_train.placement.hosts import host_types, hosts_of, hosts_there, kinds_of
from recsim_train.session.job import Job
from recsim_train.sim.cluster.hosts import rented
from recsim_train.strategy.base import DenseService, EmbeddingService
from recsim_train.strategy.registry import create, strategies
from recsim_train.trace.facts import Rented

_SHARES = (1.0, 0.5, 0.25, 0.125)
"""Of the most hosts, where the search does not say how many; and one. What is left open is coarse
here, and refined about the best designs (`neighbours`)."""
_SERVERS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Hosts of embedding servers, up to half of all."""
_DENSE = (0, 1, 2)
"""Hosts of dense servers, up to a quarter of all."""
_TRAINERS = (1, 4)
"""Processes of a host, which divide its cores among them."""
_SERVING = 4
"""The same of embedding servers: each has an interpreter lock of its own."""
_LAST: tuple[tuple[RoleName, ...], ...] = ((), ("trainer",), ROLE_NAMES[1:], ROLE_NAMES)
"""Who takes the last of several types of hosts: servers, which take theirs first, or trainers."""
MOST_DESIGNS = 20_000
"""More are taken for a mistake."""
WIRE = "execution.wire"
"""By which what travels may be rounded: not the same work."""
OFF = 0.02
"""By how much a step of a design may have other examples than is wanted, relative."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a part of the designs begins from: a strategy with further settings, on a profile."""

    loaded: Loaded
    choice: StrategyChoice
    cluster: Cluster
    settings: Mapping[str, Any]
    """The further settings, by name."""
    examples_per_step: int
    """That one step of the whole job is to have."""

    @property
    def search(self) -> Search:
        """What is chosen among."""
        return self.loaded.search


@dataclass(frozen=True, slots=True)
class Split:
    """How hosts are used."""

    trainers: int
    """Hosts."""
    embedding: int
    dense: int
    trainers_each: int
    """Processes on each of them."""
    embedding_each: int
    threads: int
    last: tuple[RoleName, ...] = ()
    """The profile's ``mixed_from_last``."""

    @property
    def hosts(self) -> int:
        """Of all roles, readers not counted."""
        return self.trainers + self.embedding + self.dense


@dataclass(frozen=True, slots=True)
class Candidate:
    """One design."""

    job: Job
    origin: Origin
    split: Split
    hosts: int
    rented: Rented | None
    """What its hosts cost; None: not all of them have a price."""

    @property
    def per_hour(self) -> float | None:
        """Of all hosts together."""
        return None if self.rented is None else self.rented.per_hour

    @property
    def examples_per_step(self) -> int:
        """That one step of the whole job has."""
        return len(self.job.plan.training) * self.job.plan.experiment.training.batch_size

    @property
    def rounded(self) -> bool:
        """Whether its numbers travel rounded though the experiment does not say so."""
        return WIRE in self.origin.settings and WIRE not in self.origin.search.settings


class OtherStepError(UserError):
    """No whole batch of each loop makes a step of as many examples as is wanted."""


@dataclass(frozen=True, slots=True)
class Space:
    """All designs, and what became of those that are none."""

    candidates: tuple[Candidate, ...]
    impossible: dict[str, int]
    """Combinations that no job can have, by the sentence that says why."""
    other_step: int
    """Combinations left out for the examples of their step."""
    most_hosts: int
    axes: dict[str, tuple[str, ...]]
    """What was combined, for those who ask."""


def space_of(origins: Sequence[Origin], most: int | None) -> Space:
    """All designs. ``most``: hosts at most; None: as the search or the racks say, else as many as
    the experiment's roles have.

    Raises UserError where there are none.
    """
    found: dict[str, Candidate] = {}
    impossible: dict[str, int] = {}
    axes: dict[str, dict[str, None]] = {}
    limit = other_step = 0
    first = "no combination of its values has so many hosts"
    for origin in origins:
        cluster = origin.cluster
        if cluster.colocate:
            raise UserError(
                f"cluster profile {cluster.name}: with colocate: true all roles are processes of "
                "one machine, and `recommend` divides hosts among roles: give a profile of hosts "
                "(recsim-train cluster), or try settings of one machine with a sweep"
            )
        limit = max(limit, own := _limit(origin, most))
        axes.setdefault("examples_per_step", {})[written(origin.examples_per_step)] = None
        for split in splits(origin, own):
            for name, value in _named(origin, split).items():
                axes.setdefault(name, {})[written(value)] = None
            try:
                made = _candidate(origin, split)
                if made.hosts <= own:
                    found.setdefault(made.job.identity, made)
            except OtherStepError as error:
                other_step, first = other_step + 1, str(error)
            except UserError as error:
                why = str(error).splitlines()[0]
                impossible[why] = impossible.get(why, 0) + 1
        if len(found) > MOST_DESIGNS:
            raise UserError(f"search: more than {MOST_DESIGNS:,} designs: give fewer values")
    if not found:
        first = next(iter(impossible), first)
        raise UserError(f"search: there is no design; the first: {first}")
    named = {name: tuple(values) for name, values in axes.items()}
    return Space(tuple(found.values()), impossible, other_step, limit, named)


def tried(loaded: Loaded) -> list[StrategyChoice]:
    """The strategies of an experiment, and where it names one only, all others as they come."""
    given = list(loaded.experiment.strategies)
    if len(given) > 1 or not loaded.search.strategies:
        return given
    others = [kind for kind in strategies() if kind != given[0].kind]
    return [*given, *(StrategyChoice(kind=kind) for kind in others)]


def training_loops(experiment: Experiment, choice: StrategyChoice) -> int:
    """How many loops train, each on a batch of its own in every step of the job."""
    strategy = create(choice)
    threads = 1 if strategy.lock_step else experiment.training.threads
    copies = sum(loop.copies for loop in strategy.topology(threads).loops if loop.training)
    return experiment.roles.trainers * copies


def with_batches(case: Case, origin: Origin) -> dict[str, Any]:
    """The batch of each loop that gives a step of the job the examples that it is to have, or
    nearly so, as an override. Raises OtherStepError where it is far from them."""
    loops, wanted = training_loops(case.experiment, origin.choice), origin.examples_per_step
    batch = max(1, round(wanted / loops))
    if abs(loops * batch - wanted) > OFF * wanted and not origin.search.any_step:
        raise OtherStepError(
            f"no whole batch of {loops:,} loops makes a step of about {wanted:,} examples: raise "
            "training.batch_size, or allow search.any_step"
        )
    return {"training.batch_size": batch}


def _limit(origin: Origin, most: int | None) -> int:
    cluster, roles = origin.cluster, origin.loaded.experiment.roles
    there = hosts_there(cluster)
    asked = most or max(origin.search.hosts or (0,)) or there
    if asked is not None:
        return asked if there is None else min(asked, there)
    return sum(ceil(getattr(roles, f"{role}s") / cluster.together(role)) for role in ROLE_NAMES)


def splits(origin: Origin, most: int) -> Iterator[Split]:
    """Each way of using up to ``most`` hosts that a strategy can have."""
    search = origin.search
    services = create(origin.choice).topology(1).services
    asked = any(isinstance(s, EmbeddingService) and s.access == "all" for s in services)
    dense = any(isinstance(s, DenseService) for s in services)
    readers = origin.loaded.experiment.roles.readers
    totals = search.hosts or _distinct([1, *(ceil(share * most) for share in _SHARES)])
    for total in (n for n in totals if n <= most):
        left = total - readers
        for embedding in _few(search.embedding_hosts, _SERVERS, left // 2) if asked else (0,):
            few = _few(search.dense_hosts, _DENSE, max(1, left // 4)) if dense else (0,)
            for number in few:
                if search.dense_hosts is None and dense and bool(number) != bool(embedding):
                    continue  # both in the trainers, or none
                trainers = left - embedding - number
                if trainers > 0:
                    yield from _processes(trainers, embedding, number, origin)


def _processes(trainers: int, embedding: int, dense: int, origin: Origin) -> Iterator[Split]:
    search = origin.search
    for split, types in _on_types(Split(trainers, embedding, dense, 1, 1, 1), origin):
        cores = _distinct(host.cores for host in types["trainer"])
        each = search.trainers_per_host or [n for n in _TRAINERS if n <= cores[0]]
        serving: Iterable[int] = (1,)
        if embedding:
            room = max(host.cores for host in types["embedding_server"])
            serving = search.servers_per_host or (min(_SERVING, room),)
        for one, other in product(each, serving):
            for threads in search.threads or _distinct(max(1, number // one) for number in cores):
                yield replace(split, trainers_each=one, embedding_each=other, threads=threads)


def _on_types(split: Split, origin: Origin) -> Iterable[tuple[Split, dict[RoleName, list[Host]]]]:
    """The ways in which roles may take their hosts, each with the types of these."""
    cluster, ways = origin.cluster, [origin.cluster.mixed_from_last or ()]
    if cluster.lots("default") and cluster.mixed_from_last is None:
        ways = [*_LAST]
    counts: dict[RoleName, int] = {
        "trainer": split.trainers,
        "embedding_server": split.embedding,
        "dense_server": split.dense,
        "reader": origin.loaded.experiment.roles.readers,
    }
    found: dict[str, tuple[Split, dict[RoleName, list[Host]]]] = {}
    for last in ways:
        with suppress(NoHostError):
            types = host_types(counts, cluster.with_({"mixed_from_last": last}))
            found.setdefault(str(types), (replace(split, last=last), types))
    # where there are too few it is said when the design is made
    return found.values() or [(split, {role: [cluster.host(role)] for role in ROLE_NAMES})]


class FewerBytes(Enum):
    """Whether designs are tried that may send less, by settings that nobody has chosen."""

    NO = 0
    ALIKE = 1
    """Of the same numbers."""
    ROUNDED = 2
    """Also of rounded ones."""


def neighbours(
    candidate: Candidate, most: int, fewer: FewerBytes = FewerBytes.NO
) -> Iterator[Candidate]:
    """Designs one step beside another, along what the search leaves open. ``most``: hosts."""
    origin = candidate.origin
    readers = origin.loaded.experiment.roles.readers
    for key, value in _fewer_bytes(candidate, fewer):
        with suppress(UserError):
            yield _candidate(_with(origin, key, value), candidate.split)
    for split in _steps(candidate):
        if min(split.trainers, split.trainers_each, split.embedding_each) < 1:
            continue
        if min(split.embedding, split.dense) < 0 or split.hosts + readers > most:
            continue
        with suppress(UserError):
            made = _candidate(origin, split)
            if made.hosts <= most:
                yield made


def _steps(candidate: Candidate) -> Iterator[Split]:
    split, search, job = candidate.split, candidate.origin.search, candidate.job
    kinds = kinds_of(job.plan.instances, job.profile)
    cores = {instance.role: kind.cores for instance, kind in kinds.items()}  # of its last host
    trainers, embedding, dense = split.trainers, split.embedding, split.dense
    if search.hosts is None:
        for more in sorted({1, -1, trainers // 4, -(trainers // 4)} - {0}):
            yield replace(split, trainers=trainers + more)
    if search.embedding_hosts is None and embedding:
        for more in sorted({1, -1, embedding // 2, -(embedding // 2)} - {0, -embedding}):
            yield replace(split, trainers=trainers - more, embedding=embedding + more)
    if search.dense_hosts is None and dense:
        for more in sorted({1, -1} - {-dense}):
            yield replace(split, trainers=trainers - more, dense=dense + more)
    if search.trainers_per_host is None:
        for each in (2 * split.trainers_each, split.trainers_each // 2):
            if 1 <= each <= cores["trainer"]:
                threads = split.threads if search.threads else max(1, cores["trainer"] // each)
                yield replace(split, trainers_each=each, threads=threads)
    if search.servers_per_host is None and embedding:
        for each in (2 * split.embedding_each, split.embedding_each // 2):
            if 1 <= each <= cores["embedding_server"]:
                yield replace(split, embedding_each=each)


def _fewer_bytes(candidate: Candidate, fewer: FewerBytes) -> Iterator[tuple[str, Any]]:
    origin, plan = candidate.origin, candidate.job.plan
    experiment, embedding = plan.experiment, plan.embedding
    if fewer is FewerBytes.NO:
        return

    def is_open(key: str, *, chosen: bool) -> bool:
        return key not in origin.search.settings and (not chosen or key in origin.settings)

    above, placement = "placement.split_rows_above", experiment.placement
    if embedding is not None and is_open(
        above, chosen="split_rows_above" in placement.model_fields_set
    ):
        shards = len(embedding.shards)
        whole = len({table.table for shard in embedding.shards for table in shard.slices})
        if sum(len(shard.slices) for shard in embedding.shards) > whole:  # some are split
            for times in (2.0, 4.0):
                if (value := times * placement.split_rows_above) < 2 * shards:
                    yield above, value
    pooling = getattr(create(plan.strategy), "pooling", None)
    if pooling == "server" and is_open("strategy.pooling", chosen=False):
        yield "strategy.pooling", "worker"
    if fewer is FewerBytes.ROUNDED and experiment.execution.wire == "full":
        yield WIRE, "bfloat16"


def _with(origin: Origin, key: str, value: object) -> Origin:
    """The same with a further setting, by its dotted key."""
    case = Case(origin.loaded.experiment, origin.choice, origin.cluster).with_({key: value})
    loaded = replace(origin.loaded, experiment=case.experiment)
    settings = {**origin.settings, key: value}
    return replace(origin, loaded=loaded, choice=case.choice, settings=settings)


def _few(given: Sequence[int] | None, usual: Sequence[int], most: int) -> Sequence[int]:
    return given if given is not None else [n for n in usual if n <= most]


def _distinct(values: Iterable[int]) -> list[int]:
    return sorted({value for value in values if value > 0}, reverse=True)


def _candidate(origin: Origin, split: Split) -> Candidate:
    """Raises UserError where there can be none."""
    start = Case(origin.loaded.experiment, origin.choice, origin.cluster)
    divided = start.with_(
        {
            "strategies": (origin.choice,),
            "roles.trainers": split.trainers * split.trainers_each,
            "roles.embedding_servers": split.embedding * split.embedding_each,
            "roles.dense_servers": split.dense,
            "training.threads": split.threads,
            "cluster.mixed_from_last": split.last or None,
        }
    )
    made = divided.with_(with_batches(divided, origin))
    shared: dict[RoleName, int] = {
        "trainer": split.trainers_each,
        "embedding_server": split.embedding_each,
    }
    together = {r: many for r, many in shared.items() if many > 1 and made.plan.of_role(r)}
    made = made.with_({"cluster.per_host": together or None})
    plan, cluster = made.plan, made.cluster
    loaded = replace(origin.loaded, experiment=made.experiment)
    job = Job("simulated", loaded, plan, cluster, _named(origin, split))
    hosts = len(hosts_of(plan.instances, cluster))
    return Candidate(job, origin, split, hosts, rented(plan, cluster))


def _named(origin: Origin, split: Split) -> dict[str, object]:
    """What tells a design from the others."""
    types = {"mixed_from_last": list(split.last)} if origin.cluster.lots("default") else {}
    return {
        "hosts": split.hosts,
        "embedding_hosts": split.embedding,
        "dense_hosts": split.dense,
        "trainers_per_host": split.trainers_each,
        "servers_per_host": split.embedding_each,
        "threads": split.threads,
        **types,
        **origin.settings,
    }
