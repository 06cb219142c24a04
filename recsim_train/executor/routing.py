"""The client's side of lookups: which ids go to which shard, and how answers are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from recsim_train.executor.embedding import sum_by_row
from recsim_train.executor.values import TableLayout, TensorIds, UniqueIds
from recsim_train.placement.plan import TableSlice

_NO_LENGTHS = torch.empty(0, dtype=torch.int32)


@dataclass(slots=True, eq=False)
class ShardRequest:
    """One shard's part of a lookup."""

    ids: Tensor
    """int64, slice by slice: all ids (pooled), or distinct ids."""
    lengths: Tensor
    """Pooled: int32 [ragged slices * batch]; else empty."""
    counts: list[int]
    """Ids per slice, where distinct ids are sent; else empty."""
    places: list[int]
    """First place of each slice's ids among the batch's distinct ids; else empty."""


class Router:
    """Where the rows of every table are: the slices of every shard, in shard order."""

    def __init__(
        self,
        layout: TableLayout,
        shards: Sequence[Sequence[TableSlice]],
        split: frozenset[int],
        dim: int,
    ) -> None:
        self.layout = layout
        self.shards = [tuple(slices) for slices in shards]
        self.split = split
        self.dim = dim
        firsts, lasts = [], []
        for slices in self.shards:
            for part in slices:
                base = layout.bases[part.table]
                firsts.append(base + part.start)
                lasts.append(base + part.stop)
        self.bounds = torch.tensor(firsts + lasts, dtype=torch.int64)
        tables = [part.table for slices in self.shards for part in slices]
        self.table_order = tables == list(range(layout.tables))
        """Whether the shards' answers, one after the other, are in table order."""
        self.table_index = torch.tensor(tables, dtype=torch.int64)
        self.whole = not split
        self.source = torch.argsort(self.table_index, stable=True)
        """Place among all shards' slices of every table, where no table is split."""


def deduplicate(layout: TableLayout, ids: TensorIds) -> UniqueIds:
    """Distinct ids of a batch per table, by one sort over all tables."""
    counts = torch.tensor(ids.starts).diff()
    base = layout.base[:-1].repeat_interleave(counts, output_size=ids.values.numel())
    ordered, order = torch.sort(ids.values + base, stable=True)
    numbers, back, repeats = torch.unique_consecutive(
        ordered, return_inverse=True, return_counts=True
    )
    inverse = torch.empty_like(back).scatter_(0, order, back)
    offsets = repeats.cumsum(0) - repeats
    table = torch.searchsorted(layout.base, numbers, right=True).sub_(1)
    values = numbers - layout.base.index_select(0, table)
    return UniqueIds(ids, values, numbers, inverse, order, offsets)


def route_ids(router: Router, ids: TensorIds | UniqueIds) -> list[ShardRequest]:
    """What every shard is asked for."""
    if isinstance(ids, UniqueIds):
        return _route_unique(router, ids)
    return [_pooled_request(router, slices, ids) for slices in router.shards]


def _route_unique(router: Router, ids: UniqueIds) -> list[ShardRequest]:
    bounds = torch.searchsorted(ids.numbers, router.bounds).tolist()
    half = len(bounds) // 2
    requests, at = [], 0
    for slices in router.shards:
        firsts = bounds[at : at + len(slices)]
        lasts = bounds[half + at : half + at + len(slices)]
        at += len(slices)
        counts = [last - first for first, last in zip(firsts, lasts, strict=True)]
        parts = [ids.values[a:b] for a, b in zip(firsts, lasts, strict=True)]
        requests.append(ShardRequest(torch.cat(parts), _NO_LENGTHS, counts, firsts))
    return requests


def _pooled_request(
    router: Router, slices: Sequence[TableSlice], ids: TensorIds
) -> ShardRequest:
    parts, lengths = [], []
    for part in slices:
        values = ids.table(part.table)
        if part.table in router.split:
            inside = (values >= part.start) & (values < part.stop)
            lengths.append(_lengths_inside(ids, part.table, inside))
            values = values[inside]
        elif router.layout.variable[part.table]:
            lengths.append(ids.table_lengths(part.table))
        parts.append(values)
    joined = torch.cat(lengths) if lengths else _NO_LENGTHS
    return ShardRequest(torch.cat(parts), joined, [], [])


