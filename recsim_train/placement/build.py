"""The builder of plans: from an experiment and one of its strategies to a checked plan; and the bin
packing of embedding rows onto shards: split what is too large, then pack the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from recsim_train.config.cluster import USUAL
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment, Model, Placement, StrategyChoice, Training
from recsim_train.placement.cutting import substitute, tagged
from recsim_train.placement.describe import caution
from recsim_train.placement.plan import (
    DensePlan,
    DenseShard,
    EmbeddingPlan,
    EmbeddingShard,
    GroupPlan,
    Instance,
    LoopId,
    Plan,
    Role,
    ServerRole,
    TableSlice,
)
from recsim_train.placement.program import NetProgram, TaggedNet, column_range
from recsim_train.strategy.base import DenseService, EmbeddingService, JobSize, Topology
from recsim_train.strategy.net import NetRequest
from recsim_train.strategy.registry import create
from recsim_train.workload import shape
from recsim_train.workload.graph import graph_of
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters, value_bytes

_WEIGHTS: Mapping[str, float] = {
    **{name: usual.seconds for name, usual in USUAL.items()},
    **dict.fromkeys(("call", "interpreter"), 0.0),
}
"""Of prices, relative to each other (a random row access against a streamed byte): placement must
be the same in both worlds and for every profile, so it never depends on one machine's calibration.
Calls count nothing: each table has as many of them."""

_UNRELATED = {"steps": 1, "warmup_steps": 0, "threads": 1}
"""Settings of training that do not matter here: plans that differ in them have the same shards."""


class Need(NamedTuple):
    """What a table needs of its shard, or a shard's tables of it, as shares of all tables'."""

    size: float
    """Bytes."""
    time: float
    """Seconds of lookups and updates."""

    def plus(self, other: Need, share: float = 1.0) -> Need:
        """This, and a share of another one."""
        return Need(self.size + share * other.size, self.time + share * other.time)


def table_needs(model: Model, training: Training, placement: Placement) -> list[Need]:
    """What is balanced, per table; with ``cost: bytes`` both are the bytes."""
    b = training.batch_size

    def time(table: int) -> float:
        ids = b * shape.mean_ids(model, table)
        scope = Scope(model, training, batch=b, ids=ids, unique=ids, tables=1)
        work = cost("lookup_pooled", scope), cost("update_pooled", scope)
        return sum(seconds(part, _WEIGHTS)[0] for part in work)

    def shares(of: Callable[[int], float]) -> list[float]:
        values = [of(table) for table in range(len(model.tables))]
        total = sum(values)
        return [value / total for value in values]

    sizes = shares(lambda table: model.tables[table].rows)
    times = sizes if placement.cost == "bytes" else shares(time)
    return [Need(*pair) for pair in zip(sizes, times, strict=True)]


def row_cuts(rows: int, parts: int) -> list[tuple[int, int]]:
    """``parts`` consecutive ranges over ``rows`` whose lengths differ by at most one."""
    return [(rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]


def cut_tables(
    experiment: Experiment, shards: int, partition: str
) -> tuple[tuple[TableSlice, ...], ...]:
    """Slices of each shard, in table order, as the embedding service wants its tables cut.

    balanced: see `pack_tables`; field: the same, with whole tables only; hash: id modulo the number
    of shards; column: each shard has some columns of every row, the last one those beyond
    embedding_dim too.
    """
    model = experiment.model
    tables = list(enumerate(model.tables))
    if partition == "hash":
        # a shard beyond a table's last row has no row of it, but a slice as the others have
        return tuple(
            tuple(TableSlice(t, min(shard, spec.rows), spec.rows, shards) for t, spec in tables)
            for shard in range(shards)
        )
    if partition == "column":
        ranges = [column_range(model.embedding_dim, shards, shard) for shard in range(shards)]
        ranges[-1] = (ranges[-1][0], model.row_width)
        return tuple(
            tuple(TableSlice(t, 0, spec.rows, 1, *columns) for t, spec in tables)
            for columns in ranges
        )
    return pack_tables(experiment, shards, whole_tables=partition == "field")


def pack_tables(
    experiment: Experiment, shards: int, *, whole_tables: bool = False
) -> tuple[tuple[TableSlice, ...], ...]:
    """Slices of each shard, in table order.

    A table that needs more than ``placement.split_rows_above`` fair shares of bytes or of time is
    split by rows over all shards; the others go, largest need first, to the shard whose larger need
    is then the least (longest processing time first, Graham 1969, for two needs at once).
    """
    rules = experiment.training.model_copy(update=_UNRELATED)
    return _packed(experiment.model, rules, experiment.placement, shards, whole_tables)


@lru_cache(maxsize=64)
def _packed(
    model: Model, training: Training, placement: Placement, shards: int, whole_tables: bool
) -> tuple[tuple[TableSlice, ...], ...]:
    needs = table_needs(model, training, placement)
    # what is a fair share but for rounding does not exceed it
    limit = placement.split_rows_above / shards * (1 + 1e-9)
    content: list[list[TableSlice]] = [[] for _ in range(shards)]
    held = [Need(0.0, 0.0)] * shards
    whole = []
    for table, need in enumerate(needs):
        rows = model.tables[table].rows
        if shards > 1 and max(need) > limit and rows >= shards and not whole_tables:
            for shard, (start, stop) in enumerate(row_cuts(rows, shards)):
                content[shard].append(TableSlice(table, start, stop))
                held[shard] = held[shard].plus(need, 1 / shards)
        else:
            whole.append(table)

    def fullness(shard: int, need: Need) -> tuple[float, float]:
        then = held[shard].plus(need)
        return max(then), sum(then)

    for table in sorted(whole, key=lambda t: (-max(needs[t]), -sum(needs[t]), t)):
        need = needs[table]
        best = min(range(shards), key=lambda shard: (*fullness(shard, need), shard))
        content[best].append(TableSlice(table, 0, model.tables[table].rows))
        held[best] = held[best].plus(need)
    return tuple(tuple(sorted(slices)) for slices in content)


def build_plan(experiment: Experiment, choice: StrategyChoice) -> Plan:
    """The plan of one run. Raises UserError where the settings cannot work together."""
    followed = create(choice).follow(_job_size(experiment))
    strategy = create(StrategyChoice(kind=choice.kind, options={**choice.options, **followed}))
    if problems := strategy.problems():
        raise UserError("\n".join(f"{choice.kind}: {problem}" for problem in problems))
    threads = experiment.training.threads
    workers, within = (1, threads) if strategy.lock_step else (threads, 1)
    topology = strategy.topology(workers)
    instances = _instances(experiment, topology)
    notes = [f"{choice.kind} {note}" for note in strategy.notes()]
    notes += [
        f"{choice.kind} needs no {role}: roles.{role}s={count} is used as 0"
        for role, count in _unused(experiment, topology)
    ]
    embedding = _embedding(experiment, topology, instances)
    groups = _groups(experiment, topology)
    net = _net(experiment, choice.kind, topology, embedding, within)
    if isinstance(net, TaggedNet) and (uncut := caution(net)):
        notes.append(f"{choice.kind} {uncut}")
    plan = Plan(
        experiment=experiment,
        strategy=choice,
        topology=topology,
        instances=instances,
        worker_threads=workers,
        operation_threads=within,
        embedding=embedding,
        dense=_dense(experiment, topology, instances),
        groups=groups,
        net=net,
        notes=tuple(notes),
        followed=followed,
    )
    check(plan)
    return plan


def _job_size(experiment: Experiment) -> JobSize:
    """What a strategy may know of the job before it is planned."""
    roles, training = experiment.roles, experiment.training
    tables = tuple((table.rows, table.ids) for table in experiment.model.tables)
    return JobSize(
        roles.trainers, roles.dense_servers, roles.trainers * training.batch_size, tables
    )


def with_servers(plan: Plan, counts: Mapping[ServerRole, int]) -> Plan:
    """The same run with other numbers of servers. Raises UserError as `build_plan`."""
    roles = {f"roles.{role}s": count for role, count in counts.items()}
    return build_plan(plan.experiment.with_(roles), plan.strategy)


def _net(
    experiment: Experiment,
    kind: str,
    topology: Topology,
    embedding: EmbeddingPlan | None,
    threads: int,
) -> NetProgram | None:
    request = topology.net
    if request is None:
        return None
    if experiment.model.module is not None:
        raise UserError(
            f"{kind} cuts the net over hosts, and what happens inside of a module "
            "(model.module) is not known; use one that trains it whole: flat_ps, allreduce, "
            "localsgd, shadowsync or scalefreectr"
        )
    hosts = request.hosts or experiment.roles.trainers
    request = replace(request, hosts=hosts, groups=max(1, experiment.roles.trainers // hosts))
    if request.kind == "tags":
        if not request.outer and hosts != experiment.roles.trainers:
            raise UserError(
                f"outer: none leaves groups of {hosts} hosts without synchronisation, and there "
                f"are {experiment.roles.trainers} trainers; use outer: easgd, ma or bmuf, or "
                f"roles.trainers={hosts}"
            )
        return _tagged(experiment.model, request, experiment.training.batch_size, threads)
    assert embedding is not None
    fields = tuple(tuple(s.table for s in shard.slices) for shard in embedding.shards)
    return substitute(experiment, request, hosts, fields)


@lru_cache(maxsize=64)
def _tagged(model: Model, request: NetRequest, batch: int, threads: int) -> TaggedNet:
    """Of plans that differ in servers, or in hosts that are no part of a group, the same."""
    return tagged(graph_of(model), request, batch, value_bytes(model), threads)


def _unused(experiment: Experiment, topology: Topology) -> list[tuple[str, int]]:
    services = topology.services
    has_dense = any(isinstance(s, DenseService) for s in services)
    has_embedding = any(isinstance(s, EmbeddingService) and s.access == "all" for s in services)
    counts = [
        ("dense_server", experiment.roles.dense_servers, has_dense),
        ("embedding_server", experiment.roles.embedding_servers, has_embedding),
    ]
    return [(role, count) for role, count, used in counts if count and not used]


def _instances(experiment: Experiment, topology: Topology) -> tuple[Instance, ...]:
    roles = experiment.roles
    unused = {role for role, _ in _unused(experiment, topology)}
    counts: list[tuple[Role, int]] = [
        ("trainer", roles.trainers),
        ("embedding_server", roles.embedding_servers),
        ("dense_server", roles.dense_servers),
        ("reader", min(roles.readers, roles.trainers)),
    ]
    return tuple(
        Instance(role, index)
        for role, count in counts
        if role not in unused
        for index in range(count)
    )


def _hosts(instances: tuple[Instance, ...], role: Role) -> list[Instance]:
    servers = [i for i in instances if i.role == role]
    return servers or [i for i in instances if i.role == "trainer"]


def _embedding(
    experiment: Experiment, topology: Topology, instances: tuple[Instance, ...]
) -> EmbeddingPlan | None:
    services = [s for s in topology.services if isinstance(s, EmbeddingService)]
    if not services:
        return None
    hosts = _hosts(instances, "trainer" if services[0].access == "own" else "embedding_server")
    content = cut_tables(experiment, len(hosts), services[0].partition)
    shards = tuple(
        EmbeddingShard(index, host, slices)
        for index, (host, slices) in enumerate(zip(hosts, content, strict=True))
    )
    tables = experiment.model.tables
    split = {s.table for shard in shards for s in shard.slices if s.rows < tables[s.table].rows}
    return EmbeddingPlan(services[0], shards, frozenset(split))


def _dense(
    experiment: Experiment, topology: Topology, instances: tuple[Instance, ...]
) -> DensePlan | None:
    services = [s for s in topology.services if isinstance(s, DenseService)]
    if not services:
        return None
    hosts = _hosts(instances, "dense_server")
    cuts = row_cuts(dense_parameters(experiment.model), len(hosts))
    shards = tuple(
        DenseShard(index, host, start, stop)
        for index, (host, (start, stop)) in enumerate(zip(hosts, cuts, strict=True))
    )
    return DensePlan(services[0], shards)


def _groups(experiment: Experiment, topology: Topology) -> tuple[GroupPlan, ...]:
    trainers = experiment.roles.trainers
    groups = []
    for group in topology.groups:
        size = group.size or trainers
        _whole_groups(trainers, size)
        if group.across:
            parts = [range(place, trainers, size) for place in range(size)]
        else:
            parts = [range(first, first + size) for first in range(0, trainers, size)]
        groups += [
            GroupPlan(group.name, index, tuple(LoopId(t, group.loop, 0) for t in part))
            for index, part in enumerate(parts)
        ]
    return tuple(groups)


def _one_gradient(plan: Plan, service: EmbeddingService) -> None:
    """Where gradients are applied together, once there is one of each trainer."""
    loops = sum(loop.copies for loop in plan.topology.loops if loop.training)
    if service.apply == "together" and loops > 1:
        raise UserError(
            f'{plan.strategy.kind}: its embedding service has apply="together", which waits for '
            f"one gradient of each trainer, but {loops} loops of a trainer train side by side "
            f"with training.threads={plan.experiment.training.threads}; use training.threads=1, or "
            "a strategy with lock_step = True (one worker on all threads) or "
            'apply="on_arrival"'
        )


def _whole_groups(trainers: int, size: int) -> None:
    if trainers % size:
        raise UserError(
            f"roles.trainers ({trainers}) must be a multiple of the hosts in one group ({size})"
        )


def check(plan: Plan) -> None:
    """What must hold before anything starts: complete, disjoint placement; groups that exist.

    Raises UserError for what the user can change; asserts what only our own code can break.
    """
    model = plan.experiment.model
    loops = {loop.name for loop in plan.topology.loops}
    for group in plan.topology.groups:
        copies = [loop.copies for loop in plan.topology.loops if loop.name == group.loop]
        assert copies == [1], f"group {group.name!r} needs exactly one loop {group.loop!r} per host"
    assert len(loops) == len(plan.topology.loops), "two loops have one name"
    if plan.embedding is not None:
        _whole_groups(plan.experiment.roles.trainers, plan.embedding.service.group or 1)
        _one_gradient(plan, plan.embedding.service)
        empty = [shard.host.name for shard in plan.embedding.shards if not shard.slices]
        if empty:
            raise UserError(
                f"{len(plan.embedding.shards)} embedding shards are more than the model's tables "
                f"can be cut into: {empty[0]} would hold nothing; use at most "
                f"{len(plan.embedding.shards) - len(empty)}"
            )
        covered = [0] * len(model.tables)
        for shard in plan.embedding.shards:
            for part in shard.slices:
                covered[part.table] += part.rows * part.width(model.row_width)
        whole = [table.rows * model.row_width for table in model.tables]
        assert covered == whole, "rows lost or held twice"
    if plan.dense is not None and any(not shard.elements for shard in plan.dense.shards):
        raise UserError("there are more dense servers than dense parameters")
