"""The cut of a net over the hosts of a group: along tags, or by equivalent substitution.

Tagging says which host runs which operator, and transformation cuts the net along the tags.
Hierarchical Training (KDD 2021) names these two layers; how they work inside is our reconstruction.
A group of G hosts reads G batches. An operator is data-parallel (each host runs it on its own
batch, its gradients are summed within the group) or belongs to one host, which runs it on all G
batches and alone holds its parameters.

Equivalent substitution (DES, arXiv 1909.04823) says which partial results a net needs. Every
operator that reads embeddings becomes a sub-operator over the slice that a worker owns, and its
partial results are added up. Of a deep branch either the first layer's partial outputs travel or
the vectors themselves, whichever is narrower. A Deep & Cross tower needs one round for all its
layers: x_l = a_l x_0 + (biases), so that every x_l w is known from the x_0 w's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from recsim_train.config.cluster import ASSUMED_THREADS
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment
from recsim_train.placement.program import (
    ALL,
    DATA_PARALLEL,
    LOSS,
    Message,
    Partial,
    SubstitutedNet,
    TagChoice,
    TagCost,
    TaggedNet,
)
from recsim_train.strategy.net import NetRequest
from recsim_train.workload.arithmetic import Piece
from recsim_train.workload.graph import POOLED, SOURCES, Graph, Operator, graph_of
from recsim_train.workload.scope import Divided
from recsim_train.workload.threads import gains, wakes

_ROUNDS = 20


def tagged(
    graph: Graph, request: NetRequest, batch: int, value_bytes: int, threads: int = 1
) -> TaggedNet:
    """The net cut along tags by cost, pinned ones as they are; ``batch``: examples of one host;
    ``threads``: on which each of its operations runs.

    From all operators data-parallel, tags of runs of neighbouring operators are changed as long as
    the modelled time of an iteration falls; see `cost`.
    """
    pins = read_pins(graph, request)
    names = [operator.name for operator in graph.operators]
    free = [name for name in names if name not in pins] if request.hosts > 1 else []

    def price_of(tags: Mapping[str, int]) -> TagCost:
        return cost(transform(graph, request, tags), request, batch, value_bytes, threads)

    shared = dict.fromkeys(names, DATA_PARALLEL)
    tags = {**shared, **pins}
    best = price_of(tags)
    cheapest = None if tags == shared else best
    for _ in range(_ROUNDS if free else 0):
        # Hosts that run nothing alone are all alike: one of them stands for the others.
        used = {*tags.values(), *pins.values()} - {DATA_PARALLEL}
        idle = (host for host in range(request.hosts) if host not in used)
        places = [DATA_PARALLEL, *sorted(used), *itertools.islice(idle, 1)]
        candidates = [
            {**tags, **dict.fromkeys(free[first : last + 1], place)}
            for first in range(len(free))
            for last in range(first, len(free))
            for place in places
        ]
        priced = [(price_of(candidate), candidate) for candidate in candidates]
        cut = [price for price, candidate in priced if candidate != shared]
        cheapest = min([*cut, *filter(None, [cheapest])], key=lambda price: price.total)
        least, candidate = min(priced, key=lambda pair: pair[0].total)
        if least.total >= best.total * (1 - 1e-9):
            break
        tags, best = candidate, least
    net = transform(graph, request, tags)
    choice = TagChoice(price_of(shared), best if net.model_parallel else cheapest, len(pins))
    return replace(net, choice=choice)


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


_CLASSES = {"linear": ("products", "gemm_flop"), "dot": ("pairs", "dot_flop")}


def operator_seconds(
    graph: Graph, operator: Operator, examples: int, flops: float, threads: int
) -> float:
    """Of a pass forward and backward on ``threads`` threads, each of so many ``flops`` a second.

    How threads gain, and what waking them takes, is assumed: the hosts' own law is not known here.
    """
    seconds = examples * operator_flops(graph, operator) / flops
    group, price = _CLASSES.get(operator.kind, ("streams", "stream_byte"))
    found = wakes(graph, Piece(operator.name, examples))
    work = {price: seconds} if group in found else {}
    split = Divided(work, sum(found.values()))
    return seconds - gains(split, {price: 1.0}, ASSUMED_THREADS, threads).saved


def cost(
    net: TaggedNet, request: NetRequest, batch: int, value_bytes: int, threads: int = 1
) -> TagCost:
    """Modelled seconds of one iteration of a group; ``batch``: examples of one host.

    Hosts meet at every cut, so between two of them the slowest counts: 6 flops per weight and
    example, of an operator at one host for all hosts' examples, divided over ``threads`` by the
    law of `recsim_train.workload.threads`. At a cut the busiest link counts,
    forward and backward. Gradients of shared parameters are summed by ring all-reduce, 2(G-1)
    steps of a G-th of their bytes, which are twice as many where moves of other groups travel with
    them. Outer synchronisation moves what a host answers for, to and from a central copy or by
    ring all-reduce over the N groups, every k iterations. An operator's parameters at one host are
    not in the group's sum, and outside only their owner moves them.
    """
    hosts, link = net.hosts, request.bandwidth
    everyone = range(hosts)

    def seconds(host: int, level: int) -> float:
        return sum(
            operator_seconds(
                net.graph,
                o,
                batch * (1 if net.tags[o.name] == DATA_PARALLEL else hosts),
                request.flops,
                threads,
            )
            for o in net.operators(host, level)
        )

    def ring(size: float, members: int) -> float:
        return 2 * (members - 1) * (request.latency + size / members / link) if size else 0.0

    levels = range(len(net.messages) + 1)
    arithmetic = sum(max(seconds(host, level) for host in everyone) for level in levels)
    cuts = sum(
        request.latency + _busiest(net, cut, batch, value_bytes, backward=backward) / link
        for cut in range(len(net.messages))
        for backward in (False, True)
    )
    gradients = ring(net.shared_numbers * value_bytes * (2 if net.outer else 1), hosts)
    outer = 0.0
    if net.outer:
        answered = max(map(net.answered_elements, everyone)) * value_bytes
        outer = (
            2 * (request.latency + answered / link)
            if request.central
            else ring(answered, request.groups)
        )
    return TagCost(arithmetic, cuts, gradients, outer / request.every)


def _busiest(net: TaggedNet, cut: int, batch: int, value_bytes: int, *, backward: bool) -> int:
    """Bytes through the busiest link of the group's hosts, in or out."""
    out, into = [0] * net.hosts, [0] * net.hosts
    for m in net.messages[cut]:
        if m.source != m.target:
            size = net.bytes_of(m, batch, value_bytes, backward=backward)
            out[m.source] += size
            into[m.target] += size
    return max(*out, *into)


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


