"""The description of a cut net: the tagged graph, and what each host runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

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


def summary(net: TaggedNet) -> str:
    """How much of the net is cut: "3 of 9 operators are model-parallel, cut at 4 edges"."""
    count, edges = len(net.model_parallel), net.cut_edges
    verb = "is" if count == 1 else "are"
    return (
        f"{count} of {len(net.graph.operators)} operators {verb} model-parallel, "
        f"cut at {edges} edge{'' if edges == 1 else 's'}"
    )


def why(net: TaggedNet) -> str:
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
        "summary": summary(net),
        "why": why(net),
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
        f"{summary(net)}",
        f"      {why(net)}",
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
