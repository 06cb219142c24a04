"""Requests of loops to shards: for each kind the fields of its header and the parts of its payload.

Both ends use these classes, with the rules of the shard that is asked. The transport moves the
bytes and knows nothing of kinds; within a process, requests and their content pass as they are. An
answer is a payload alone: the asker knows its size.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.experiment import Experiment
from recsim_train.executor.link.tensors import HALF, Answer, split_bytes, widen
from recsim_train.executor.net.masks import VectorMask
from recsim_train.executor.net.model import dtype_of
from recsim_train.executor.net.sparse import RealSparse, unpack_sparse, whole_places
from recsim_train.executor.shards.routing import Routed
from recsim_train.placement.plan import DenseShard, EmbeddingShard, Plan


class EmbeddingRules:
    """How ids, rows and gradients travel between loops and one embedding shard."""

    def __init__(self, plan: Plan, shard: EmbeddingShard) -> None:
        assert plan.embedding is not None
        service, self.split = plan.embedding.service, plan.embedding.split_tables
        self.shard, self.model = shard, plan.experiment.model
        self.kind = dtype_of(self.model)
        self.pooled = service.pooling == "server"
        """Whether vectors of bags travel, or rows."""
        self.width = shard.slices[0].width(self.model.row_width)
        """Numbers of each row that it holds."""
        self.stored = self.width + (plan.experiment.training.sparse_optimizer != "sgd")
        """The same with the optimizer's state."""
        tables = self.model.tables
        self.sends_lengths = np.array(
            [
                self.pooled and (tables[s.table].variable or s.table in self.split)
                for s in shard.slices
            ],
            bool,
        )
        """By slice."""
        self.fixed = np.array([tables[s.table].ids for s in shard.slices], np.int64)
        """By slice, the ids of an example where no lengths are sent."""
        self.bag_lengths = int(self.sends_lengths.sum())
        """Of so many slices."""
        self.mask: VectorMask | None = None
        if service.keep is not None:
            self.mask = VectorMask(self.model, len(shard.slices), service.keep, service.mask)
        self.wire = self.kind if self.mask is not None else _wire_of(plan.experiment)
        """As numbers travel that may be rounded; what a mask leaves is not."""
        self.acknowledged = bool(plan.together)
        """Whether updates are."""

    def gradient_shape(self, examples: int, ids: int) -> tuple[int, ...]:
        """Of a lookup's answer and of its gradient; under a mask, of the values that it keeps."""
        if self.mask is not None:
            return examples * self.mask.shape.lines, self.mask.shape.kept
        if self.pooled:
            return len(self.shard.slices), examples, self.width
        return ids, self.width


class DenseRules:
    """The same of one shard of the central dense parameters."""

    def __init__(self, experiment: Experiment, shard: DenseShard) -> None:
        self.model, self.shard = experiment.model, shard
        self.kind, self.wire = dtype_of(self.model), _wire_of(experiment)


def _wire_of(experiment: Experiment) -> torch.dtype:
    return HALF.get(experiment.execution.wire, dtype_of(experiment.model))


ACKNOWLEDGED = torch.ones(1, dtype=torch.int64)
"""An acknowledgement has no content: it counts as a header, not as payload."""


def acknowledgement() -> Answer:
    """One under way."""
    return Answer((1,), torch.int64)


KINDS: list[type[ShardRequest]] = []
"""A header says a place in it."""


@dataclass
class ShardRequest:
    """Fields are the header's, content is what the request brings: tensors, if a kind says nothing
    else. The payload is the bytes of the content's parts, one after the other.

    ``iteration``: -1 outside of training, where nothing is recorded. ``counts``: ids of each slice.
    """

    effect: ClassVar[str]
    service: ClassVar[str]
    """Whose shards answer: "embedding" or "dense"."""
    iteration: int

    def parts(self, content: Any) -> Sequence[Tensor]:
        """Of the payload."""
        tensors: Sequence[Tensor] = content
        return tensors

    def unpack(self, rules: Any, payload: Tensor) -> Any:
        """The content. Raises ValueError where the payload has not the size that is due."""
        return ()

    def kind(self, rules: EmbeddingRules | DenseRules) -> torch.dtype:
        """As those of its numbers travel that may be rounded. Outside of training none is: what is
        evaluated is what was learned."""
        return rules.kind if self.iteration < 0 else rules.wire

    def __init_subclass__(cls, effect: str, service: str = "") -> None:
        cls.effect, cls.service = effect, service
        KINDS.append(cls)


