"""Bytes of every process, and the memory of the host it runs on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recsim_train.config.cluster import Cluster
from recsim_train.data.mixcache import cache_bytes
from recsim_train.data.order import WINDOW
from recsim_train.placement.hosts import MACHINE, host_names, kinds_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.transport import number_bytes
from recsim_train.trace.facts import ProcessMemory
from recsim_train.workload import shape
from recsim_train.workload.graph import graph_of
from recsim_train.workload.reading import together

PROCESS_BYTES = 256 * 2**20
"""An interpreter with its libraries loaded, before any of ours: a round figure."""

PART_NAMES = {
    "tables": "tables",
    "dense": "dense weights",
    "cache": "cached rows",
    "activations": "activations",
    "queues": "queued batches",
    "buffers": "requests in progress",
    "snapshot": "copies for checkpoints",
    "process": "the processes themselves",
}
"""Of what a process holds, by name: for sentences."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of one process."""

    instance: Instance
    parts: dict[str, float] = field(default_factory=dict)
    """By what they are for: "tables" (rows and their optimizer's state), "dense", "cache",
    "activations", "queues", "buffers", "snapshot", "process"."""
    available: float = 0.0
    """Memory of its machine."""

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def needed(self) -> float:
        return sum(self.parts.values())

    def figures(self) -> ProcessMemory:
        """For a run's facts."""
        return ProcessMemory(self.needed, self.available, **self.parts)


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The processes of one host."""

    name: str
    """As `recsim_train.placement.hosts.JobHost.name`."""
    uses: tuple[MemoryUse, ...]

    @property
    def needed(self) -> float:
        """Bytes of all together."""
        return sum(use.needed for use in self.uses)

    @property
    def available(self) -> float:
        """Bytes that the host has."""
        return self.uses[0].available

    @property
    def filled(self) -> float:
        """Share of its memory."""
        return self.needed / self.available

    @property
    def whose(self) -> str:
        """What needs it, in words."""
        if self.name == MACHINE:
            return "all processes together"
        if len(self.uses) == 1:
            return self.name
        return f"the {len(self.uses)} processes of the host of {self.name}"

    @property
    def verb(self) -> str:
        """That goes with `whose`."""
        return "needs" if self.whose == self.name else "need"


class _Each:
    """What is the same for all processes of a plan, in bytes but for numbers of loops."""

    def __init__(self, plan: Plan) -> None:
        model, b = plan.experiment.model, plan.examples
        ids = sum(shape.mean_ids(model, t) for t in range(len(model.tables)))
        apart = shape.FEATURE_BYTES * model.dense_features + shape.LABEL_BYTES
        loops = [plan.loop(loop.loop) for loop in plan.loops(0)]
        self.dense = shape.dense_parameters(model) * shape.value_bytes(model)
        """Of one replica of the dense weights."""
        self.batch = b * (apart + shape.ID_BYTES * ids)
        self.activations = _activation_bytes(plan, ids)
        self.ids = b * shape.ID_BYTES * ids
        """Of the ids of one batch."""
        self.loops = len(loops)
        """Of a trainer."""
        self.training = sum(loop.training for loop in loops)
        """Of these, those that train."""


def memory_of_all(plan: Plan, processes: Iterable[tuple[Instance, float]]) -> list[MemoryUse]:
    """What processes hold when all is allocated, an estimate of the large parts; each with the
    bytes that its machine has."""
    same = _Each(plan)
    return [_memory_of(plan, instance, available, same) for instance, available in processes]


def _memory_of(plan: Plan, instance: Instance, available: float, same: _Each) -> MemoryUse:
    parts = {"process": float(PROCESS_BYTES)}

    def add(what: str, size: float) -> None:
        if size:
            parts[what] = parts.get(what, 0.0) + size

    training, model = plan.experiment.training, plan.experiment.model
    value, row = shape.value_bytes(model), shape.row_bytes(model)
    weights, batch = same.dense, same.batch
    own = plan.embedding is not None and plan.embedding.service.access == "own"
    clients = 1 if own else len(plan.training)
    mine = same.training if instance.role == "trainer" else 0
    kept = 0.0
    if plan.embedding is not None:
        for shard in plan.embedding.by_host.get(instance, ()):
            state = value if training.sparse_optimizer == "rowwise_adagrad" else 0
            kept += sum(part.rows for part in shard.slices) * (row + state)
            add("tables", sum(part.rows for part in shard.slices) * (row + state))
            ids, vectors = plan.looked_up[shard.index]
            each = plan.examples * (ids * (shape.ID_BYTES + row) + 2 * vectors * row)
            add("buffers", clients * each)
            # of a lookup that is ahead of its update both ends remember the places of its ids
            ahead = 0 if plan.topology.cache is not None else plan.topology.ahead
            add("buffers", clients * ahead * plan.examples * ids * _place_bytes(plan))
            others = 0 if own else len(plan.training) - mine
            add("buffers", 2 * others * plan.examples * vectors * _narrow_row_bytes(plan))
    if plan.dense is not None:
        copies = 2 if training.dense_optimizer == "adagrad" else 1
        for part in plan.dense.shards:
            if part.host == instance:
                kept += copies * part.elements * value
                add("dense", copies * part.elements * value)
                add("buffers", 2 * len(plan.training) * part.elements * value)
                others = len(plan.training) - mine
                add("buffers", 2 * others * part.elements * _narrow_bytes(plan))
    if instance.role == "trainer":
        # one replica with its optimizer's state; per loop a gradient, an accumulator, a copy
        copies = 2 if training.dense_optimizer == "adagrad" else 1
        kept += copies * weights
        add("dense", weights * (copies + 3 * same.loops))
        if plan.topology.thresholded is not None:  # per loop the sizes, and a residual if any
            add("dense", (1 + plan.topology.residual) * weights * same.loops)
        add("cache", cache_bytes(plan, instance.index))
        # a receiver holds one more; a reader beside a loop makes several when there is room for one
        made = 1 if plan.of_role("reader") else together(plan.examples) - 1
        add("queues", batch * (plan.experiment.data.queue_batches + made) * same.loops)
        if not plan.of_role("reader"):
            add("queues", same.loops * _read_ahead_bytes(plan, batch))
        if ahead := plan.topology.ahead:
            add("queues", mine * ahead * batch)
            add("buffers", mine * ahead * _looked_up_bytes(plan, instance, same.ids))
        add("buffers", mine * _sent_bytes(plan, instance))
        add("activations", same.activations * same.loops)
    elif instance.role == "reader":
        add("queues", batch * 2 * (plan.fed[instance] + 1))
        add("queues", plan.fed[instance] * _read_ahead_bytes(plan, batch))
    if plan.experiment.checkpoint.every is not None:
        add("snapshot", kept)
    return MemoryUse(instance, parts, available)


def checkpoint_bytes(plan: Plan) -> dict[Instance, float]:
    """Of one checkpoint, about, by the process that has them; 0: there are none."""
    uses = memory_of_all(plan, [(instance, 0.0) for instance in plan.instances])
    return {use.instance: use.parts.get("snapshot", 0.0) for use in uses}


def _read_ahead_bytes(plan: Plan, batch: float) -> float:
    """Of the windows of one loop's rows, where they come from files."""
    files = plan.experiment.data.path is not None
    return 2 * WINDOW * batch / plan.examples if files else 0.0


