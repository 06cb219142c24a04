"""Equivalent substitution (DES, arXiv 1909.04823): which partial results a net needs.

Every operator that reads embeddings becomes a sub-operator over the slice that a worker owns, and
its partial results are added up. Of a deep branch either the first layer's partial outputs travel
or the vectors themselves, whichever is narrower. A Deep & Cross tower needs one round for all its
layers: x_l = a_l x_0 + (biases), so that every x_l w is known from the x_0 w's.
"""

from __future__ import annotations

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment
from recsim_train.placement.program import Partial, SubstitutedNet
from recsim_train.strategy.net import NetRequest
from recsim_train.workload.graph import POOLED, graph_of


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
