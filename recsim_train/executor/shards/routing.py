"""The client's side of lookups and updates: ids by shard, and answers in table order.

All tables of a batch are one compiled pass, outside of the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.net.rows import Floats, Numbers, exact
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.placement.plan import TableSlice

_NO_LENGTHS = np.empty(0, np.int32)


class ShardSlices:
    """Which part of the tables each shard holds: what `route_ids` and its inverses go by."""

    def __init__(
        self, model: Model, shards: Sequence[Sequence[TableSlice]], split: frozenset[int]
    ) -> None:
        """``split``: tables whose rows several slices share."""
        slices = [part for shard in shards for part in shard]
        self.model = model
        self.slices = np.array(
            [(s.table, s.start, s.stop, s.step, s.table in split) for s in slices], np.int64
        ).reshape(-1, 5)
        self.cuts = np.cumsum([0, *map(len, shards)])
        """Of the slices, by shard."""
        self.of = [slice(*cut) for cut in pairwise(self.cuts.tolist())]
        """Each shard's slices."""
        self.tables = self.slices[:, 0].copy()
        self.index = torch.from_numpy(self.tables)
        self.order = np.lexsort((self.slices[:, 1], self.tables))
        """Of slices by table and first row."""
        self.first = np.zeros(len(slices), bool)
        """Whether a slice is the first of its table."""
        self.first[np.unique(self.tables, return_index=True)[1]] = True
        self.columns = any(part.last for part in slices)
        varies = np.array([table.variable for table in model.tables], bool)
        self.varying = varies[self.tables] | (self.slices[:, 4] != 0)
        """Whether the bags of a slice differ in size."""
        self.lengths = np.where(varies, np.cumsum(varies) - 1, -1)
        """Of each table whose bags differ: its place among them; -1: they do not."""


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """Ids for one shard, slice by slice.

    ``counts`` [slices]: ids of each; ``varying`` [slices]: whether its bags differ in size;
    ``lengths``: those of the bags of such slices, int32 [varying slices * batch].
    """

    values: Numbers
    counts: Numbers
    varying: NDArray[np.bool_]
    lengths: NDArray[np.int32]
    batch: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """``counts``, as a header has them."""
        return tuple(self.counts.tolist())


def lengths_of(ids: RealIds) -> NDArray[np.int32]:
    """Of the bags of all tables where they differ [such tables * batch]."""
    found = [length.numpy() for length in ids.lengths if length is not None]
    return np.concatenate(found) if found else _NO_LENGTHS


def route_ids(ids: RealIds, parts: ShardSlices) -> list[Routed]:
    """The ids of a batch that each shard answers."""
    pooled = ids.inverse is None
    values, counts, lengths, ends = _route(
        ids.values.numpy(),
        np.array(ids.offsets),
        parts.slices,
        parts.cuts,
        parts.varying if pooled else np.zeros_like(parts.varying),
        lengths_of(ids),
        parts.lengths,
        ids.batch,
    )
    routed = []
    begin = (0, 0)
    for shard, end in enumerate(ends.tolist()):
        of = parts.of[shard]
        routed.append(
            Routed(
                values[begin[0] : end[0]],
                counts[of],
                parts.varying[of] if pooled else np.zeros(of.stop - of.start, bool),
                lengths[begin[1] : end[1]],
                ids.batch,
            )
        )
        begin = end
    return routed


@exact
def _inside(value: int, part: Numbers) -> bool:
    start, stop, step = part[1], part[2], part[3]
    return bool(start <= value < stop and (step == 1 or value % step == start))


@exact
def _route(
    values: Numbers,
    offsets: Numbers,
    slices: Numbers,
    cuts: Numbers,
    varying: NDArray[np.bool_],
    lengths: NDArray[np.int32],
    row_of: Numbers,
    batch: int,
) -> tuple[Numbers, Numbers, NDArray[np.int32], Numbers]:
    """(values by shard, counts of slices, lengths by shard, where each shard's end)."""
    counts = np.empty(slices.shape[0], np.int64)
    sized = 0
    for s in range(slices.shape[0]):
        part = slices[s]
        begin, end = offsets[part[0]], offsets[part[0] + 1]
        sized += varying[s]
        counts[s] = end - begin
        if part[4]:
            counts[s] = 0
            for i in range(begin, end):
                counts[s] += _inside(values[i], part)
    found = np.empty(counts.sum(), np.int64)
    bags = np.empty(sized * batch, np.int32)
    ends = np.empty((cuts.size - 1, 2), np.int64)
    at = bag = 0
    for shard in range(cuts.size - 1):
        for s in range(cuts[shard], cuts[shard + 1]):
            part = slices[s]
            begin, end = offsets[part[0]], offsets[part[0] + 1]
            row = row_of[part[0]]
            if not varying[s] and not part[4]:
                found[at : at + end - begin] = values[begin:end]
                at += end - begin
                continue
            if not varying[s]:
                for i in range(begin, end):
                    if _inside(values[i], part):
                        found[at] = values[i]
                        at += 1
                continue
            i = begin
            for example in range(batch):
                count = (end - begin) // batch if row < 0 else lengths[row * batch + example]
                first = at
                for _ in range(count):
                    if not part[4] or _inside(values[i], part):
                        found[at] = values[i]
                        at += 1
                    i += 1
                bags[bag] = at - first
                bag += 1
        ends[shard, 0], ends[shard, 1] = at, bag
    return found, counts, bags, ends


