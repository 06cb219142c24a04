"""Does it fit: bytes of every process, against the memory of the machine it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import UserError
from recsim_train.data.mixcache import cache_bytes
from recsim_train.placement.plan import Instance, Plan, Role
from recsim_train.sim.hosts import places_of
from recsim_train.workload import shape
from recsim_train.workload.graph import graph_of

PROCESS_BYTES = 256 * 2**20
"""An interpreter with its libraries loaded, before any of ours: a round figure."""
NEARLY = 0.9
"""Share of a host's memory above which an estimate of the large parts is no promise."""

ROLE_NAMES: dict[Role, str] = {
    "trainer": "trainers",
    "embedding_server": "embedding servers",
    "dense_server": "dense servers",
    "reader": "readers",
}
PART_NAMES = {
    "tables": "tables",
    "dense": "dense weights",
    "cache": "cached rows",
    "activations": "activations",
    "queues": "queued batches",
    "buffers": "requests in progress",
    "process": "the processes themselves",
}
_SMALLER = "use a larger host, fewer threads or a smaller batch"
OTHER_WAYS = dict.fromkeys(PART_NAMES, _SMALLER) | {
    "tables": "cap the tables' rows or use a larger host",
    "dense": "use a smaller net or a larger host",
    "cache": "use a smaller cache or a larger host",
}
"""What helps, by the part that most of the memory is for."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of one process."""

    instance: Instance
    parts: dict[str, float] = field(default_factory=dict)
    """By what they are for: "tables" (rows and their optimizer's state), "dense", "cache",
    "activations", "queues", "buffers", "process"."""
    available: float = 0.0
    """Memory of its machine."""

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def needed(self) -> float:
        return sum(self.parts.values())

    @property
    def tables(self) -> float:
        return self.parts.get("tables", 0.0)

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {"bytes": self.needed, "available": self.available, **self.parts}


def memory_of(plan: Plan, instance: Instance, available: float = 0.0) -> MemoryUse:
    """What one process holds when all is allocated. An estimate of the large parts."""
    parts = {"process": float(PROCESS_BYTES)}

    def add(what: str, size: float) -> None:
        if size:
            parts[what] = parts.get(what, 0.0) + size

    training, model = plan.experiment.training, plan.experiment.model
    value, row = shape.value_bytes(model), shape.row_bytes(model)
    weights = shape.dense_parameters(model) * value
    batch = _batch_bytes(plan)
    own = plan.embedding is not None and plan.embedding.service.access == "own"
    clients = 1 if own else len(plan.training)
    if plan.embedding is not None:
        pooled = plan.embedding.service.pooling == "server"
        for shard in plan.embedding.by_host.get(instance, ()):
            state = value if training.sparse_optimizer == "rowwise_adagrad" else 0
            add("tables", sum(part.rows for part in shard.slices) * (row + state))
            ids = sum(shape.mean_ids(model, part.table) for part in shard.slices)
            vectors = len(shard.slices) if pooled else ids
            each = plan.examples * (ids * (shape.ID_BYTES + row) + 2 * vectors * row)
            add("buffers", clients * each)
    if plan.dense is not None:
        copies = 2 if training.dense_optimizer == "adagrad" else 1
        for part in plan.dense.shards:
            if part.host == instance:
                add("dense", copies * part.elements * value)
                add("buffers", 2 * len(plan.training) * part.elements * value)
    loops = list(plan.loops(instance.index))
    if instance.role == "trainer":
        # one replica with its optimizer's state; per loop a gradient, an accumulator, a copy
        copies = 2 if training.dense_optimizer == "adagrad" else 1
        add("dense", weights * (copies + 3 * len(loops)))
        if plan.topology.thresholded is not None:  # per loop a residual and the sizes in it
            add("dense", 2 * weights * len(loops))
        add("cache", cache_bytes(plan, instance.index))
        add("queues", batch * (plan.experiment.data.queue_batches + 1) * len(loops))
        add("activations", _activation_bytes(plan) * len(loops))
    elif instance.role == "reader":
        add("queues", batch * 2 * (plan.fed[instance] + 1))
    return MemoryUse(instance, parts, available)


