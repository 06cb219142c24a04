"""Tagging: which host runs which operator. Transformation: the net is cut along the tags.

Hierarchical Training (KDD 2021) names these two layers; how they work inside is our reconstruction.
A group of G hosts reads G batches. An operator is data-parallel (each host runs it on its own
batch, its gradients are summed within the group) or belongs to one host, which runs it on all G
batches and alone holds its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsim_train.config.errors import UserError
from recsim_train.placement.program import ALL, DATA_PARALLEL, LOSS, Message, TaggedNet
from recsim_train.strategy.net import NetRequest
from recsim_train.workload.graph import SOURCES, Graph, Operator

_ROUNDS = 20


def tag(graph: Graph, request: NetRequest, batch: int, value_bytes: int) -> dict[str, int]:
    """Tags by cost, pinned ones as they are.

    The cost of a set of tags is the time of the busiest host, its arithmetic and its bytes one
    after the other: 6 flops per weight and example; activations and their gradients at cuts;
    gradients of shared parameters by ring all-reduce (2(G-1)/G, each way). From all operators
    data-parallel, tags of runs of neighbouring operators are changed as long as that helps.
    """
    hosts = request.hosts
    pins = read_pins(graph, request)
    names = [operator.name for operator in graph.operators]
    free = [name for name in names if name not in pins]
    tags = {name: pins.get(name, DATA_PARALLEL) for name in names}
    best = cost(graph, request, tags, batch, value_bytes)
    for _ in range(_ROUNDS if hosts > 1 and free else 0):
        candidates = []
        for first in range(len(free)):
            for last in range(first, len(free)):
                for host in range(DATA_PARALLEL, hosts):
                    changed = {**tags, **dict.fromkeys(free[first : last + 1], host)}
                    candidates.append(changed)
        found = min(candidates, key=lambda c: cost(graph, request, c, batch, value_bytes))
        least = cost(graph, request, found, batch, value_bytes)
        if least >= best * (1 - 1e-9):
            break
        tags, best = found, least
    return tags


def read_pins(graph: Graph, request: NetRequest) -> dict[str, int]:
    """Pinned tags from "top.0=1, bottom.0=dp". Raises UserError for what does not exist."""
    pins: dict[str, int] = {}
    names = [operator.name for operator in graph.operators]
    for part in filter(None, (p.strip() for p in request.pins.split(","))):
        name, _, where = (word.strip() for word in part.partition("="))
        if name not in names:
            raise UserError(f"tags: no operator {name!r} in this net; it has: {', '.join(names)}")
        if where == "dp":
            pins[name] = DATA_PARALLEL
        elif where.isdecimal() and int(where) < request.hosts:
            pins[name] = int(where)
        else:
            raise UserError(
                f"tags: expected dp or a host from 0 to {request.hosts - 1} for {name!r}, "
                f"got {where!r}"
            )
    return pins


def operator_flops(graph: Graph, operator: Operator) -> float:
    """Floating-point operations per example, forward and backward."""
    if operator.kind == "linear":
        return 6.0 * graph.inputs(operator) * operator.width
    if operator.kind == "dot":
        return 6.0 * (graph.tables + 1) ** 2 * graph.dim
    return 6.0 * graph.inputs(operator)


def cost(
    graph: Graph, request: NetRequest, tags: Mapping[str, int], batch: int, value_bytes: int
) -> float:
    """Modelled seconds of the busiest host of a group for one iteration."""
    hosts = request.hosts
    arithmetic = [0.0] * hosts
    bytes_out, bytes_in = [0.0] * hosts, [0.0] * hosts
    shared = 0
    for operator in graph.operators:
        work = operator_flops(graph, operator) * batch
        if tags[operator.name] == DATA_PARALLEL:
            arithmetic = [a + work for a in arithmetic]
            shared += operator.elements
        else:
            arithmetic[tags[operator.name]] += work * hosts
    net = transform(graph, request, tags)
    for messages in net.messages:
        for m in messages:
            if m.source != m.target:
                for backward in (False, True):
                    out, into = (m.target, m.source) if backward else (m.source, m.target)
                    moved = net.bytes_of(m, batch, value_bytes, backward=backward)
                    bytes_out[out] += moved
                    bytes_in[into] += moved
    ring = 2 * (hosts - 1) / hosts * shared * value_bytes
    return max(
        arithmetic[h] / request.flops + (max(bytes_out[h], bytes_in[h]) + ring) / request.bandwidth
        for h in range(hosts)
    )


def transform(graph: Graph, request: NetRequest, tags: Mapping[str, int]) -> TaggedNet:
    """Cut the net along its tags: levels, and the messages between them.

    The loss stays with the labels, so the logit always returns to the hosts of its examples.
    """
    hosts = request.hosts
    if hosts == 1:  # its own examples are everybody's
        tags = dict.fromkeys(tags, DATA_PARALLEL)
    tags = {**dict.fromkeys(graph.sources, DATA_PARALLEL), **tags, LOSS: DATA_PARALLEL}
    levels = dict.fromkeys(graph.sources, 0)
    needs: dict[tuple[str, int], int] = {}
    readers = [(o.name, o.inputs) for o in graph.operators] + [(LOSS, (graph.logit,))]
    for name, inputs in readers:
        level = 0
        for value in inputs:
            moves = tags[value] != tags[name]
            level = max(level, levels[value] + moves)
            if moves:
                needs[value, tags[name]] = levels[value]
        levels[name] = level
    cuts: list[list[Message]] = [[] for _ in range(levels[LOSS])]
    for (value, where), level in needs.items():
        cuts[level] += _messages(value, tags[value], where, hosts)
    order = {name: place for place, name in enumerate([*SOURCES, *(n for n, _ in readers)])}
    messages = tuple(
        tuple(sorted(cut, key=lambda m: (order[m.value], m.source, m.target))) for cut in cuts
    )
    return TaggedNet(
        graph,
        hosts,
        tags,
        levels,
        messages,
        request.precision,
        request.keep,
        request.mask,
        request.outer,
    )


def _messages(value: str, tag: int, where: int, hosts: int) -> list[Message]:
    """How a value comes from where ``tag`` puts it to where it is wanted."""
    if tag == DATA_PARALLEL:
        return [Message(value, h, where, h, spread=True, gathered=True) for h in range(hosts)]
    if where == DATA_PARALLEL:
        return [Message(value, tag, h, h, spread=False, gathered=False) for h in range(hosts)]
    return [Message(value, tag, where, ALL, spread=False, gathered=True)]
