"""The client's side of services: one stub for each loop and service, whatever shards are near.

A request has been sent when its method returns; what that returns is called once, waits for the
answers and returns (value, payload bytes that this side sent).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from recsim_train.executor.books import booked
from recsim_train.executor.link.tensors import Answer, narrow, widen
from recsim_train.executor.link.transport import Channel, Pending
from recsim_train.executor.net.masks import count
from recsim_train.executor.net.sparse import RealSparse, cut_sparse
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.routing import (
    Routed,
    ShardSlices,
    assemble_rows,
    route_gradient,
    route_ids,
)
from recsim_train.executor.shards.services import Lookups, ShardTalk
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.executor.values import RealDense, RealIds, RealRows
from recsim_train.workload.compression import ACTIVATION_GRADIENTS, ACTIVATIONS, Tallies

_route, _assemble = booked("route_ids")(route_ids), booked("assemble_rows")(assemble_rows)
_cut = booked("route_gradient")(route_gradient)
Done = tuple[Any, int]
Finish = Callable[[], Done]
Rules = TypeVar("Rules", bound=EmbeddingRules | DenseRules)


@dataclass(frozen=True, slots=True)
class Remote(Generic[Rules]):
    """A shard in another process, as a client sees it."""

    rules: Rules
    channel: Channel

    def ask(
        self,
        pending: Pending,
        request: wire.ShardRequest,
        content: Any = (),
        answer: Answer | None = None,
    ) -> None:
        """Ask something, which brings ``content``; under way, answered by ``answer``, until
        ``pending`` has been waited for."""
        self.channel.request(pending, wire.encode(request), request.parts(content), answer)


class Near:
    """A shard in the client's own process: what is asked is done at once, and passes as it is."""

    def __init__(self, server: Any, trainer: int) -> None:
        """``server``: `EmbeddingServer` or `DenseServer`."""
        self.rules = copy(server.rules)
        self.rules.wire = self.rules.kind  # no number is rounded
        self._talk = ShardTalk(server, trainer, self.rules)

    def ask(
        self, _: Pending, request: wire.ShardRequest, content: Any = (), answer: Any = None
    ) -> None:
        """As `Remote.ask`; answered when it returns."""
        if isinstance(request, wire.PullRequest):
            self._talk.server.pull(answer.tensor)  # the shard's own go on changing
        elif (said := self._talk.answer(request, content)) is not None:
            answer.take(said)


class _Turns:
    """In which order one loop asks its shards: the remote ones first, since while these work on
    their requests the local ones do; and of them each loop begins with another, because a link to
    which all loops send at once makes the others wait."""

    def __init__(self, ends: Sequence[Near | Remote[Any]], first: int) -> None:
        remote = [place for place, end in enumerate(ends) if isinstance(end, Remote)]
        begin = first % len(remote) if remote else 0
        self._remote = remote[begin:] + remote[:begin]
        self._local = [place for place, end in enumerate(ends) if not isinstance(end, Remote)]

    def __call__(self, pending: Pending) -> Iterator[int]:
        """Places of the ends; of ``pending`` all has been sent when there are no more."""
        yield from self._remote
        # Before a local shard is asked: there, others may be waited for who wait for this.
        pending.send()
        yield from self._local


@dataclass(slots=True)
class OpenLookup:
    """What a lookup leaves for its update."""

    ids: RealIds
    routed: list[Routed]
    passed: dict[int, Tensor] = field(default_factory=dict)
    """By place among the ends: places of the values that a mask let pass."""


def _answered(pending: Pending, value: Callable[[], Any] = lambda: None) -> Finish:
    """Waits for the answers; ``value``: what they come to, once they are there."""

    def answer() -> Done:
        pending.wait()
        return value(), pending.bytes

    return answer


