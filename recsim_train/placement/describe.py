"""The description of a plan that ``--dry-run`` prints, in words and as a document; of a cut net the
tagged graph, and what each host runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

from recsim_train.placement.hosts import together
from recsim_train.placement.plan import Instance, LoopId, Plan
from recsim_train.placement.program import (
    ALL,
    DATA_PARALLEL,
    LOSS,
    Message,
    NetProgram,
    SubstitutedNet,
    TagCost,
    TaggedNet,
)
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
            "held_out": {
                "files": data.eval_path,
                "rows": data.eval_rows,
                "share": data.eval_share,
                "from": data.eval_from,
            },
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


def _summary(net: TaggedNet) -> str:
    """How much of the net is cut: "3 of 9 operators are model-parallel, cut at 4 edges"."""
    count, edges = len(net.model_parallel), net.cut_edges
    verb = "is" if count == 1 else "are"
    return (
        f"{count} of {len(net.graph.operators)} operators {verb} model-parallel, "
        f"cut at {edges} edge{'' if edges == 1 else 's'}"
    )


def _why(net: TaggedNet) -> str:
    """The two costs that the tagger compared, in modelled milliseconds."""
    choice = net.choice
    if choice is None or net.hosts == 1:
        return "a group of one host has nothing to cut"
    pins = f" ({choice.pinned} pinned)" if choice.pinned else ""
    shared = f"all data-parallel: {_parts(choice.data_parallel)}"
    if net.model_parallel:
        assert choice.cut is not None
        return f"modelled time of an iteration as tagged{pins}: {_parts(choice.cut)}; {shared}"
    if choice.cut is None:
        return f"every operator is pinned; modelled time of an iteration {shared}"
    return (
        f"modelled time of an iteration {shared}; with the cheapest cut that was tried{pins}: "
        f"{_parts(choice.cut)}"
    )


def _parts(cost: TagCost) -> str:
    parts = {
        "arithmetic": cost.arithmetic,
        "cuts": cost.cuts,
        "sum of gradients": cost.gradients,
        "outer sync": cost.outer,
    }
    said = ", ".join(f"{name} {seconds * 1e3:.3g}" for name, seconds in parts.items())
    return f"{cost.total * 1e3:.3g} ms ({said})"


def caution(net: TaggedNet) -> str:
    """What a reader must know of a net without a cut; empty: it is cut."""
    if net.model_parallel:
        return ""
    because = (
        "a group is one host"
        if net.hosts == 1
        else f"no operator of a group of {net.hosts} hosts is model-parallel"
    )
    return f"is data parallelism only: {because}, so nothing is cut"


def net_document(net: NetProgram, batch: int, value_bytes: int) -> dict[str, object]:
    """As JSON; ``batch``: examples of one host."""
    if isinstance(net, SubstitutedNet):
        return {
            "kind": "substituted",
            "partition": net.partition,
            "top": net.top,
            "partial_results": [
                {"operator": p.operator, "rule": p.rule, "numbers_per_example": p.width}
                for p in net.partials
            ],
            "numbers_per_example": net.width,
            "shared_numbers": net.shared_numbers,
        }
    return {
        "kind": "tagged",
        "hosts": net.hosts,
        "operators": [
            {
                "name": name,
                "inputs": list(inputs),
                "tag": _tag(net.tags[name]),
                "level": net.levels[name],
                "width": width,
                "parameters": elements,
            }
            for name, inputs, width, elements in _operators(net)
        ],
        "cuts": [
            [
                {
                    "value": m.value,
                    "source": m.source,
                    "target": m.target,
                    "bytes": net.bytes_of(m, batch, value_bytes, backward=False),
                }
                for m in cut
            ]
            for cut in net.messages
        ],
        "model_parallel": list(net.model_parallel),
        "cut_edges": net.cut_edges,
        "summary": _summary(net),
        "why": _why(net),
        "caution": caution(net),
        "modelled_seconds": None
        if net.choice is None
        else {
            "data_parallel": asdict(net.choice.data_parallel),
            "cut": None if net.choice.cut is None else asdict(net.choice.cut),
        },
        "shared_parameters": net.shared_numbers,
        "parameters_of_hosts": [net.elements(host) for host in range(net.hosts)],
    }


def _operators(net: TaggedNet) -> list[tuple[str, tuple[str, ...], int, int]]:
    graph = net.graph
    sources = [(name, (), width, 0) for name, width in graph.sources.items()]
    operators = [(o.name, o.inputs, o.width, o.elements) for o in graph.operators]
    return [*sources, *operators, (LOSS, (graph.logit,), 0, 0)]


def _tag(tag: int) -> str:
    return "dp" if tag == DATA_PARALLEL else f"host {tag}"


def net_lines(net: NetProgram, batch: int, value_bytes: int) -> list[str]:
    """For a person."""
    if isinstance(net, SubstitutedNet):
        total = net.width * net.hosts * batch * value_bytes
        parts = [f"{p.operator} ({p.rule}): {p.width}" for p in net.partials]
        return [
            f"  net: partial results by {net.partition}, top {net.top}",
            *(f"      {part} numbers per example" for part in parts),
            f"      summed over {net.hosts} workers: {total:,} bytes an iteration",
        ]
    lines = [
        f"  net: operators of a group of {net.hosts} host{'' if net.hosts == 1 else 's'}: "
        f"{_summary(net)}",
        f"      {_why(net)}",
    ]
    for name, inputs, width, elements in _operators(net):
        reads = f" of {', '.join(inputs)}" if inputs else ""
        size = f", width {width}, {elements:,} parameters" if name != LOSS else ""
        lines.append(
            f"      [{_tag(net.tags[name]):>6}] level {net.levels[name]}: {name}{reads}{size}"
        )
    for host in range(net.hosts):
        lines.append(f"  program of host {host}: {net.elements(host):,} parameters")
        lines += [f"      {line}" for line in _program(net, host, batch, value_bytes)]
    return lines


def _program(net: TaggedNet, host: int, batch: int, value_bytes: int) -> Iterator[str]:
    last = len(net.messages)
    for level in range(last + 1):
        names = [o.name for o in net.operators(host, level)]
        names += [LOSS] if level == last else []
        yield f"run {', '.join(names) or 'nothing'}"
        if level == last:
            continue
        for direction, mine, other in (
            ("send to", "source", "target"),
            ("from", "target", "source"),
        ):
            by_peer: dict[int, list[Message]] = {}
            for m in net.messages[level]:
                if getattr(m, mine) == host and m.source != m.target:
                    by_peer.setdefault(getattr(m, other), []).append(m)
            for peer, messages in sorted(by_peer.items()):
                size = sum(net.bytes_of(m, batch, value_bytes, backward=False) for m in messages)
                what = ", ".join(_content(m) for m in messages)
                yield f"{direction} host {peer}: {what} ({size:,} bytes)"
    yield "backward: the same in reverse, with gradients of the same messages"
    if net.shared_numbers:
        yield f"sum {net.shared_numbers:,} shared gradients over the group, then step"


def _content(m: Message) -> str:
    rows = "all examples" if m.rows == ALL else f"examples of host {m.rows}"
    return f"{m.value} ({rows})"
