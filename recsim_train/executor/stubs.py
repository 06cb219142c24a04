"""The client's side of services: one stub for each loop and service, whatever shards are near.

A request has been sent when its method returns; what that returns is called once, waits for the
answers and returns (value, payload bytes that this side sent).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from recsim_train.executor import wire
from recsim_train.executor.answers import Answer
from recsim_train.executor.books import booked
from recsim_train.executor.lookups import Lookups
from recsim_train.executor.masks import count
from recsim_train.executor.narrowing import narrow, widen
from recsim_train.executor.routing import Parts, Routed, assemble_rows, route_gradient, route_ids
from recsim_train.executor.rows import Numbers
from recsim_train.executor.rules import DenseRules, EmbeddingRules
from recsim_train.executor.services import DenseServer, EmbeddingServer
from recsim_train.executor.sparse import RealSparse, cut_sparse
from recsim_train.executor.transport import Channel, Pending, size_of
from recsim_train.executor.values import RealDense, RealIds, RealRows
from recsim_train.workload.compression import ACTIVATION_GRADIENTS, ACTIVATIONS, Tallies

Done = tuple[Any, int]
Finish = Callable[[], Done]
Rules = TypeVar("Rules", bound=EmbeddingRules | DenseRules)


@dataclass(frozen=True, slots=True)
class Remote(Generic[Rules]):
    """A shard in another process, as a client sees it."""

    rules: Rules
    channel: Channel

    def ask(
        self, pending: Pending, request: wire.Request, *parts: Tensor, answer: Answer | None = None
    ) -> None:
        """Under way, answered by ``answer``, until ``pending`` has been waited for."""
        self.channel.request(pending, wire.encode(request), parts, answer)


EmbeddingEnd = EmbeddingServer | Remote[EmbeddingRules]
DenseEnd = DenseServer | Remote[DenseRules]
"""A shard where a loop finds it: the server itself in its own process."""


class _Turns:
    """In which order one loop asks its shards: the remote ones first, since while these work on
    their requests the local ones do; and of them each loop begins with another, because a link to
    which all loops send at once makes the others wait."""

    def __init__(self, ends: Sequence[EmbeddingEnd | DenseEnd], first: int) -> None:
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
class Looked:
    """What a lookup leaves for its update, by place among the ends."""

    ids: RealIds
    routed: list[Routed]
    local: dict[int, tuple[Numbers, Numbers]] = field(default_factory=dict)
    passed: dict[int, Tensor] = field(default_factory=dict)
    """Places of the values that a mask let pass."""


_NOTHING = torch.empty(0)


def _tensors(answers: Sequence[Answer | Tensor]) -> list[Tensor]:
    """Answers of shards here and elsewhere, once they have come."""
    return [x.tensor if isinstance(x, Answer) else x for x in answers]


def _without_value(pending: Pending) -> Finish:
    def answer() -> Done:
        pending.wait()
        return None, pending.bytes

    return answer


class EmbeddingStub:
    """Requests of one loop to all embedding shards at once."""

    def __init__(
        self,
        ends: Sequence[EmbeddingEnd],
        trainer: int,
        *,
        whole: bool = True,
        first: int = 0,
    ) -> None:
        """``first``: with which remote end the loop begins, counted round."""
        self.ends, self.trainer = ends, trainer
        self.whole = whole
        """Whether answers cover all tables, or just what the only shard, a local one, holds."""
        self._turns = _Turns(ends, first)
        rules = ends[0].rules
        self._parts = Parts(rules.model, [end.rules.shard.slices for end in ends], rules.split)
        self._lookups: Lookups[Looked] = Lookups()
        self.tallies: Tallies = {}

    @booked("route_ids")
    def _route(self, ids: RealIds) -> list[Routed]:
        return route_ids(ids, self._parts)

    @booked("assemble_rows")
    def _assemble(
        self, ids: RealIds, routed: Sequence[Routed], answers: Sequence[Tensor]
    ) -> RealRows:
        return assemble_rows(ids, self._parts, routed, answers)

    @booked("route_gradient")
    def _pieces(self, rows: RealRows, routed: Sequence[Routed]) -> list[Tensor]:
        return route_gradient(rows, self._parts, routed)

    def lookup(self, ids: RealIds, iteration: int) -> Finish:
        """Embeddings of a batch."""
        looked = Looked(ids, self._route(ids))
        self._lookups.add(looked)
        pending = Pending()
        asked: list[Answer | Tensor] = [_NOTHING] * len(self.ends)
        for place in self._turns(pending):
            end, routed = self.ends[place], looked.routed[place]
            if isinstance(end, Remote):
                request = wire.LookupRequest(iteration, ids.batch, routed.sizes)
                arriving = asked[place] = request.answer(end.rules)
                end.ask(pending, request, *request.parts(routed), answer=arriving)
            else:
                asked[place], local, bags = end.lookup(routed)
                looked.local[place] = local, bags

        def answer() -> Done:
            pending.wait()
            answers = _tensors(asked)
            asked.clear()  # whoever keeps the request keeps none of them
            if not self.whole:
                return RealRows(answers[0], ids), 0
            for place, (end, answer) in enumerate(zip(self.ends, answers, strict=True)):
                if (rule := end.rules.mask) is not None:
                    remote = isinstance(end, Remote)
                    masked = rule.read(answer, ids.batch) if remote else rule.mask(answer)
                    looked.passed[place], answers[place] = masked.places, rule.unmask(masked)
                    count(self.tallies, ACTIVATIONS, answers[place], masked.values, masked.tensor)
                answers[place] = widen(answers[place], end.rules.kind)
            return self._assemble(ids, looked.routed, answers), pending.bytes

        return answer

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
        pieces = self._pieces(gradient, looked.routed) if self.whole else [gradient.tensor]
        pending = Pending()
        for place in self._turns(pending):
            end, routed, piece = self.ends[place], looked.routed[place], pieces[place]
            if (rule := end.rules.mask) is not None:
                passed = looked.passed[place]
                picked = rule.pick(piece, passed)
                count(self.tallies, ACTIVATION_GRADIENTS, piece, picked, picked)
                remote = isinstance(end, Remote)
                piece = picked if remote else rule.unpick(picked, passed)
            if isinstance(end, Remote):
                counts = () if end.rules.pooled else routed.sizes
                request = wire.UpdateRequest(iteration, number, routed.batch, counts)
                piece = narrow(piece, request.kind(end.rules))
                sent = [piece] if end.rules.pooled else [torch.from_numpy(routed.values), piece]
                answer = wire.acknowledgement() if end.rules.acknowledged else None
                end.ask(pending, request, *sent, answer=answer)
            else:
                end.update(self.trainer, *looked.local[place], piece)
        return _without_value(pending)

    def fetch(self, ids: RealIds, iteration: int) -> Finish:
        """Rows of distinct ids with their optimizer's state.

        Shards that hold none of them are not asked.
        """
        parts = self._route(ids)
        asked: list[Answer | Tensor] = [_NOTHING] * len(self.ends)
        pending = Pending()
        for place in self._turns(pending):
            end, part = self.ends[place], parts[place]
            if not isinstance(end, Remote):
                asked[place] = end.fetch(part.values, part.counts)
                continue
            request = wire.FetchRequest(iteration, part.sizes)
            arriving = asked[place] = request.answer(end.rules)
            if part.values.size:
                end.ask(pending, request, torch.from_numpy(part.values), answer=arriving)

        def answer() -> Done:
            pending.wait()
            return self._assemble(ids, parts, _tensors(asked)), pending.bytes

        return answer

    def store(self, rows: RealRows, iteration: int) -> Finish:
        """Overwrite rows at the shards, which acknowledge."""
        parts = self._route(rows.ids)
        pieces = self._pieces(rows, parts)
        pending = Pending()
        for place in self._turns(pending):
            end, part = self.ends[place], parts[place]
            if not isinstance(end, Remote):
                end.store(part.values, part.counts, pieces[place])
            elif part.values.size:
                request = wire.StoreRequest(iteration, part.sizes)
                sent = torch.from_numpy(part.values), pieces[place]
                end.ask(pending, request, *sent, answer=wire.acknowledgement())
        return _without_value(pending)


class DenseStub:
    """Requests of one loop to all dense shards at once."""

    def __init__(
        self,
        ends: Sequence[DenseEnd],
        like: Tensor,
        order: Tensor | None = None,
        *,
        first: int = 0,
    ) -> None:
        """``first``: as in `EmbeddingStub`."""
        self.ends = ends
        self._turns = _Turns(ends, first)
        self._like = like
        self._order = order
        """Which parameter each element of the central copy is; None: the same."""

    def room(self) -> Tensor | None:
        """Memory for a gradient [parameters] that `push` then need not copy; None: there is none.

        One place in it for all shards would need memory that all of them share.
        """
        end, like = self.ends[0], self._like
        if len(self.ends) > 1 or not isinstance(end, Remote) or end.rules.wire != like.dtype:
            return None
        memory = end.channel.room(size_of(like))
        return None if memory is None else torch.frombuffer(memory, dtype=like.dtype)

    def pull(self, iteration: int) -> Finish:
        """The central parameters [parameters]."""
        whole, pending, narrowed = Answer(self._like.shape, self._like.dtype), Pending(), []
        request = wire.PullRequest(iteration)
        for place in self._turns(pending):
            end = self.ends[place]
            shard = end.rules.shard
            part = whole.part(shard.start, shard.stop)
            if not isinstance(end, Remote):
                end.pull(part.tensor)
                continue
            if (kind := request.kind(end.rules)) != self._like.dtype:
                arriving = Answer((shard.elements,), kind)
                narrowed.append((part, arriving))
                part = arriving
            end.ask(pending, request, answer=part)

        def answer() -> Done:
            pending.wait()
            for part, arrived in narrowed:
                with booked("widen"):
                    part.tensor.copy_(arrived.tensor)
            values = whole.tensor
            if self._order is None:
                return RealDense(values), pending.bytes
            ordered = torch.empty_like(values).index_copy_(0, self._order, values)
            return RealDense(ordered), pending.bytes

        return answer

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
                if isinstance(end, Remote):
                    entries = part.places.numel()
                    end.ask(pending, wire.SparsePushRequest(iteration, add, entries), part.tensor)
                else:
                    end.push_sparse(part, add=add)
            elif isinstance(end, Remote):
                request = wire.PushRequest(iteration, add)
                values = narrow(gradient.tensor[start:stop], request.kind(end.rules))
                end.ask(pending, request, values)
            else:
                end.push(gradient.tensor[start:stop], add=add)
        return _without_value(pending)

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
            sent, part = value.tensor[begin:stop], elastic.part(begin, stop)
            if isinstance(end, Remote):
                request = wire.ExchangeRequest(iteration, alpha, start, new)
                end.ask(pending, request, sent, answer=part)
            else:
                part.tensor.copy_(end.exchange(sent, alpha, start, new=new))

        def answer() -> Done:
            pending.wait()
            return RealDense(elastic.tensor, value.start), pending.bytes

        return answer