class EmbeddingStub:
    """Requests of one loop to all embedding shards at once."""

    def __init__(
        self,
        ends: Sequence[Near | Remote[EmbeddingRules]],
        *,
        whole: bool = True,
        first: int = 0,
    ) -> None:
        """``first``: with which remote end the loop begins, counted round."""
        self.ends, self.whole = ends, whole
        """Whether answers cover all tables, or just what the only shard, a local one, holds."""
        self._turns = _Turns(ends, first)
        rules = ends[0].rules
        self._parts = ShardSlices(
            rules.model, [end.rules.shard.slices for end in ends], rules.split
        )
        self._lookups: Lookups[OpenLookup] = Lookups()
        self.tallies: Tallies = {}

    def lookup(self, ids: RealIds, iteration: int) -> Finish:
        """Embeddings of a batch."""
        looked = OpenLookup(ids, _route(ids, self._parts))
        self._lookups.add(looked)
        pending, asked = Pending(), {}
        for place in self._turns(pending):
            end, routed = self.ends[place], looked.routed[place]
            request = wire.LookupRequest(iteration, ids.batch, routed.sizes)
            asked[place] = request.answer(end.rules)
            end.ask(pending, request, routed, asked[place])

        def looked_up() -> RealRows:
            answers = [asked[place].tensor for place in range(len(self.ends))]
            asked.clear()  # whoever keeps the request keeps none of them
            for place, (end, answer) in enumerate(zip(self.ends, answers, strict=True)):
                if (rule := end.rules.mask) is not None:
                    masked = rule.read(answer, ids.batch)
                    looked.passed[place], answers[place] = masked.places, rule.unmask(masked)
                    count(self.tallies, ACTIVATIONS, answers[place], masked.values, masked.tensor)
                answers[place] = widen(answers[place], end.rules.kind)
            if not self.whole:
                return RealRows(answers[0], ids)
            return _assemble(ids, self._parts, looked.routed, answers)

        return _answered(pending, looked_up)

    def update(self, gradient: RealRows, iteration: int) -> Finish:
        """Send the gradient of a lookup's answer.

        Raises ValueError where the lookup is unknown or older than one that was updated.
        """
        number = next((n for n, x in self._lookups.items() if x.ids is gradient.ids), None)
        if number is None:
            raise ValueError(
                "Update needs the gradient of a Lookup's answer, in the order of the Lookups"
            )
        looked = self._lookups.of(number)
        pieces = _cut(gradient, self._parts, looked.routed) if self.whole else [gradient.tensor]
        pending = Pending()
        for place in self._turns(pending):
            end, routed, piece = self.ends[place], looked.routed[place], pieces[place]
            if (rule := end.rules.mask) is not None:
                picked = rule.pick(piece, looked.passed[place])
                count(self.tallies, ACTIVATION_GRADIENTS, piece, picked, picked)
                piece = picked
            counts = () if end.rules.pooled else routed.sizes
            request = wire.UpdateRequest(iteration, number, routed.batch, counts)
            piece = narrow(piece, request.kind(end.rules))
            content = [piece] if end.rules.pooled else [torch.from_numpy(routed.values), piece]
            answer = wire.acknowledgement() if end.rules.acknowledged else None
            end.ask(pending, request, content, answer)
        return _answered(pending)

    def fetch(self, ids: RealIds, iteration: int) -> Finish:
        """Rows of distinct ids with their optimizer's state.

        Shards that hold none of them are not asked.
        """
        parts = _route(ids, self._parts)
        pending, asked = Pending(), {}
        for place in self._turns(pending):
            end, part = self.ends[place], parts[place]
            request = wire.FetchRequest(iteration, part.sizes)
            asked[place] = request.answer(end.rules)
            if part.values.size:
                end.ask(pending, request, (torch.from_numpy(part.values),), asked[place])

        def fetched() -> RealRows:
            answers = [asked[place].tensor for place in range(len(self.ends))]
            return _assemble(ids, self._parts, parts, answers)

        return _answered(pending, fetched)

    def store(self, rows: RealRows, iteration: int) -> Finish:
        """Overwrite rows at the shards, which acknowledge."""
        parts = _route(rows.ids, self._parts)
        pieces = _cut(rows, self._parts, parts)
        pending = Pending()
        for place in self._turns(pending):
            end, part = self.ends[place], parts[place]
            if part.values.size:
                request = wire.StoreRequest(iteration, part.sizes)
                content = torch.from_numpy(part.values), pieces[place]
                end.ask(pending, request, content, wire.acknowledgement())
        return _answered(pending)