def _lengths_inside(ids: TensorIds, table: int, inside: Tensor) -> Tensor:
    """Ids per example that are inside a slice, int32 [batch]."""
    if not ids.layout.variable[table]:
        return inside.view(ids.batch, ids.layout.hotness[table]).sum(1, dtype=torch.int32)
    lengths = ids.table_lengths(table).to(torch.int64)
    example = torch.arange(ids.batch).repeat_interleave(lengths, output_size=inside.numel())
    total = torch.zeros(ids.batch, dtype=torch.int32)
    return total.index_add_(0, example, inside.to(torch.int32))


def assemble_rows(
    router: Router,
    requests: Sequence[ShardRequest],
    answers: Sequence[Tensor],
    ids: TensorIds | UniqueIds,
) -> Tensor:
    """The shards' answers in table order: [tables, batch, dim], or rows [distinct ids, dim].

    Parts of a split table are added in shard order.
    """
    if isinstance(ids, UniqueIds):
        return _assemble_unique(requests, answers, ids, router.dim)
    if len(answers) == 1 and router.table_order:
        return answers[0]
    if router.whole:
        joined = answers[0] if len(answers) == 1 else torch.cat(list(answers))
        return joined if router.table_order else joined.index_select(0, router.source)
    out = answers[0].new_zeros((router.layout.tables, ids.batch, router.dim))
    for slices, answer in zip(router.shards, answers, strict=True):
        for place, part in enumerate(slices):
            out[part.table].add_(answer[place])
    return out


def _assemble_unique(
    requests: Sequence[ShardRequest], answers: Sequence[Tensor], ids: UniqueIds, dim: int
) -> Tensor:
    out = answers[0].new_empty((ids.values.numel(), dim))
    for request, answer in zip(requests, answers, strict=True):
        at = 0
        for place, count in zip(request.places, request.counts, strict=True):
            out[place : place + count] = answer[at : at + count]
            at += count
    return out


def route_gradient(
    router: Router, requests: Sequence[ShardRequest], gradient: Tensor, pooled: bool
) -> list[Tensor]:
    """Every shard's part of a gradient: [slices, batch, dim], or [distinct ids, dim]."""
    if pooled:
        if len(requests) == 1 and router.table_order:
            return [gradient.contiguous()]
        parts, at = [], 0
        for slices in router.shards:
            index = router.table_index[at : at + len(slices)]
            parts.append(gradient.index_select(0, index))
            at += len(slices)
        return parts
    return [
        torch.cat(
            [
                gradient[place : place + count]
                for place, count in zip(request.places, request.counts, strict=True)
            ]
        )
        for request in requests
    ]


def pool(ids: UniqueIds, rows: Tensor) -> Tensor:
    """Bags [tables, batch, dim] of rows of distinct ids [distinct, dim]."""
    source = ids.source
    if source.layout.single:
        pooled = functional.embedding_bag(ids.inverse.view(-1, 1), rows, mode="sum")
    else:
        lengths = source.bag_lengths()
        offsets = lengths.cumsum(0) - lengths
        pooled = functional.embedding_bag(ids.inverse, rows, offsets, mode="sum")
    return pooled.view(source.layout.tables, source.batch, rows.shape[1])


def unpool(ids: UniqueIds, gradient: Tensor) -> Tensor:
    """Gradient of distinct ids' rows [distinct, dim] from that of the bags."""
    source, flat = ids.source, gradient.reshape(-1, gradient.shape[2])
    lines = ids.order
    if not source.layout.single:
        lengths = source.bag_lengths()
        bags = torch.arange(lengths.numel()).repeat_interleave(
            lengths, output_size=ids.inverse.numel()
        )
        lines = bags.index_select(0, ids.order)
    return functional.embedding_bag(lines, flat, ids.offsets, mode="sum")


__all__ = [
    "Router",
    "ShardRequest",
    "assemble_rows",
    "deduplicate",
    "pool",
    "route_gradient",
    "route_ids",
    "sum_by_row",
    "unpool",
]