def _batch_bytes(plan: Plan) -> float:
    model, b = plan.experiment.model, plan.examples
    ids = sum(shape.mean_ids(model, t) for t in range(len(model.tables)))
    return b * (
        shape.FEATURE_BYTES * model.dense_features + shape.LABEL_BYTES + shape.ID_BYTES * ids
    )


def _activation_bytes(plan: Plan) -> float:
    """Activations and their gradients of one batch, with the embeddings that were looked up."""
    model, b = plan.experiment.model, plan.examples
    outputs = sum(operator.width for operator in graph_of(model).operators)
    pooled = plan.embedding is None or plan.embedding.service.pooling == "server"
    ids = sum(shape.mean_ids(model, t) for t in range(len(model.tables)))
    looked_up = 2 * (len(model.tables) if pooled else ids) * model.row_width
    # of a dot interaction all products are held, of which its output has each pair once
    pairs = (len(model.tables) + 1) ** 2 if model.kind == "dlrm" else 0
    per_example = 2 * (outputs + len(model.tables) * model.embedding_dim + pairs) + looked_up
    return b * per_example * shape.value_bytes(model)


def memory_uses(plan: Plan, cluster: Cluster) -> list[MemoryUse]:
    """Memory of every process, in rank order, and what its host has."""
    return [memory_of(plan, i, p.host.memory) for i, p in places_of(plan, cluster).items()]


def check_memory(plan: Plan, cluster: Cluster) -> list[MemoryUse]:
    """Memory of every process, in rank order.

    Raises UserError, in one sentence with the role and the figures, where something does not fit,
    or where the profile has not the hosts that the plan needs.
    """
    if cluster.colocate:
        return check_machine(plan, cluster.hosts["default"])
    uses = memory_uses(plan, cluster)
    for use in sorted(uses, key=lambda u: u.needed / u.available, reverse=True):
        if use.needed > use.available:
            from recsim_train.sim.fit import advice

            raise UserError(
                f"{use.name} needs {gib(use.needed)} GiB{_mostly([use])}, but its host has "
                f"{gib(use.available)} GiB: {gib(use.needed - use.available)} GiB too much; "
                f"{advice(plan, cluster, use)}"
            )
    return uses


def check_machine(plan: Plan, host: Host) -> list[MemoryUse]:
    """Memory of every process, all on one machine of type ``host``.

    Raises UserError, in one sentence with the figures, where they do not fit together.
    """
    uses = [memory_of(plan, instance, host.memory) for instance in plan.instances]
    needed = sum(use.needed for use in uses)
    if needed > host.memory:
        largest = max(uses, key=lambda use: use.needed)
        role = ROLE_NAMES[largest.instance.role]
        share = sum(u.needed for u in uses if u.instance.role == largest.instance.role)
        raise UserError(
            f"all processes together need {gib(needed)} GiB{_mostly(uses)}, most of it the "
            f"{role} with {gib(share)} GiB, but the machine has {gib(host.memory)} GiB: "
            f"{gib(needed - host.memory)} GiB too much; {OTHER_WAYS[largest_part(uses)]}"
        )
    return uses


def nearly_full(uses: Sequence[MemoryUse], colocate: bool) -> list[str]:
    """A sentence where what fits by this estimate may not fit in truth."""
    if colocate:
        needed, available = sum(u.needed for u in uses), uses[0].available
        names = "all processes together need"
    else:
        fullest = max(uses, key=lambda u: u.needed / u.available)
        needed, available = fullest.needed, fullest.available
        names = f"{fullest.name} needs"
    if needed <= NEARLY * available:
        return []
    return [
        f"{names} {gib(needed)} of {gib(available)} GiB: only the large parts are counted, so that "
        "it may not fit after all"
    ]


def gib(size: float) -> str:
    """Bytes as a number of GiB."""
    number = size / 2**30
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2g}"


def largest_part(uses: Sequence[MemoryUse]) -> str:
    """What most of the memory is for."""
    total: dict[str, float] = {}
    for use in uses:
        for part, size in use.parts.items():
            total[part] = total.get(part, 0.0) + size
    return max(total, key=total.__getitem__)


def _mostly(uses: Sequence[MemoryUse]) -> str:
    part = largest_part(uses)
    size = sum(use.parts.get(part, 0.0) for use in uses)
    return f" (of which {PART_NAMES[part]} {gib(size)} GiB)"
