"""The description of a plan that ``--dry-run`` prints: in words, and as a document."""

from __future__ import annotations

from recsim_train.placement.describe_net import net_document, net_lines
from recsim_train.placement.plan import Plan
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


def describe(plan: Plan) -> str:
    """The plan in lines for a person."""
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
        f"  model {model.name}: {len(model.tables)} tables, {total / 2**20:,.1f} MiB of rows, "
        f"{weights / 2**20:,.2f} MiB dense",
        f"  {len(plan.instances)} processes, {len(plan.training)} training loops of "
        f"{spec.training.batch_size} examples an iteration, "
        f"{spec.training.warmup_steps} + {spec.training.steps} iterations",
        f"  training.threads={spec.training.threads}: {_threads(plan)}",
        f"  data: {spec.data.said}",
    ]
    masks = _masks(plan)
    for instance in plan.instances:
        lines.append(f"  rank {plan.rank(instance)}  {instance.name}")
        if instance.role == "trainer":
            for loop in plan.loops(instance.index):
                reader = plan.reader_of(loop)
                fed = f", fed by {reader.name if reader else 'itself'}"
                lines.append(f"      loop {loop.label}{fed if loop in plan.positions else ''}")
        for shard in plan.embedding.shards if plan.embedding else ():
            if shard.host == instance:
                size = sum(p.rows for p in shard.slices) * shape.row_bytes(model) / 2**20
                names = ", ".join(
                    f"{p.table}"
                    if p.rows == model.tables[p.table].rows
                    else f"{p.table}[{p.start}:{p.stop}]"
                    for p in shard.slices
                )
                lines.append(
                    f"      embedding shard {shard.index}, {size:,.1f} MiB: tables {names}"
                )
                if (mask := masks.get(shard.index)) is not None:
                    assert plan.embedding is not None
                    lines.append(
                        f"      mask by {plan.embedding.service.mask}: {mask.all_kept:,} of "
                        f"{mask.values:,} pooled values of an example travel "
                        f"({mask.all_kept / mask.values:.2%})"
                    )
        for part in plan.dense.shards if plan.dense else ():
            if part.host == instance:
                lines.append(f"      dense shard {part.index}: elements {part.start}:{part.stop}")
    lines += [
        f"  group {g.name}[{g.index}]: {', '.join(m.name for m in g.members)}" for g in plan.groups
    ]
    if (cache := plan.topology.cache) is not None:
        held = f"{cache.rows:,} rows" if cache.rows else f"{cache.share:.0%} of its own rows"
        lines.append(f"  cache of each trainer: {held if cache.keep else 'none'}")
    if plan.net is not None:
        lines += net_lines(plan.net, spec.training.batch_size, shape.value_bytes(model))
    lines += [f"  note: {note}" for note in plan.notes]
    return "\n".join(lines)
