"""The plan: every process, shard, group and loop of one run, known before anything starts.

Both worlds and ``--dry-run`` read the same plan; nothing in it is decided at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.config.topology import RoleName
from recsim_train.placement.program import NetProgram
from recsim_train.strategy.base import (
    DenseService,
    EmbeddingService,
    Loop,
    Place,
    Topology,
)
from recsim_train.strategy.net import Net
from recsim_train.workload.shape import mean_ids

Role = RoleName
ServerRole = Literal["embedding_server", "dense_server"]
SERVERS: tuple[ServerRole, ...] = ("embedding_server", "dense_server")


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """One process of the job."""

    role: Role
    index: int

    @property
    def name(self) -> str:
        return f"{self.role}[{self.index}]"


@dataclass(frozen=True, slots=True, order=True)
class LoopId:
    """One loop of one trainer: a thread in the executor, a process in the simulator."""

    trainer: int
    loop: str
    copy: int

    @property
    def name(self) -> str:
        return f"trainer[{self.trainer}].{self.label}"

    @property
    def label(self) -> str:
        return f"{self.loop}[{self.copy}]"


@dataclass(frozen=True, slots=True, order=True)
class TableSlice:
    """Rows ``start`` to ``stop`` (exclusive) of one table, each ``step``-th of them, and of these
    the columns ``first`` to ``last`` (exclusive); last 0: all."""

    table: int
    start: int
    stop: int
    step: int = 1
    first: int = 0
    last: int = 0

    @property
    def rows(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def width(self, row_width: int) -> int:
        """Numbers of each row."""
        return (self.last or row_width) - self.first


@dataclass(frozen=True, slots=True)
class EmbeddingShard:
    """A part of the embedding service, inside one process."""

    index: int
    host: Instance
    slices: tuple[TableSlice, ...]


@dataclass(frozen=True, slots=True)
class DenseShard:
    """Elements ``start`` to ``stop`` (exclusive) of the flat dense parameters."""

    index: int
    host: Instance
    start: int
    stop: int

    @property
    def elements(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class EmbeddingPlan:
    """The embedding service and its shards."""

    service: EmbeddingService
    shards: tuple[EmbeddingShard, ...]
    split_tables: frozenset[int]

    @cached_property
    def by_host(self) -> dict[Instance, tuple[EmbeddingShard, ...]]:
        """The shards that each process holds."""
        by_host: dict[Instance, list[EmbeddingShard]] = {}
        for shard in self.shards:
            by_host.setdefault(shard.host, []).append(shard)
        return {host: tuple(shards) for host, shards in by_host.items()}


@dataclass(frozen=True, slots=True)
class DensePlan:
    """The dense service and its shards."""

    service: DenseService
    shards: tuple[DenseShard, ...]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One collective group: one loop of each of its trainers, in trainer order."""

    name: str
    index: int
    """Which of the groups of this name."""
    members: tuple[LoopId, ...]

    def place(self, trainer: int) -> int:
        """A trainer's place among the members; -1: it is none."""
        return next((p for p, m in enumerate(self.members) if m.trainer == trainer), -1)


