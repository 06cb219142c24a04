"""What a step is expected to do in every trainer's cache, by the law of the generator's ids alone.

For a look at a design, where drawing the ids of all trainers takes longer than everything else:
steps are all alike, as the mean of the counted ones, and caches as full as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from recsim_train.data.drawn import AskedTable, TablePart, expected_in_table
from recsim_train.data.draws import GOLDEN
from recsim_train.data.mixcache import first_rows, ownership, slots_of, table_rows
from recsim_train.data.replay import (
    CHECKED_STEPS,
    CacheSteps,
    ReplayedStep,
    Turnover,
    ids_of_step,
    spread,
    too_small,
)
from recsim_train.data.stream import generated_rows
from recsim_train.placement.plan import Plan

_MARGIN = 1.02
"""Rows by which two steps must be beyond a cache to be sure that they are: a few draws decide."""
_HALVINGS = 10

Rows = NDArray[np.float64]
"""[trainers, shards]: distinct rows, by owner and by the embedding shard that holds them."""


class ExpectedCache(CacheSteps):
    """Steps by expectation. A cache that is full gives up what was used longest ago here; the
    executor's misses more of ids that come by chance, up to a fifth where it was compared."""

    def __init__(self, plan: Plan, simulated: int) -> None:
        """``simulated``: so many trainers stand for all, or are all: each for those that own the
        rows beside its own, whose mean it has.

        Raises UserError where the generator has no rows to train on.
        """
        trainers, cache = plan.experiment.roles.trainers, plan.topology.cache
        assert cache is not None
        first = spread(simulated, trainers)
        super().__init__([slots_of(plan, trainer) for trainer in first])
        self._of_all = [slots_of(plan, trainer) for trainer in range(trainers)]
        rules = plan.experiment.training
        self._keep, self._total = cache.keep, rules.warmup_steps + rules.steps
        self._distinct = _DistinctRows(plan)
        one = self._distinct.seen(1.0)
        turnover = one, np.zeros_like(one), one
        if self._keep:
            turnover = self._mean(rules.warmup_steps, rules.steps)
        stops = [*first[1:], trainers]
        assert plan.embedding is not None
        own = plan.embedding.shards[0].host.role == "trainer"

        def stands(rows: Rows) -> Rows:
            spans = zip(first, stops, strict=True)
            return np.stack([_mean_of(rows, start, stop, own=own) for start, stop in spans])

        self._turnover = tuple(map(stands, turnover))
        each = GOLDEN / 2**64 * np.arange(simulated * one.shape[1])
        self._begin = np.modf(each)[0].reshape(simulated, -1)
        """Which part of a row has gathered before the first step: each a different one."""
        self._owned = np.rint(stands(one).sum(axis=1)).astype(int).tolist()
        self._ids, self._unique = round(ids_of_step(plan)), round(one.sum())
        self._own_unique = self._distinct.count(1.0 / plan.streams)
        self._steps: dict[int, ReplayedStep] = {}

    def step(self, index: int) -> ReplayedStep:
        """Alike but for parts of rows: one of which a step has a tenth is in each tenth step."""
        if (known := self._steps.get(index)) is not None:
            return known
        gathered = (
            np.floor(rows * (index + 1) + self._begin) - np.floor(rows * index + self._begin)
            for rows in self._turnover
        )
        missing, evicted, kept = (rows.astype(int).tolist() for rows in gathered)
        turnovers = tuple(
            Turnover(owned, *map(tuple, rows))
            for owned, *rows in zip(self._owned, missing, evicted, kept, strict=True)
        )
        found = ReplayedStep(self._ids, self._unique, self._own_unique, turnovers)
        return self._steps.setdefault(index, found)

    def check(self) -> None:
        """What a few rows decide is left to who draws them."""
        if self._keep:
            needed = self._distinct.seen(min(CHECKED_STEPS, self._total)).sum(axis=1)
            for trainer, slots in enumerate(self._of_all):
                if needed[trainer] > _MARGIN * slots:
                    raise too_small(slots, round(needed[trainer]), trainer)

    def warnings(self, steps: int) -> list[str]:
        """Nobody reads those of a look."""
        return []

    def _mean(self, warmup: int, counted: int) -> tuple[Rows, Rows, Rows]:
        """(missing, evicted, kept) of a step, in the mean of the counted ones."""
        seen, rows_of = self._distinct.seen, self._distinct.count
        slots, end = sum(self._of_all), warmup + counted
        begun, ended = seen(warmup), seen(end)
        if ended.sum() <= slots:
            return (ended - begun) / counted, np.zeros_like(ended), seen(warmup + counted / 2)
        full, above = 0.0, float(end)
        for _ in range(_HALVINGS):
            middle = (full + above) / 2
            if rows_of(middle) <= slots:
                full = middle
            else:
                above = middle
        kept = seen(full)
        evicted = seen(full + 1) - kept
        if end > (epoch := self._distinct.epoch):
            # rows come again in the same order: of all that do not fit each is missed once
            evicted = ended * min(1.0 - slots / ended.sum(), evicted.sum() / ended.sum() * epoch)
            evicted /= epoch
        evicted *= min(1.0, (end - full) / counted)
        return np.maximum(kept - begun, 0.0) / counted + evicted, evicted, kept