class DenseStub:
    """Requests of one loop to all dense shards at once."""

    def __init__(
        self,
        ends: Sequence[Near | Remote[DenseRules]],
        like: Tensor,
        order: Tensor | None = None,
        *,
        first: int = 0,
    ) -> None:
        """``first``: as in `EmbeddingStub`."""
        self._turns = _Turns(ends, first)
        self.ends, self._like, self._order = ends, like, order
        """Which parameter each element of the central copy is; None: the same."""

    def room(self) -> Tensor | None:
        """Memory for a gradient [parameters] that `push` then need not copy; None: there is none.

        One place in it for all shards would need memory that all of them share.
        """
        end, like = self.ends[0], self._like
        if len(self.ends) > 1 or isinstance(end, Near) or end.rules.wire != like.dtype:
            return None
        memory = end.channel.room(like.nbytes)
        return None if memory is None else torch.frombuffer(memory, dtype=like.dtype)

    def pull(self, iteration: int) -> Finish:
        """The central parameters [parameters]."""
        whole, pending, narrowed = Answer(self._like.shape, self._like.dtype), Pending(), []
        request = wire.PullRequest(iteration)
        for place in self._turns(pending):
            end = self.ends[place]
            shard = end.rules.shard
            part = whole.part(shard.start, shard.stop)
            if (kind := request.kind(end.rules)) != self._like.dtype:
                arriving = Answer((shard.elements,), kind)
                narrowed.append((part, arriving))
                part = arriving
            end.ask(pending, request, (), part)

        def pulled() -> RealDense:
            for part, arrived in narrowed:
                with booked("widen"):
                    part.tensor.copy_(arrived.tensor)
            values = whole.tensor
            if self._order is not None:
                values = torch.empty_like(values).index_copy_(0, self._order, values)
            return RealDense(values)

        return _answered(pending, pulled)

    def push(
        self, gradient: RealDense | RealSparse, iteration: int, *, add: bool = False
    ) -> Finish:
        """Have every shard apply its part of a gradient, or add it; not acknowledged."""
        pending = Pending()
        for place in self._turns(pending):
            end = self.ends[place]
            start, stop = end.rules.shard.start, end.rules.shard.stop
            if isinstance(gradient, RealSparse):
                part = cut_sparse(end.rules.model, gradient, start, stop)
                entries = part.places.numel()
                end.ask(pending, wire.SparsePushRequest(iteration, add, entries), part)
            else:
                request = wire.PushRequest(iteration, add)
                values = narrow(gradient.tensor[start:stop], request.kind(end.rules))
                end.ask(pending, request, (values,))
        return _answered(pending)

    def exchange(
        self, value: RealDense, alpha: float, iteration: int, *, new: bool = False
    ) -> Finish:
        """alpha * (w - central) of every part, with the old or the ``new`` central values."""
        elastic, pending = Answer(value.tensor.shape, value.tensor.dtype), Pending()
        for place in self._turns(pending):
            end = self.ends[place]
            shard = end.rules.shard
            first = max(shard.start, value.start)
            last = min(shard.stop, value.start + value.tensor.numel())
            if last <= first:
                continue
            begin, stop, start = first - value.start, last - value.start, first - shard.start
            request = wire.ExchangeRequest(iteration, alpha, start, new)
            part = elastic.part(begin, stop)
            end.ask(pending, request, (value.tensor[begin:stop],), part)

        return _answered(pending, lambda: RealDense(elastic.tensor, value.start))
