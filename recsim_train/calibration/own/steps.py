"""Micro-workloads of a training step: ids to shards, rows back, the net, gradients to shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsim_train.calibration.own.bench import Bench, Micro, Timed, ids_of
from recsim_train.executor.net import kernels
from recsim_train.executor.net.masks import RealMasked, VectorMask
from recsim_train.executor.net.rows import Numbers
from recsim_train.executor.shards.routing import (
    Routed,
    ShardSlices,
    assemble_rows,
    route_gradient,
    route_ids,
)
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.shards.wire import EmbeddingRules
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.strategy.values import Batch

AT_SHARDS = frozenset({"lookup_pooled", "lookup_rows", "update_pooled", "update_rows"})
OPERATIONS = AT_SHARDS | {
    "deduplicate", "route_ids", "mask", "unmask", "assemble_rows", "forward_backward",
    "route_gradient", "pick", "unpick",
}  # fmt: skip


class Steps(Micro):
    """The shards of a plan and one loop that asks them, all in one thread."""

    def __init__(self, bench: Bench) -> None:
        plan = bench.plan
        assert plan.embedding is not None
        self.bench, self.shards = bench, plan.embedding.shards
        self.pooled = bench.pooling == "server"
        self.own = plan.embedding.service.access == "own"
        """Whether a loop uses the shard in its own process only."""
        self.rules = [EmbeddingRules(plan, shard) for shard in self.shards]
        split = self.rules[0].split
        self.parts = ShardSlices(bench.model, [s.slices for s in self.shards], split)
        mine = ShardSlices(bench.model, [self.shards[0].slices], split)
        self.asked = mine if self.own else self.parts
        self.servers: dict[int, EmbeddingServer] = {}
        """One shard for each number of slices: the others do the same."""
        for shard in self.shards:
            if all(len(shard.slices) != len(self.shards[n].slices) for n in self.servers):
                self.servers[shard.index] = EmbeddingServer(plan, shard)
        loops = len(plan.training) // plan.experiment.roles.trainers
        self.clients = loops * len(plan.together[0]) if plan.together else 1
        """Whose gradients make one update."""
        self.parts_of: dict[int, deque[tuple[int, kernels.Part]]] = {
            n: deque(maxlen=self.clients) for n in self.servers
        }
        self.joined = bool(plan.together)
        self.worker = bench.worker()
        self.net = plan.net is None
        self._distinct: dict[object, int] = {}

    def round(self, batch: Batch, timed: Timed) -> None:
        ids = found = ids_of(batch)
        if not self.pooled:
            count = ids.values.numel()
            found = timed("deduplicate", partial(kernels.deduplicate, self.worker, ids), ids=count)
        unique = self._count(id(batch), lambda: _distinct_ids(self.worker, ids))
        slices = sum(len(shard.slices) for shard in self.shards)
        of_all = {"pooling": self.bench.pooling, "ids": found.values.numel(), "unique": unique}
        client = {**of_all, "tables": slices, "shards": len(self.shards)}
        routed = timed("route_ids", lambda: route_ids(found, self.asked), **client)
        everywhere = route_ids(found, self.parts) if self.own else routed
        self._over()
        answers, left = self._look_up(batch, everywhere, timed)
        self._over()
        if self.own:
            rows = timed("assemble_rows", lambda: RealRows(answers[0], found), **client)
        else:
            whole = partial(assemble_rows, found, self.parts, routed, answers)
            rows = timed("assemble_rows", whole, **client)
        gradient = rows
        if self.net:
            step = partial(kernels.forward_backward, self.worker, batch, rows)
            of_all["ids"] = ids.values.numel()
            gradient = timed("forward_backward", step, **of_all).rows
        if self.own:
            pieces = timed("route_gradient", lambda: [gradient.tensor], **client)
            pieces += [torch.zeros_like(answer) for answer in answers[1:]]
        else:
            back = partial(route_gradient, gradient, self.parts, routed)
            pieces = timed("route_gradient", back, **client)
        self._over()
        self._update(batch, everywhere, pieces, left, timed)

    def _over(self) -> None:
        """From the loop to a shard, or back."""
        if not self.own:
            self.bench.elsewhere()

    def _look_up(
        self, batch: Batch, routed: Sequence[Routed], timed: Timed
    ) -> tuple[list[Tensor], dict[int, tuple[Numbers, Numbers, RealMasked | None]]]:
        """(all answers, what a lookup leaves at each shard that is here)."""
        answers, left = [], {}
        for shard, part in zip(self.shards, routed, strict=True):
            rules = self.rules[shard.index]
            server = self.servers.get(shard.index)
            if server is None:
                shape = (len(shard.slices), batch.size) if self.pooled else (part.values.size,)
                answers.append(torch.zeros(*shape, rules.width, dtype=self.bench.dtype))
                continue
            name = "lookup_pooled" if self.pooled else "lookup_rows"
            sizes = self._sizes(batch, shard.index, part)
            answer, places, bags = timed(name, partial(server.lookup, part), **sizes)
            masked = None
            if (rule := rules.mask) is not None:
                kept = self._kept(rule, batch)
                masked = timed("mask", partial(rule.mask, answer), **kept)
                answer = timed("unmask", partial(_unmask, rule, masked.tensor, batch.size), **kept)
            answers.append(answer)
            left[shard.index] = places, bags, masked
        return answers, left

    def _update(
        self,
        batch: Batch,
        routed: Sequence[Routed],
        pieces: Sequence[Tensor],
        left: dict[int, tuple[Numbers, Numbers, RealMasked | None]],
        timed: Timed,
    ) -> None:
        for index, (places, bags, masked) in left.items():
            piece, rule = pieces[index], self.rules[index].mask
            if masked is not None and rule is not None:
                kept = self._kept(rule, batch)
                picked = timed("pick", partial(rule.pick, piece, masked.places), **kept)
                piece = timed("unpick", partial(rule.unpick, picked, masked.places), **kept)
            state = self.servers[index].state
            name = "update_pooled" if self.pooled else "update_rows"
            sizes = self._sizes(batch, index, routed[index])
            if not self.joined:
                call = partial(kernels.update_pooled, state, places, bags, piece)
                timed(name, call, **sizes)
                continue
            parts = self.parts_of[index]
            parts.append((id(batch), (places, bags, piece)))
            while len(parts) < self.clients:
                parts.append(parts[-1])
            whole = np.concatenate([p[0] for _, p in parts])
            key = index, *(number for number, _ in parts)
            sizes["unique"] = self._count(key, partial(_different, whole))
            sizes["ids"] = whole.size
            timed(name, partial(kernels.update_together, state, [p for _, p in parts]), **sizes)

    def _sizes(self, batch: Batch, shard: int, part: Routed) -> dict[str, Any]:
        """Of a shard's operation on what a batch asks of it."""
        unique = self._count((id(batch), shard), lambda: _distinct(part))
        return {
            "pooling": self.bench.pooling,
            "ids": part.values.size,
            "unique": unique,
            "tables": len(self.shards[shard].slices),
        }

    def _kept(self, rule: VectorMask, batch: Batch) -> dict[str, Any]:
        return {
            "elements": batch.size * rule.shape.values,
            "kept": batch.size * rule.shape.all_kept,
        }

    def _count(self, key: object, count: Callable[[], int]) -> int:
        """Counted once: the same batches come again."""
        if key not in self._distinct:
            self._distinct[key] = count()
        return self._distinct[key]


def _unmask(rule: VectorMask, payload: Tensor, batch: int) -> Tensor:
    """As a client does with an answer that has arrived."""
    return rule.unmask(rule.read(payload, batch))


def _distinct_ids(worker: Any, ids: RealIds) -> int:
    found: RealIds = kernels.deduplicate(worker, ids)
    return found.values.numel()


def _distinct(part: Routed) -> int:
    cuts = np.cumsum(part.counts)[:-1]
    return sum(np.unique(values).size for values in np.split(part.values, cuts))


def _different(places: Numbers) -> int:
    return int(np.unique(places).size)
