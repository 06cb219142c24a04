"""Compiled passes over all tables against the same, written out table by table with torch.

Results are the same to the last bit: sums are made in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recsim_train.config.experiment import Model, Table, Training
from recsim_train.executor.net import kernels
from recsim_train.executor.net import rows as row_kernels
from recsim_train.executor.shards.routing import (
    Routed,
    ShardSlices,
    assemble_rows,
    route_gradient,
    route_ids,
)
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.executor.worker import EmbeddingState, Replica, Worker
from recsim_train.placement.plan import TableSlice

DIM = 3
Shards = list[list[TableSlice]]


# ---------------------------------------------------------------- table by table


@dataclass
class Plain:
    """One shard's ids: of each slice its ids, and of each bag their number."""

    values: list[Tensor]
    lengths: list[Tensor]


def plain_route(ids: RealIds, slices: list[TableSlice], split: frozenset[int]) -> Plain:
    values, lengths = [], []
    for part in slices:
        own, length = ids.table(part.table), ids.lengths[part.table]
        if length is None and ids.inverse is None:
            length = torch.full((ids.batch,), own.numel() // ids.batch, dtype=torch.int32)
        if part.table in split:
            inside = (own >= part.start) & (own < part.stop)
            if part.step > 1:
                inside &= own % part.step == part.start
            if length is not None:
                bag = torch.repeat_interleave(torch.arange(ids.batch), length)
                none = torch.zeros(ids.batch, dtype=torch.int32)
                length = none.index_add_(0, bag, inside.to(torch.int32))
            own = own[inside]
        values.append(own)
        lengths.append(torch.empty(0, dtype=torch.int32) if length is None else length)
    return Plain(values, lengths)


def plain_lookup(state: EmbeddingState, plain: Plain) -> tuple[Tensor, Tensor, Tensor]:
    """(sums per bag, places, the bag of each id)."""
    places, base = [], 0
    for part, own in zip(state.slices, plain.values, strict=True):
        places.append(own // part.step - part.start // part.step + base)
        base += part.rows
    where, sizes = torch.cat(places), torch.cat(plain.lengths).long()
    starts = sizes.cumsum(0) - sizes
    sums = torch.nn.functional.embedding_bag(where, state.rows, starts, mode="sum")
    bags = torch.repeat_interleave(sizes)
    return sums.view(len(plain.values), -1, state.rows.shape[1]), where, bags


def plain_assemble(tables: int, shards: Shards, answers: list[Tensor]) -> Tensor:
    whole: list[Any] = [None] * tables
    for slices, answer in zip(shards, answers, strict=True):
        for part, vectors in zip(slices, answer, strict=True):
            held = whole[part.table]
            whole[part.table] = vectors if held is None else held + vectors
    return torch.stack(whole)


def plain_unique(model: Model, ids: RealIds) -> tuple[Tensor, Tensor, list[int]]:
    base = torch.tensor([0, *(t.rows for t in model.tables)]).cumsum(0)
    sizes = torch.tensor(ids.offsets).diff()
    shifted = ids.values + torch.repeat_interleave(base[:-1], sizes)
    unique, inverse = torch.unique(shifted, return_inverse=True)
    cuts = torch.searchsorted(unique, base)
    values = unique - torch.repeat_interleave(base[:-1], cuts.diff())
    return values, inverse, cuts.tolist()


# ---------------------------------------------------------------- cases


@dataclass
class Case:
    model: Model
    shards: Shards
    split: frozenset[int]
    ids: RealIds

    def states(self) -> list[EmbeddingState]:
        return [EmbeddingState(self.model, Training(), 3, slices) for slices in self.shards]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Tables of one or several ids a bag, whole at some shard or split over several."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    batch, shards = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    by_remainder = draw(st.booleans())
    tables, slices = [], [list[TableSlice]() for _ in range(shards)]
    split, values, lengths, offsets = set(), [], [], [0]
    for number in range(draw(st.integers(1, 5))):
        ids, variable = draw(st.integers(1, 3)), draw(st.booleans())
        table = Table(rows=int(random.choice([1, 4, 300, 70_000])), ids=ids, variable=variable)
        tables.append(table)
        if table.rows > shards and draw(st.booleans()):
            split.add(number)
            cuts = np.linspace(0, table.rows, shards + 1).astype(int).tolist()
            for shard, own in enumerate(slices):
                bounds = (shard, table.rows, shards) if by_remainder else (*cuts[shard:][:2], 1)
                own.append(TableSlice(number, *bounds))
        else:
            slices[random.integers(shards)].append(TableSlice(number, 0, table.rows))
        sizes = random.integers(0, ids + 1, batch) if variable else np.full(batch, ids)
        lengths.append(torch.from_numpy(sizes.astype(np.int32)) if variable else None)
        values.append(torch.from_numpy(random.integers(0, table.rows, sizes.sum())))
        offsets.append(offsets[-1] + int(sizes.sum()))
    model = Model(embedding_dim=DIM, bottom_mlp=(DIM,), top_mlp=(1,), tables=tuple(tables))
    held = [own for own in slices if own]
    if by_remainder:  # a shard's slices have one step
        held = [own for own in held if len({part.step for part in own}) == 1]
        kept = {part.table for own in held for part in own}
        if kept != set(range(len(tables))):
            held = [[TableSlice(t, 0, table.rows) for t, table in enumerate(tables)]]
            split = set()
    ids_of = RealIds(torch.cat(values), tuple(offsets), tuple(lengths), batch)
    return Case(model, held, frozenset(split), ids_of)


@given(cases())
@settings(max_examples=150)
def test_pooled_vectors_and_their_gradients_are_those_of_the_plain_way(case: Case) -> None:
    parts = ShardSlices(case.model, case.shards, case.split)
    routed, answers = route_ids(case.ids, parts), []
    for state, asked, slices in zip(case.states(), routed, case.shards, strict=True):
        plain = plain_route(case.ids, slices, case.split)
        assert asked.values.tolist() == torch.cat(plain.values).tolist()
        assert asked.sizes == tuple(map(len, plain.values))
        sent = [lengths for s, lengths in enumerate(plain.lengths) if asked.varying[s]]
        assert asked.lengths.tolist() == [size for lengths in sent for size in lengths.tolist()]
        sums, places, bags = kernels.lookup_pooled(state, asked)
        wanted, where, whose = plain_lookup(state, plain)
        assert torch.equal(sums, wanted)
        assert places.tolist() == where.tolist()
        assert (bags if bags.size else np.arange(places.size)).tolist() == whose.tolist()
        answers.append(sums)
    pooled = assemble_rows(case.ids, parts, routed, answers)
    assert torch.equal(pooled.tensor, plain_assemble(len(case.model.tables), case.shards, answers))
    pieces = route_gradient(pooled, parts, routed)
    for piece, slices in zip(pieces, case.shards, strict=True):
        assert torch.equal(piece, pooled.tensor[[part.table for part in slices]])


@given(cases())
@settings(max_examples=150)
def test_rows_of_distinct_ids_are_those_of_the_plain_way(case: Case) -> None:
    worker = Worker(Replica(case.model, Training(), 3), "worker")
    ids = kernels.deduplicate(worker, case.ids)
    values, inverse, cuts = plain_unique(case.model, case.ids)
    assert torch.equal(ids.values, values)
    assert ids.inverse is not None
    assert torch.equal(ids.inverse, inverse)
    assert list(ids.offsets) == cuts
    if any(part.step > 1 for slices in case.shards for part in slices):
        return  # the ids of a slice are no run of a table's
    parts = ShardSlices(case.model, case.shards, case.split)
    routed, answers, tables = route_ids(ids, parts), [], {}
    for state, asked, slices in zip(case.states(), routed, case.shards, strict=True):
        plain = plain_route(ids, slices, case.split)
        assert asked.values.tolist() == torch.cat(plain.values).tolist()
        assert not asked.varying.any()
        assert not asked.lengths.size
        rows, places = kernels.lookup_rows(state, asked)
        assert torch.equal(rows, state.rows[torch.from_numpy(places)])
        answers.append(rows)
        own = rows.split(list(asked.sizes))
        tables.update({(part.table, part.start): x for part, x in zip(slices, own, strict=True)})
    found = assemble_rows(ids, parts, routed, answers)
    assert torch.equal(found.tensor, torch.cat([tables[key] for key in sorted(tables)]))
    for piece, answer in zip(route_gradient(found, parts, routed), answers, strict=True):
        assert torch.equal(piece, answer)
    pooled_as_torch_does(case, ids, found.tensor)


def pooled_as_torch_does(case: Case, ids: RealIds, rows: Tensor) -> None:
    assert ids.inverse is not None
    sums, bags = kernels.pool(rows, ids)
    whole = [[TableSlice(t, 0, table.rows) for t, table in enumerate(case.model.tables)]]
    sizes = torch.cat(plain_route(case.ids, whole[0], frozenset()).lengths).long()
    leaf = rows.clone().requires_grad_()
    starts = sizes.cumsum(0) - sizes
    wanted = torch.nn.functional.embedding_bag(ids.inverse, leaf, starts, mode="sum")
    assert torch.equal(sums.view_as(wanted), wanted)
    gradient = torch.randn(wanted.shape)
    wanted.backward(gradient)
    read = gradient.numpy(), ids.inverse.numpy(), bags, len(rows)
    torch.testing.assert_close(torch.from_numpy(row_kernels.add_up(*read)), leaf.grad)


@pytest.mark.parametrize("place", [-1, 7])
def test_an_id_that_names_no_row_is_an_error(place: int) -> None:
    rows, one = np.zeros((7, 2), np.float32), np.ones(1, np.int64)
    with pytest.raises(IndexError, match="names no row"):
        row_kernels.gather(rows, np.array([place]))
    with pytest.raises(IndexError, match="names no row"):
        row_kernels.look_up(rows, np.array([place]), one, np.zeros(1, np.int64), 1)


def test_a_shard_that_holds_columns_answers_them_of_every_table() -> None:
    model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=5),) * 2)
    shards = [[TableSlice(t, 0, 5, 1, *cut) for t in range(2)] for cut in ((0, 3), (3, 4))]
    parts = ShardSlices(model, shards, frozenset())
    ids = RealIds(torch.tensor([1, 4, 0, 2]), (0, 2, 4), (None, None), 2)
    routed: list[Routed] = route_ids(ids, parts)
    assert [asked.values.tolist() for asked in routed] == [[1, 4, 0, 2]] * 2
    states = [EmbeddingState(model, Training(), 3, slices) for slices in shards]
    answers = [kernels.lookup_pooled(*asked)[0] for asked in zip(states, routed, strict=True)]
    found: RealRows = assemble_rows(ids, parts, routed, answers)
    assert torch.equal(found.tensor, torch.cat(answers, dim=2))