def substitute(
    experiment: Experiment,
    request: NetRequest,
    hosts: int,
    fields: tuple[tuple[int, ...], ...],
) -> SubstitutedNet:
    """The substituted net. Raises UserError where the partition cannot be."""
    model = experiment.model
    graph = graph_of(model)
    if request.partition == "field" and hosts > len(model.tables):
        raise UserError(
            f"partition: field deals whole tables, and {len(model.tables)} tables are too few for "
            f"{hosts} trainers; use partition: hash or column"
        )
    if request.partition == "column":
        if hosts > model.embedding_dim:
            raise UserError(
                f"partition: column deals the {model.embedding_dim} columns of embedding_dim, too "
                f"few for {hosts} trainers"
            )
        if experiment.training.sparse_optimizer != "sgd":
            raise UserError(
                "partition: column needs training.sparse_optimizer: sgd, because "
                f"{experiment.training.sparse_optimizer} keeps one state for a whole row"
            )
    narrow = graph.tables * graph.dim
    bags = any(table.ids > 1 or table.variable for table in model.tables)
    whole = Partial(POOLED, "gather", narrow)
    partials: list[Partial] = []
    before: tuple[str, ...] = ()
    split: list[tuple[str, int]] = []
    if model.kind == "dlrm":
        if request.partition == "column":
            before = tuple(o.name for o in graph.operators if o.name.startswith("bottom."))
            partials.append(Partial("interaction", "pairs", (graph.tables + 1) * graph.tables // 2))
        else:
            partials.append(whole)
    else:
        first = "deep.0"
        gathers = graph.operator(first).width >= narrow or (
            model.kind == "deepfm" and bags and request.partition == "hash"
        )
        if model.has_wide:
            partials.append(Partial("wide.sum", "sum", 1))
        if gathers:
            partials.append(whole)
        else:
            partials.append(Partial(first, "linear", graph.operator(first).width))
            split.append((first, 0))
            if model.kind == "deepfm" and request.partition == "column":
                partials.append(Partial("fm", "fm_columns", 1))
            elif model.kind == "deepfm":
                partials.append(Partial("fm", "fm_vectors", graph.dim + 1))
            if model.kind == "dcn":
                cross = [o.name for o in graph.operators if o.kind == "cross"]
                partials.append(Partial("cross", "cross", 2 * (len(cross) + 1)))
                split += [(name, index) for name in cross for index in (0, 1)]
                split.append((graph.logit, 0))
    rest = tuple(o.name for o in graph.operators if o.name not in before)
    return SubstitutedNet(
        graph,
        hosts,
        request.partition,
        request.top,
        tuple(partials),
        before,
        rest,
        fields,
        tuple(split),
    )