def _ids(counts: tuple[int, ...], rules: EmbeddingRules) -> int:
    """How many ids are sent. Raises ValueError where the shard has other slices."""
    if len(counts) != len(rules.shard.slices) or min(counts, default=0) < 0:
        raise ValueError(f"ids of {len(counts)} slices at a shard of {len(rules.shard.slices)}")
    return sum(counts)


@dataclass
class StopRequest(ShardRequest, effect="stop"):
    """The client asks no more."""

    iteration: int = -1


@dataclass
class LookupRequest(ShardRequest, effect="lookup", service="embedding"):
    """Asks vectors or rows. Content: `Routed`. Payload: ids slice by slice; where the rules send
    them, the lengths of bags, slice by slice."""

    examples: int
    counts: tuple[int, ...]

    def parts(self, content: Routed) -> Sequence[Tensor]:
        sent = [content.values, content.lengths] if content.lengths.size else [content.values]
        return [torch.from_numpy(part) for part in sent]

    def unpack(self, rules: EmbeddingRules, payload: Tensor) -> Routed:
        bags = self.examples * rules.bag_lengths
        sent = (_ids(self.counts, rules), torch.int64), (bags, torch.int32)
        ids, lengths = (part.numpy() for part in split_bytes(payload, *sent))
        counts = np.array(self.counts)
        if rules.pooled:
            due = self.examples * rules.fixed
            if rules.bag_lengths:
                due[rules.sends_lengths] = lengths.reshape(rules.bag_lengths, -1).sum(1)
            if lengths.min(initial=0) < 0 or not np.array_equal(due, counts):
                raise ValueError(f"ids of {self.examples} examples that are not as many as said")
        return Routed(ids, counts, rules.sends_lengths, lengths, self.examples)

    def answer(self, rules: EmbeddingRules) -> Answer:
        """One under way: bytes where a mask lets a share of the vectors pass."""
        if rules.mask is not None:
            return Answer((rules.mask.bytes(self.examples),), torch.uint8)
        return Answer(rules.gradient_shape(self.examples, sum(self.counts)), self.kind(rules))


@dataclass
class UpdateRequest(ShardRequest, effect="update", service="embedding"):
    """Brings the gradient of the answer of this client's ``lookup`` of that number at this shard.
    Content: the ids again; the gradient. Without ids, and with empty ``counts``, where vectors of
    bags travel."""

    lookup: int
    examples: int
    counts: tuple[int, ...]

    def unpack(self, rules: EmbeddingRules, payload: Tensor) -> Sequence[Tensor]:
        """Ids, if only none; the gradient as `EmbeddingRules.gradient_shape` says."""
        ids = _ids(self.counts, rules) if self.counts else 0
        shape = rules.gradient_shape(self.examples, ids)
        parts = (ids, torch.int64), (prod(shape), self.kind(rules))
        sent, gradient = split_bytes(payload, *parts)
        return sent, widen(gradient.view(shape), rules.kind)


@dataclass
class FetchRequest(ShardRequest, effect="fetch", service="embedding"):
    """Asks rows with their optimizer's state. Content: ids."""

    counts: tuple[int, ...]

    def unpack(self, rules: EmbeddingRules, payload: Tensor) -> Sequence[Tensor]:
        return split_bytes(payload, (_ids(self.counts, rules), torch.int64))

    def answer(self, rules: EmbeddingRules) -> Answer:
        """One under way."""
        return Answer((sum(self.counts), rules.stored), rules.kind)


