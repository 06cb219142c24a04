"""The client's side of services: one stub for each loop and service, whatever shards are near."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor import kernels
from recsim_train.executor.cache import fetch_rows, store_rows
from recsim_train.executor.masks import RealMasked, count
from recsim_train.executor.services import DenseServer, EmbeddingServer
from recsim_train.executor.sparse import RealSparse, cut_sparse
from recsim_train.executor.transport import (
    Channel,
    Header,
    Kind,
    Pending,
    join,
    size_of,
)
from recsim_train.executor.values import RealDense, RealIds, RealRows
from recsim_train.placement.plan import DenseShard, EmbeddingShard, TableSlice
from recsim_train.workload.compression import ACTIVATION_GRADIENTS, ACTIVATIONS, Tallies
from recsim_train.workload.shape import stored_row_bytes

NewPending = Callable[[], Pending]


@dataclass(slots=True)
class EmbeddingEnd:
    """One embedding shard as a client sees it: a channel, or the server itself when it is local."""

    shard: EmbeddingShard
    server: EmbeddingServer
    """Holds the shard's rules; its rows too where the shard is local."""
    channel: Channel | None


class EmbeddingStub:
    """Lookup and Update of one loop against all shards at once."""

    def __init__(
        self,
        ends: Sequence[EmbeddingEnd],
        split: frozenset[int],
        trainer: int,
        new_pending: NewPending,
        *,
        whole: bool = True,
    ) -> None:
        self.ends, self.split, self.trainer = ends, split, trainer
        self.whole = whole
        """Whether answers cover all tables, or just what the only shard, a local one, holds."""
        self.new_pending = new_pending
        self._routed: list[kernels.Routed] = []
        self._local: tuple[Tensor, Tensor | None] | None = None
        self._masked: dict[int, RealMasked] = {}
        """By place among the ends, where a share of the pooled values travels."""
        self.tallies: Tallies = {}

    def lookup(self, ids: RealIds, iteration: int) -> tuple[RealRows, int]:
        """Embeddings of a batch and the payload bytes that this side sent."""
        pooled = ids.inverse is None
        self._routed = [kernels.route_ids(ids, e.shard.slices, self.split) for e in self.ends]
        pending = self.new_pending()
        answers: list[Tensor] = []
        for end, routed in zip(self.ends, self._routed, strict=True):
            answers.append(self._answer_buffer(end, routed, pooled))
            if end.channel is None:
                continue
            end.channel.expect(pending, answers[-1])
            payload = join(end.server.pack(routed))
            header = Header(
                Kind.LOOKUP, iteration, size_of(payload), ids.batch, counts=routed.counts
            )
            end.channel.request(pending, header, payload)
        for place, (end, routed) in enumerate(zip(self.ends, self._routed, strict=True)):
            if end.channel is None:
                answers[place], local, starts = end.server.lookup(routed)
                self._local = (local, starts)
        pending.wait()
        if not self.whole:
            return RealRows(answers[0], ids), 0
        for place, (end, answer) in enumerate(zip(self.ends, answers, strict=True)):
            if end.server.mask is not None:
                answers[place] = self._unmasked(place, end, answer, ids.batch)
        slices: list[Sequence[TableSlice]] = [e.shard.slices for e in self.ends]
        counts = [routed.counts for routed in self._routed]
        model = self.ends[0].server.state.model
        parts = list(zip(slices, counts, answers, strict=True))
        return kernels.assemble_rows(model, ids, parts), pending.bytes

    def _unmasked(self, place: int, end: EmbeddingEnd, answer: Tensor, batch: int) -> Tensor:
        """Pooled vectors of one shard, of which the mask lets a share pass."""
        rule = end.server.mask
        assert rule is not None
        masked = rule.mask(answer) if end.channel is None else rule.read(answer, batch)
        self._masked[place] = masked
        vectors = rule.unmask(masked)
        count(self.tallies, ACTIVATIONS, vectors, masked.values, masked.tensor)
        return vectors

    def _answer_buffer(self, end: EmbeddingEnd, routed: kernels.Routed, pooled: bool) -> Tensor:
        rows = end.server.state.rows
        if end.channel is None:
            return rows.new_empty(0)
        if end.server.mask is not None:
            return torch.empty(end.server.mask.bytes(routed.batch), dtype=torch.uint8)
        if pooled:
            return rows.new_empty((len(end.shard.slices), routed.batch, end.server.width))
        return rows.new_empty((sum(routed.counts), end.server.width))

    def update(self, gradient: RealRows, iteration: int) -> int:
        """Send the gradient of the last lookup's answer; the payload bytes that were sent."""
        pooled = gradient.ids.inverse is None
        parts = [(e.shard.slices, r.counts) for e, r in zip(self.ends, self._routed, strict=True)]
        pieces = kernels.route_gradient(gradient, parts) if self.whole else [gradient.tensor]
        for place, masked in self._masked.items():
            rule = self.ends[place].server.mask
            assert rule is not None
            picked = rule.pick(pieces[place], masked)
            count(self.tallies, ACTIVATION_GRADIENTS, pieces[place], picked, picked)
            pieces[place] = picked
        pending = self.new_pending()
        for end, routed, piece in zip(self.ends, self._routed, pieces, strict=True):
            if end.channel is None:
                continue
            if end.server.together:
                end.channel.expect(pending, torch.empty(1, dtype=torch.int64))
            payload = join([piece] if pooled else [routed.values, piece])
            header = Header(
                Kind.UPDATE,
                iteration,
                size_of(payload),
                routed.batch,
                counts=() if pooled else routed.counts,
            )
            end.channel.request(pending, header, payload)
        for place, (end, piece) in enumerate(zip(self.ends, pieces, strict=True)):
            if end.channel is None:
                assert self._local is not None
                local, starts = self._local
                rule = end.server.mask
                whole = piece if rule is None else rule.unpick(piece, self._masked[place].places)
                end.server.update(self.trainer, local, starts, whole)
        pending.wait()
        return pending.bytes

    def fetch(self, ids: RealIds, iteration: int) -> tuple[RealRows, int]:
        """Rows of distinct ids with their optimizer's state, and the payload bytes that were sent.

        Shards that hold none of them are not asked.
        """
        routed = [kernels.route_ids(ids, e.shard.slices, self.split) for e in self.ends]
        pending = self.new_pending()
        state = self.ends[0].server.state
        width = stored_row_bytes(state.model, state.training) // state.rows.element_size()
        answers = [state.rows.new_empty((part.values.numel(), width)) for part in routed]
        for end, part, answer in zip(self.ends, routed, answers, strict=True):
            if end.channel is not None and part.values.numel():
                end.channel.expect(pending, answer)
                header = Header(Kind.FETCH, iteration, size_of(part.values), counts=part.counts)
                end.channel.request(pending, header, part.values)
        for place, (end, part) in enumerate(zip(self.ends, routed, strict=True)):
            if end.channel is None:
                here = end.server.state
                answers[place] = fetch_rows(here, here.local(part.values, part.counts))
        pending.wait()
        parts = [
            (end.shard.slices, part.counts, answer)
            for end, part, answer in zip(self.ends, routed, answers, strict=True)
        ]
        return kernels.assemble_rows(state.model, ids, parts), pending.bytes

    def store(self, rows: RealRows, iteration: int) -> int:
        """Overwrite rows at the shards, which acknowledge; the payload bytes that were sent."""
        routed = [kernels.route_ids(rows.ids, e.shard.slices, self.split) for e in self.ends]
        slices = [(e.shard.slices, r.counts) for e, r in zip(self.ends, routed, strict=True)]
        pieces = kernels.route_gradient(rows, slices)
        pending = self.new_pending()
        for end, part, piece in zip(self.ends, routed, pieces, strict=True):
            if end.channel is not None and part.values.numel():
                end.channel.expect(pending, torch.empty(1, dtype=torch.int64))
                payload = join([part.values, piece])
                header = Header(Kind.STORE, iteration, size_of(payload), counts=part.counts)
                end.channel.request(pending, header, payload)
        for end, part, piece in zip(self.ends, routed, pieces, strict=True):
            if end.channel is None:
                here = end.server.state
                store_rows(here, here.local(part.values, part.counts), piece)
        pending.wait()
        return pending.bytes

    def stop(self) -> None:
        """Tell every remote shard that this loop asks no more."""
        _stop([e.channel for e in self.ends], self.new_pending())


