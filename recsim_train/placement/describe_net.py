"""A cut net in words and as a document: the tagged graph, and what each host runs."""

from __future__ import annotations

from recsim_train.placement.program import (
    ALL,
    DATA_PARALLEL,
    LOSS,
    Message,
    NetProgram,
    SubstitutedNet,
    TaggedNet,
)


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
        lines = [f"  net: partial results by {net.partition}, top {net.top}"]
        for p in net.partials:
            lines.append(f"      {p.operator} ({p.rule}): {p.width} numbers per example")
        total = net.width * net.hosts * batch * value_bytes
        lines.append(f"      summed over {net.hosts} workers: {total:,} bytes an iteration")
        return lines
    lines = [f"  net: operators of a group of {net.hosts} hosts"]
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


def _program(net: TaggedNet, host: int, batch: int, value_bytes: int) -> list[str]:
    lines = []
    last = len(net.messages)
    for level in range(last + 1):
        names = [o.name for o in net.operators(host, level)]
        names += [LOSS] if level == last else []
        lines.append(f"run {', '.join(names) or 'nothing'}")
        if level == last:
            continue
        for direction, mine, other in (
            ("send to", "source", "target"),
            ("from", "target", "source"),
        ):
            found: dict[int, list[Message]] = {}
            for m in net.messages[level]:
                if getattr(m, mine) == host and m.source != m.target:
                    found.setdefault(getattr(m, other), []).append(m)
            for peer, messages in sorted(found.items()):
                size = sum(net.bytes_of(m, batch, value_bytes, backward=False) for m in messages)
                what = ", ".join(_content(m) for m in messages)
                lines.append(f"{direction} host {peer}: {what} ({size:,} bytes)")
    lines.append("backward: the same in reverse, with gradients of the same messages")
    if net.shared_numbers:
        lines.append(f"sum {net.shared_numbers:,} shared gradients over the group, then step")
    return lines


def _content(m: Message) -> str:
    rows = "all examples" if m.rows == ALL else f"examples of host {m.rows}"
    return f"{m.value} ({rows})"