@dataclass
class StoreRequest(ShardRequest, effect="store", service="embedding"):
    """Brings rows with their optimizer's state. Content: ids, rows."""

    counts: tuple[int, ...]

    def unpack(self, rules: EmbeddingRules, payload: Tensor) -> tuple[Tensor, Tensor]:
        """(ids, rows [ids, numbers])."""
        count = _ids(self.counts, rules)
        sent = (count, torch.int64), (count * rules.stored, rules.kind)
        ids, rows = split_bytes(payload, *sent)
        return ids, rows.view(count, rules.stored)


@dataclass
class PullRequest(ShardRequest, effect="pull", service="dense"):
    """Asks the shard's elements."""


@dataclass
class PushRequest(ShardRequest, effect="push", service="dense"):
    """Brings a gradient of the shard's elements, or a difference to add. Content: the values."""

    add: bool

    def kind(self, rules: EmbeddingRules | DenseRules) -> torch.dtype:
        """A difference moves both ends, which must move alike."""
        return rules.kind if self.add else super().kind(rules)

    def unpack(self, rules: DenseRules, payload: Tensor) -> Sequence[Tensor]:
        (values,) = split_bytes(payload, (rules.shard.elements, self.kind(rules)))
        return [widen(values, rules.kind)]


@dataclass
class SparsePushRequest(ShardRequest, effect="push", service="dense"):
    """The same of some elements. Content: as `cut_sparse` makes it, with so many ``entries``."""

    add: bool
    entries: int

    def parts(self, content: RealSparse) -> Sequence[Tensor]:
        return [content.tensor]

    def unpack(self, rules: DenseRules, payload: Tensor) -> RealSparse:
        if self.entries < 0:
            raise ValueError(f"{self.entries} entries")
        whole = whole_places(rules.model, rules.shard.start, rules.shard.stop).numel()
        return unpack_sparse(payload, whole, self.entries, rules.kind)


@dataclass
class ExchangeRequest(ShardRequest, effect="exchange", service="dense"):
    """Asks how far parameters are from the central ones, from the shard's element ``start`` on, and
    moves these. Content: the parameters."""

    alpha: float
    start: int
    new: bool
    """Whether the answer is made with the moved central values."""

    def unpack(self, rules: DenseRules, payload: Tensor) -> Sequence[Tensor]:
        return split_bytes(payload, (payload.numel() // rules.kind.itemsize, rules.kind))


_CODES = {"int": "q", "float": "d", "bool": "?7x", "tuple[int, ...]": "q"}
"""Of each field's type 8 bytes: of several numbers, which are the last field, how many follow."""
_LAYOUTS = {k: struct.Struct("<q" + "".join(_CODES[str(f.type)] for f in fields(k))) for k in KINDS}
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_COUNTING = {kind for kind in KINDS if "counts" in kind.__dataclass_fields__}


def encode(request: ShardRequest) -> bytes:
    """The header: kind and fields, 8 bytes for each number."""
    kind, values = type(request), vars(request).values()
    if kind not in _COUNTING:
        return _LAYOUTS[kind].pack(_NUMBERS[kind], *values)
    *first, counts = values
    head = _LAYOUTS[kind].pack(_NUMBERS[kind], *first, len(counts))
    return head + struct.pack(f"<{len(counts)}q", *counts)


def decode(header: bytes) -> ShardRequest:
    """The inverse; what follows is ignored. Raises ValueError where it is no request's header."""
    try:
        kind = KINDS[header[0]]
        number, *values = _LAYOUTS[kind].unpack_from(header)
        if number != _NUMBERS[kind]:
            raise IndexError(f"there is no kind {number}")
        if kind in _COUNTING:
            values[-1] = struct.unpack_from(f"<{values[-1]}q", header, _LAYOUTS[kind].size)
    except (struct.error, IndexError) as error:
        raise ValueError(f"{len(header)} bytes are no request's header: {error}") from None
    return kind(*values)