def _mean_of(rows: Rows, start: int, stop: int, *, own: bool) -> NDArray[np.float64]:
    """The mean row of trainers ``start`` to ``stop``; ``own``: each has a shard of its own, whose
    rows are counted in the place of the first one's."""
    found = rows[start:stop].copy()
    for n in range(start + 1, stop) if own else ():
        found[n - start, [start, n]] = found[n - start, [n, start]]
    mean: NDArray[np.float64] = found.mean(axis=0)
    return mean


class _DistinctRows:
    """Distinct rows among the ids of so many steps of all trainers."""

    def __init__(self, plan: Plan) -> None:
        spec = plan.experiment
        self._tables, self._synthetic = spec.model.tables, spec.data.synthetic
        self._examples = plan.examples * plan.streams
        _, self._rows = generated_rows(spec.data)
        self.epoch = self._rows / self._examples
        """Steps after which the rows come again."""
        assert plan.embedding is not None
        trainers, shards = spec.roles.trainers, plan.embedding.shards
        owners = [ownership(plan, trainer) for trainer in range(trainers)]
        bases = first_rows(table_rows(spec.model))
        self._shape = trainers, len(shards)
        slices: dict[int, list[tuple[int, int]]] = {}
        """By table: where each begins, and the place of the shard that holds it."""
        for place, shard in enumerate(shards):
            for piece in shard.slices:
                assert piece.step == 1
                slices.setdefault(piece.table, []).append((piece.start, place))
        self._parts: list[tuple[TablePart, ...]] = []
        self._whose: list[tuple[Sequence[int], Sequence[int]]] = []
        """Of each table's parts: whose rows they are, and which shard holds them."""
        for table, base in enumerate(bases[:-1].tolist()):
            owned = [int(owner.starts[table]) - base for owner in owners]
            held = sorted(slices[table])
            starts = sorted({*owned, *(start for start, _ in held)})
            starts = [start for start in starts if start < self._tables[table].rows]
            stops = [*starts[1:], self._tables[table].rows]
            self._parts.append(tuple(map(TablePart, starts, stops)))
            holder = np.searchsorted([start for start, _ in held], starts, side="right") - 1
            owner = np.searchsorted(owned, starts, side="right") - 1
            self._whose.append((owner.tolist(), [held[place][1] for place in holder]))

    def seen(self, steps: float) -> Rows:
        """Of the stream's first ``steps`` steps; a share of one, too."""
        found = np.zeros(self._shape)
        for whose, rows in zip(self._whose, self._by_table(steps, self._parts), strict=True):
            np.add.at(found, whose, rows)
        return found

    def count(self, steps: float) -> float:
        """The same of all trainers and shards together."""
        whole = [(TablePart(0, table.rows),) for table in self._tables]
        return sum(float(rows.sum()) for rows in self._by_table(steps, whole))

    def _by_table(
        self, steps: float, parts: Sequence[tuple[TablePart, ...]]
    ) -> Iterator[NDArray[np.float64]]:
        examples = min(round(steps * self._examples), self._rows)
        seed, zipf = self._synthetic.seed, self._synthetic.zipf
        for number, (table, cut) in enumerate(zip(self._tables, parts, strict=True)):
            asked = AskedTable(
                number, table.rows, table.ids, table.variable, cut, seed, zipf, examples, 0, 0
            )
            yield expected_in_table(asked)[:, 1]