def _stop(channels: Sequence[Channel | None], pending: Pending) -> None:
    for channel in channels:
        if channel is not None:
            channel.request(pending, Header(Kind.STOP), None)
    pending.wait()


@dataclass(slots=True)
class DenseEnd:
    """One dense shard as a client sees it."""

    shard: DenseShard
    server: DenseServer | None
    """Set where the shard is local."""
    channel: Channel | None


class DenseStub:
    """Pull, Push and Exchange of one loop against all shards at once."""

    def __init__(
        self,
        ends: Sequence[DenseEnd],
        like: Tensor,
        model: Model,
        new_pending: NewPending,
        order: Tensor | None = None,
    ) -> None:
        self.ends, self._like, self._model = ends, like, model
        self._new_pending = new_pending
        self._order = order
        """Which parameter each element of the central copy is; None: the same."""

    def pull(self, iteration: int) -> tuple[RealDense, int]:
        """The central parameters [parameters]."""
        answer = torch.empty_like(self._like)
        pending = self._new_pending()
        for end in self.ends:
            if end.channel is not None:
                part = slice(end.shard.start, end.shard.stop)
                end.channel.expect(pending, answer[part])
                end.channel.request(pending, Header(Kind.PULL, iteration), None)
        for end in self.ends:
            if end.server is not None:
                part = slice(end.shard.start, end.shard.stop)
                answer[part] = kernels.dense_read(end.server.state)
        pending.wait()
        if self._order is not None:
            answer = torch.empty_like(answer).index_copy_(0, self._order, answer)
        return RealDense(answer), pending.bytes

    def push(self, gradient: RealDense | RealSparse, iteration: int, *, add: bool = False) -> int:
        """Have every shard apply its part of a gradient, or add it; not acknowledged."""
        if isinstance(gradient, RealSparse):
            return self._push_sparse(gradient, iteration, add=add)
        pending = self._new_pending()
        for end in self.ends:
            part = gradient.tensor[end.shard.start : end.shard.stop]
            if end.channel is not None:
                header = Header(Kind.PUSH, iteration, size_of(part), alpha=float(add))
                end.channel.request(pending, header, part)
        for end in self.ends:
            if end.server is not None:
                part = gradient.tensor[end.shard.start : end.shard.stop]
                end.server.push(part, add=add)
        pending.wait()
        return pending.bytes

    def exchange(
        self, value: RealDense, alpha: float, iteration: int, *, new: bool = False
    ) -> tuple[RealDense, int]:
        """alpha * (w - central) of every part, with the old or the ``new`` central values."""
        kind = Kind.EXCHANGE_NEW if new else Kind.EXCHANGE
        answer = torch.empty_like(value.tensor)
        pending = self._new_pending()
        local = []
        for end in self.ends:
            first = max(end.shard.start, value.start)
            last = min(end.shard.stop, value.start + value.tensor.numel())
            if last <= first:
                continue
            part, place = slice(first - value.start, last - value.start), first - end.shard.start
            if end.channel is None:
                local.append((end, part, place))
                continue
            size = size_of(value.tensor[part])
            header = Header(kind, iteration, size, batch=place, alpha=alpha)
            end.channel.expect(pending, answer[part])
            end.channel.request(pending, header, value.tensor[part])
        for end, part, place in local:
            assert end.server is not None
            answer[part] = end.server.exchange(value.tensor[part], alpha, place, new=new)
        pending.wait()
        return RealDense(answer, value.start), pending.bytes

    def _push_sparse(self, gradient: RealSparse, iteration: int, *, add: bool) -> int:
        pending = self._new_pending()
        cuts = [(end.shard.start, end.shard.stop) for end in self.ends]
        parts = [cut_sparse(self._model, gradient, *cut) for cut in cuts]
        for end, part in zip(self.ends, parts, strict=True):
            if end.channel is not None:
                size = size_of(part.payload)
                header = Header(
                    Kind.PUSH_SPARSE, iteration, size, batch=part.entries, alpha=float(add)
                )
                end.channel.request(pending, header, part.payload)
        for end, part in zip(self.ends, parts, strict=True):
            if end.server is not None:
                end.server.push_sparse(part.places, part.values, add=add)
        pending.wait()
        return pending.bytes

    def stop(self) -> None:
        """Tell every remote shard that this loop asks no more."""
        _stop([e.channel for e in self.ends], self._new_pending())