def assemble_rows(
    ids: RealIds, parts: ShardSlices, routed: Sequence[Routed], answers: Sequence[Tensor]
) -> RealRows:
    """The shards' answers in table order; partial sums of a split table are added."""
    if ids.inverse is None and parts.columns:
        return RealRows(torch.cat(list(answers), dim=2), ids)
    if ids.inverse is None:
        shape = (len(parts.model.tables), *answers[0].shape[1:])
        whole = torch.empty(shape, dtype=answers[0].dtype)
        for shard, answer in enumerate(answers):
            of = parts.of[shard]
            tables, first = parts.tables[of], parts.first[of]
            if first.all():  # large blocks are copied faster by numpy
                whole.numpy()[tables] = _array(answer)
            else:
                _place(_array(answer), tables, first, whole.numpy())
        return RealRows(whole, ids)
    # as wide as the answers: rows may bring their optimizer's state along
    rows = torch.empty((ids.values.numel(), answers[0].shape[1]), dtype=answers[0].dtype)
    counts = np.concatenate([part.counts for part in routed])
    begins = _runs(np.array(ids.offsets), parts.tables, parts.order, counts)
    for shard, answer in enumerate(answers):
        of = parts.of[shard]
        _spread_runs(_array(answer), begins[of], counts[of], rows.numpy())
    return RealRows(rows, ids)


def route_gradient(
    gradient: RealRows, parts: ShardSlices, routed: Sequence[Routed]
) -> list[Tensor]:
    """The gradient of each shard's answer, in the answer's own form."""
    if gradient.ids.inverse is None:
        picked = gradient.tensor.index_select(0, parts.index)
        return [picked[of] for of in parts.of]
    counts = np.concatenate([part.counts for part in routed])
    begins = _runs(np.array(gradient.ids.offsets), parts.tables, parts.order, counts)
    rows = torch.from_numpy(_pick_runs(_array(gradient.tensor), begins, counts))
    return list(torch.split(rows, [part.values.size for part in routed]))


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()


@exact
def _place(answer: Floats, tables: Numbers, first: NDArray[np.bool_], whole: Floats) -> None:
    """answer [slices, batch, dim] into, or added to, whole [tables, batch, dim]."""
    for s in range(tables.size):
        into, vectors = whole[tables[s]], answer[s]
        for b in range(vectors.shape[0]):
            for k in range(vectors.shape[1]):
                into[b, k] = vectors[b, k] if first[s] else into[b, k] + vectors[b, k]


@exact
def _runs(offsets: Numbers, tables: Numbers, order: Numbers, counts: Numbers) -> Numbers:
    """Where each slice's distinct ids begin in the batch's: sorted within a table, they are one
    run."""
    begins = np.empty_like(counts)
    done = np.zeros(offsets.size - 1, np.int64)
    for s in order:
        begins[s] = offsets[tables[s]] + done[tables[s]]
        done[tables[s]] += counts[s]
    return begins


@exact
def _spread_runs(answer: Floats, begins: Numbers, counts: Numbers, rows: Floats) -> None:
    at = 0
    for s in range(counts.size):
        rows[begins[s] : begins[s] + counts[s]] = answer[at : at + counts[s]]
        at += counts[s]


@exact
def _pick_runs(rows: Floats, begins: Numbers, counts: Numbers) -> Floats:
    picked = np.empty((counts.sum(), rows.shape[1]), rows.dtype)
    at = 0
    for s in range(counts.size):
        picked[at : at + counts[s]] = rows[begins[s] : begins[s] + counts[s]]
        at += counts[s]
    return picked


def warm() -> None:
    """Have what is compiled here ready for float32."""
    model = Model(embedding_dim=1, bottom_mlp=(1,), top_mlp=(1,), tables=({"rows": 1},))  # type: ignore[arg-type]
    parts = ShardSlices(model, [[TableSlice(0, 0, 1)]], frozenset())
    one, inverse = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for ids in (
        RealIds(one, (0, 1), (None,), 1),
        RealIds(one, (0, 1), (None,), 1, inverse),
    ):
        routed = route_ids(ids, parts)
        answer = torch.zeros((1, 1, 1) if ids.inverse is None else (1, 1))
        route_gradient(assemble_rows(ids, parts, routed, [answer]), parts, routed)