@dataclass(frozen=True)
class Plan:
    """One run of one strategy."""

    experiment: Experiment
    strategy: StrategyChoice
    topology: Topology
    instances: tuple[Instance, ...]
    """In rank order: trainers, embedding servers, dense servers, readers."""
    worker_threads: int
    """Of each trainer; 1 where the strategy advances in lock-step."""
    operation_threads: int
    """Threads that each operation of a foreground loop runs on; above 1 in lock-step only."""
    embedding: EmbeddingPlan | None
    dense: DensePlan | None
    groups: tuple[GroupPlan, ...]
    net: NetProgram | None = None
    """The net as it is cut over the hosts of each group, where the strategy asks for it."""
    notes: tuple[str, ...] = ()
    """Settings that this strategy does not use as written, one sentence each."""
    followed: Mapping[str, object] = field(default_factory=dict)
    """Options of the strategy that were left to the job's size, and what they came to."""

    @property
    def options(self) -> dict[str, object]:
        """The strategy's options as they are used: those chosen, and those that followed."""
        return {**self.strategy.options, **self.followed}

    @cached_property
    def used(self) -> StrategyChoice:
        """The strategy with these options: what instances are made from."""
        return StrategyChoice(kind=self.strategy.kind, options=self.options)

    def resumed(self, first: int) -> Plan:
        """What is left of the run where its loops go on with iteration ``first``: the warm-up is
        made again, and its end stays."""
        if not first:
            return self
        rules = self.experiment.training
        total = rules.warmup_steps + rules.steps
        warmup = min(first + rules.warmup_steps, total - 1)
        left = {"training.warmup_steps": warmup, "training.steps": total - warmup}
        return replace(self, experiment=self.experiment.with_(left))

    def rank(self, instance: Instance) -> int:
        return self._ranks[instance]

    @cached_property
    def _ranks(self) -> dict[Instance, int]:
        return {instance: rank for rank, instance in enumerate(self.instances)}

    def of_role(self, role: Role) -> tuple[Instance, ...]:
        return self._by_role.get(role, ())

    @cached_property
    def _by_role(self) -> dict[Role, tuple[Instance, ...]]:
        roles = {instance.role for instance in self.instances}
        return {role: tuple(i for i in self.instances if i.role == role) for role in roles}

    def loops(self, trainer: int) -> Iterator[LoopId]:
        """Every loop of one trainer, in thread order."""
        for loop in self.topology.loops:
            for copy in range(loop.copies):
                yield LoopId(trainer, loop.name, copy)

    @cached_property
    def all_loops(self) -> tuple[LoopId, ...]:
        """Every loop of the job, trainer by trainer."""
        return self._loops_where(lambda _: True)

    @cached_property
    def feeding(self) -> tuple[LoopId, ...]:
        """The loops that consume batches; the position is the loop's place in the stream.

        Loop number p of P reads batches p, p + P, p + 2P ... of the stream; where loops get all
        trainers' batches in one, each reads the whole stream in batches P times as large.
        """
        return self._loops_where(lambda loop: loop.consumes_batches)

    @cached_property
    def training(self) -> tuple[LoopId, ...]:
        """The loops whose iterations are the job's iterations."""
        return self._loops_where(lambda loop: loop.training)

    @cached_property
    def background(self) -> tuple[LoopId, ...]:
        """The loops that go round beside training."""
        return self._loops_where(lambda loop: loop.background)

    def _loops_where(self, wanted: Callable[[Loop], bool]) -> tuple[LoopId, ...]:
        chosen = [loop for loop in self.topology.loops if wanted(loop)]
        return tuple(
            LoopId(trainer, loop.name, copy)
            for trainer in range(self.experiment.roles.trainers)
            for loop in chosen
            for copy in range(loop.copies)
        )

    def loop(self, name: str) -> Loop:
        """The definition of a loop by its name."""
        return next(loop for loop in self.topology.loops if loop.name == name)

    def threads_of(self, loop: Loop) -> int:
        """On how many threads the operations of a loop run."""
        return 1 if loop.background else self.operation_threads

    @cached_property
    def shares_batches(self) -> bool:
        """Whether every feeding loop gets all trainers' batches of an iteration in one."""
        return any(loop.consumes_batches and loop.batch == "global" for loop in self.topology.loops)

    @cached_property
    def examples(self) -> int:
        """Examples that a feeding loop gets per iteration."""
        batch = self.experiment.training.batch_size
        return batch * len(self.feeding) if self.shares_batches else batch

    @cached_property
    def streams(self) -> int:
        """Into how many parts the stream of batches of ``examples`` rows is dealt."""
        return 1 if self.shares_batches else len(self.feeding)

    @cached_property
    def looked_up(self) -> tuple[tuple[float, float], ...]:
        """(ids, vectors in an answer) of one example, by embedding shard."""
        if self.embedding is None:
            return ()
        pooled, model = self.embedding.service.pooling == "server", self.experiment.model
        ids = [sum(mean_ids(model, s.table) for s in x.slices) for x in self.embedding.shards]
        vectors = [float(len(x.slices)) for x in self.embedding.shards] if pooled else ids
        return tuple(zip(ids, vectors, strict=True))

    @cached_property
    def apart(self) -> int:
        """How many `sets` of trainers there are."""
        return len(set(self.sets))

    @cached_property
    def sets(self) -> tuple[int, ...]:
        """Of each trainer the first one of its set: training loops of two sets never wait for each
        other, in a collective or for one step of their embedding gradients."""
        training = {loop.name for loop in self.topology.loops if loop.training}
        trainers = self.experiment.roles.trainers
        before = list(range(trainers))
        """Of each trainer another one of its set, an earlier one or itself."""

        def first(trainer: int) -> int:
            while (other := before[trainer]) != trainer:
                before[trainer] = before[other]
                trainer = other
            return trainer

        met = [(trainer, members[0]) for members in self.together for trainer in members]
        for group in self.topology.groups:
            size = group.size or trainers
            for trainer in range(trainers) if group.loop in training else ():
                other = trainer % size if group.across else trainer - trainer % size
                met.append((trainer, other))
        for trainer, other in met:
            low, high = sorted((first(trainer), first(other)))
            before[high] = low
        return tuple(map(first, range(trainers)))

    @cached_property
    def trainers_serve(self) -> bool:
        """Whether trainers ask each other for more than collectives: some have shards of all."""
        services = [self.dense]
        if self.embedding is not None and self.embedding.service.access != "own":
            services.append(self.embedding)  # type: ignore[arg-type]
        shards = (shard for service in services if service is not None for shard in service.shards)
        return any(shard.host.role == "trainer" for shard in shards)

    def place(self, trainer: int) -> Place:
        """What a strategy's instance in a trainer may know of its surroundings."""
        net = Net() if self.net is None else self.net.net
        return Place(trainer, self.experiment.roles.trainers, self.worker_threads, net)

    @cached_property
    def together(self) -> tuple[range, ...]:
        """Trainers whose embedding gradients make one step, group by group; none: each its own."""
        if self.embedding is None or self.embedding.service.apply != "together":
            return ()
        trainers = self.experiment.roles.trainers
        size = self.embedding.service.group or trainers
        return tuple(range(first, first + size) for first in range(0, trainers, size))

    def host(self, trainer: int) -> int:
        """A trainer's number among the hosts of its group's net."""
        assert self.net is not None
        return trainer % self.net.hosts

    @cached_property
    def positions(self) -> dict[LoopId, int]:
        """The place in the stream of every feeding loop, below ``streams``."""
        return {
            loop: 0 if self.shares_batches else number for number, loop in enumerate(self.feeding)
        }

    def reader_of(self, loop: LoopId) -> Instance | None:
        """The reader process that feeds a loop; None: the trainer reads for itself."""
        readers = self.of_role("reader")
        return readers[loop.trainer % len(readers)] if readers else None

    @cached_property
    def fed(self) -> Counter[Instance | None]:
        """How many loops each reader process feeds; None: how many read for themselves."""
        return Counter(map(self.reader_of, self.feeding))
