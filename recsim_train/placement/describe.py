"""The description of a plan that ``--dry-run`` prints: in words, and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from recsim_train.placement.describe_net import net_document, net_lines
from recsim_train.placement.hosts import together
from recsim_train.placement.plan import Instance, LoopId, Plan
from recsim_train.strategy.options import flat
from recsim_train.workload import shape
from recsim_train.workload.compression import Mask


def plan_document(plan: Plan) -> dict[str, object]:
    """The plan as JSON: processes, loops, shards with their bytes, groups."""
    model, data = plan.experiment.model, plan.experiment.data
    row = shape.row_bytes(model)
    value = shape.value_bytes(model)
    embedding: list[dict[str, object]] = [
        {
            "shard": shard.index,
            "host": shard.host.name,
            "bytes": sum(part.rows for part in shard.slices) * row,
            "slices": [{"table": p.table, "start": p.start, "stop": p.stop} for p in shard.slices],
        }
        for shard in (plan.embedding.shards if plan.embedding else ())
    ]
    for shard, mask in _masks(plan).items():
        embedding[shard]["mask"] = {
            "values": mask.values,
            "kept": mask.all_kept,
            "density": mask.all_kept / mask.values,
        }
    dense = [
        {
            "shard": shard.index,
            "host": shard.host.name,
            "bytes": shard.elements * value,
            "start": shard.start,
            "stop": shard.stop,
        }
        for shard in (plan.dense.shards if plan.dense else ())
    ]
    return {
        "strategy": plan.strategy.kind,
        "options": plan.options,
        "data": {
            "source": data.path or "generator",
            "held_out": {"file": data.eval_path, "first_rows": data.eval_rows},
            "limit_rows": data.limit_rows,
        },
        "followed": sorted(plan.followed),
        "processes": [i.name for i in plan.instances],
        "loops": [
            {
                "loop": loop.name,
                "reader": reader.name if reader else None,
                "operation_threads": plan.threads_of(plan.loop(loop.loop)),
            }
            for loop in plan.all_loops
            for reader in [plan.reader_of(loop) if loop in plan.positions else None]
        ],
        "embedding_shards": embedding,
        "dense_shards": dense,
        "groups": {
            f"{g.name}[{g.index}]": [member.name for member in g.members] for g in plan.groups
        },
        "net": None
        if plan.net is None
        else net_document(plan.net, plan.experiment.training.batch_size, value),
        "notes": list(plan.notes),
    }


def _masks(plan: Plan) -> dict[int, Mask]:
    """By shard: what becomes of an example's pooled values, where a share of them travels."""
    if plan.embedding is None or plan.embedding.service.keep is None:
        return {}
    service, width = plan.embedding.service, plan.experiment.model.row_width
    assert service.keep is not None
    return {
        shard.index: Mask.of(len(shard.slices), width, service.keep, service.mask)
        for shard in plan.embedding.shards
    }


def _threads(plan: Plan) -> str:
    """What each trainer's threads are."""
    if plan.operation_threads > 1:
        return f"one worker thread per trainer, its operations on {plan.operation_threads} threads"
    many = "s" if plan.worker_threads > 1 else ""
    return f"{plan.worker_threads} worker thread{many} per trainer"


def describe(plan: Plan, verdicts: Sequence[str] = ()) -> str:
    """The plan in lines for a person; what is alike is one line. ``verdicts``: lines that come
    before all details."""
    spec = plan.experiment
    model = spec.model
    total = sum(t.rows for t in model.tables) * shape.row_bytes(model)
    weights = shape.dense_parameters(model) * shape.value_bytes(model)
    options = ", ".join(
        f"{k}={v}" + (" by the job's size" if k in plan.followed else "")
        for k, v in flat(plan.options).items()
    )
    lines = [
        f"{spec.name}: {plan.strategy.kind}" + (f" ({options})" if options else ""),
        *(f"  {verdict}" for verdict in verdicts),
        f"  model {model.name}: {len(model.tables)} tables, {total / 2**20:,.1f} MiB of rows, "
        f"{weights / 2**20:,.2f} MiB dense",
        f"  {len(plan.instances)} processes, {len(plan.training)} training loops of "
        f"{spec.training.batch_size} examples an iteration, "
        f"{spec.training.warmup_steps} + {spec.training.steps} iterations",
        f"  training.threads={spec.training.threads}: {_threads(plan)}",
        f"  data: {spec.data.said}",
    ]
    masks = _masks(plan)
    for what, alike in groupby(plan.instances, key=lambda i: (i.role, *_held(plan, i, masks))):
        instances = list(alike)
        ranks = together(str(plan.rank(i)) for i in instances)
        names = together(i.name for i in instances)
        several = "s" if len(instances) > 1 else ""
        lines.append(f"  rank{several} {', '.join(ranks)}  {', '.join(names)}")
        lines += [f"      {part}" for part in what[1:]]
    lines += [
        f"  group {g.name}[{g.index}]: {', '.join(together(m.name for m in g.members))}"
        for g in plan.groups
    ]
    if (cache := plan.topology.cache) is not None:
        held_rows = f"{cache.rows:,} rows" if cache.rows else f"{cache.share:.0%} of its own rows"
        lines.append(f"  cache of each trainer: {held_rows if cache.keep else 'none'}")
    if plan.net is not None:
        lines += net_lines(plan.net, spec.training.batch_size, shape.value_bytes(model))
    lines += [f"  note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _held(plan: Plan, instance: Instance, masks: Mapping[int, Mask]) -> Iterator[str]:
    """What a process has: its loops, its shards."""
    model = plan.experiment.model
    if instance.role == "trainer":
        for fed, loops in groupby(plan.loops(instance.index), key=lambda loop: _fed(plan, loop)):
            labels = [loop.label for loop in loops]
            several = "s" if len(labels) > 1 else ""
            each = fed.replace(" fed", " each fed") if several else fed
            yield f"loop{several} {', '.join(together(labels))}{each}"
    for shard in plan.embedding.by_host.get(instance, ()) if plan.embedding else ():
        assert plan.embedding is not None
        size = sum(p.rows for p in shard.slices) * shape.row_bytes(model) / 2**20
        names = together(
            f"{p.table}"
            if p.rows == model.tables[p.table].rows
            else f"{p.table}[{p.start}:{p.stop}]"
            for p in shard.slices
        )
        yield f"embedding shard {shard.index}, {size:,.1f} MiB: tables {', '.join(names)}"
        if (mask := masks.get(shard.index)) is not None:
            yield (
                f"mask by {plan.embedding.service.mask}: {mask.all_kept:,} of "
                f"{mask.values:,} pooled values of an example travel "
                f"({mask.all_kept / mask.values:.2%})"
            )
    for part in plan.dense.shards if plan.dense else ():
        if part.host == instance:
            yield f"dense shard {part.index}: elements {part.start}:{part.stop}"


def _fed(plan: Plan, loop: LoopId) -> str:
    """Who makes a loop's batches; nothing where it takes none."""
    if loop not in plan.positions:
        return ""
    reader = plan.reader_of(loop)
    return f", fed by {reader.name if reader else 'itself'}"