def _narrow_bytes(plan: Plan) -> int:
    """Bytes of a number in buffers besides those of the model's own type; 0: there are none."""
    return 0 if plan.experiment.execution.wire == "full" else number_bytes(plan.experiment)


def _narrow_row_bytes(plan: Plan) -> int:
    """The same of one embedding vector. What a mask leaves, and what caches fetch, travels as it
    is."""
    assert plan.embedding is not None
    if plan.embedding.service.keep is not None or plan.topology.cache is not None:
        return 0
    return plan.experiment.model.row_width * _narrow_bytes(plan)


def _place_bytes(plan: Plan) -> int:
    """Of one id of a lookup that waits for its update: its row, and its bag where it shares one."""
    assert plan.embedding is not None
    pooled = plan.embedding.service.pooling == "server"
    return shape.ID_BYTES * (2 if pooled and shape.many(plan.experiment.model) else 1)


def _looked_up_bytes(plan: Plan, instance: Instance, ids: float) -> float:
    """What a trainer holds of one batch that is prepared: its ids by shard and the vectors that
    answer them, as wide as they travel; where rows are asked for, its distinct ids and each id's
    place among them; where there is a cache, ids only. ``ids``: bytes of these."""
    if plan.embedding is None:
        return 0.0
    if plan.topology.cache is not None:
        return ids
    found = 0.0 if plan.embedding.service.pooling == "server" else 2 * ids
    near = shape.row_bytes(plan.experiment.model)
    far = _narrow_row_bytes(plan) or near
    for shard in plan.embedding.shards:
        asked, vectors = plan.looked_up[shard.index]
        row = near if shard.host == instance else far
        found += plan.examples * (shape.ID_BYTES * asked + vectors * row)
    return found


def _sent_bytes(plan: Plan, instance: Instance) -> float:
    """Narrow copies of what one loop sends to other processes and gets from them in a step."""
    size = 0.0
    if not _narrow_bytes(plan):
        return size
    if plan.embedding is not None and plan.embedding.service.access == "all":
        away = [shard for shard in plan.embedding.shards if shard.host != instance]
        vectors = sum(plan.looked_up[shard.index][1] for shard in away)
        size += plan.examples * vectors * _narrow_row_bytes(plan)
    if plan.dense is not None:
        elements = sum(part.elements for part in plan.dense.shards if part.host != instance)
        size += elements * _narrow_bytes(plan)
    return 2 * size


def _activation_bytes(plan: Plan, ids: float) -> float:
    """Activations and their gradients of one batch, with the embeddings that were looked up.
    ``ids``: of one example."""
    model, b = plan.experiment.model, plan.examples
    outputs = sum(operator.width for operator in graph_of(model).operators)
    pooled = plan.embedding is None or plan.embedding.service.pooling == "server"
    looked_up = 2 * (len(model.tables) if pooled else ids) * model.row_width
    # of a dot interaction all products are held, of which its output has each pair once
    pairs = (len(model.tables) + 1) ** 2 if model.kind == "dlrm" else 0
    per_example = 2 * (outputs + len(model.tables) * model.embedding_dim + pairs) + looked_up
    kept = 0.0 if model.described is None else 2 * model.described.kept_bytes
    return b * (per_example * shape.value_bytes(model) + kept)


def memory_uses(plan: Plan, cluster: Cluster) -> list[MemoryUse]:
    """Memory of every process, in rank order, and what its host has.

    In which rack a host stands does not matter here, nor whether there is room for it. Raises
    NoHostError where ``mixed`` describes too few hosts.
    """
    kinds = kinds_of(plan.instances, cluster)
    return memory_of_all(plan, ((i, kind.memory) for i, kind in kinds.items()))


def by_host(uses: Sequence[MemoryUse], cluster: Cluster) -> list[HostMemory]:
    """Of a plan's processes, in rank order."""
    names = host_names([use.instance for use in uses], cluster)
    hosts: dict[str, list[MemoryUse]] = {}
    for use in uses:
        hosts.setdefault(names[use.name], []).append(use)
    return [HostMemory(name, tuple(members)) for name, members in hosts.items()]
