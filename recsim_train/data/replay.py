"""What every step does in every trainer's cache: hits, misses, evictions.

The simulator moves no rows; what its caches do follows from the ids of the batches and from the
executor's own slot logic (`recsim_train.data.mixcache`), so its counts are the executor's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recsim_train.config.errors import UserError
from recsim_train.data.counts import feeding_data
from recsim_train.data.mixcache import (
    CacheTooSmall,
    Numbers,
    SlotMap,
    first_rows,
    ownership,
    row_numbers,
    slot_map,
    slots_of,
    table_rows,
)
from recsim_train.data.stream import open_stream
from recsim_train.placement.plan import Plan
from recsim_train.trace.facts import Cached
from recsim_train.workload.shape import ID_BYTES, mean_ids, row_bytes

_REPLAYED_IDS = 400_000_000
"""Ids that are replayed at most; about the work of half a minute."""
_REPLAYED_IDS_FOLDED = 20_000_000
"""The same where trainers stand for others."""
_LEAST_STEPS = 4
_SAMPLED_BATCHES = 8
_EXAMPLES_AT_ONCE = 32_768
_MARKED_ROWS = 1 << 28
"""Up to so many rows a mark for each of them is cheaper than sorting."""
CHECKED_STEPS = 2


class Turnover(NamedTuple):
    """What one step does in one trainer's cache."""

    owned: int
    """Own rows among the step's distinct ids."""
    missing: tuple[int, ...]
    """Rows that must be fetched, by embedding shard."""
    evicted: tuple[int, ...]
    """Rows that must be stored, by embedding shard."""
    kept: tuple[int, ...]
    """Rows in the cache after the step, by embedding shard."""


class ReplayedStep(NamedTuple):
    """What one step needs."""

    ids: int
    """Ids of all trainers' batches together."""
    unique: int
    """Distinct (table, id) pairs among them: the virtual ids."""
    own_unique: float
    """Mean of the distinct pairs of one trainer's batch."""
    trainers: tuple[Turnover, ...]


class CacheSteps(ABC):
    """The caches of a plan's trainers, or of the first ones where these stand for all."""

    def __init__(self, slots: Sequence[int]) -> None:
        self.slots = tuple(slots)
        """By trainer; 0: as many as a step needs."""

    @abstractmethod
    def step(self, index: int) -> ReplayedStep:
        """What iteration ``index`` needs. Raises CacheTooSmall."""

    @abstractmethod
    def check(self) -> None:
        """Raise UserError where the first two steps do not fit into a trainer's cache."""

    @abstractmethod
    def warnings(self, steps: int) -> list[str]:
        """What a reader of a prediction must know, one sentence each.

        ``steps``: counted iterations.
        """

    def figures(self, first: int, stop: int) -> Cached:
        """Sums over all trainers and the iterations ``first`` to ``stop`` (exclusive)."""
        steps = [self.step(index) for index in range(first, stop)]
        turnovers = [t for step in steps for t in step.trainers]
        return Cached.of(
            self.slots,
            sum(t.owned for t in turnovers),
            sum(sum(t.missing) for t in turnovers),
            sum(sum(t.evicted) for t in turnovers),
        )


class FewerCaches(CacheSteps):
    """Those of fewer trainers, spread over the others."""

    def __init__(self, steps: CacheSteps, count: int) -> None:
        self._steps = steps
        self._places = spread(count, len(steps.slots))
        super().__init__([steps.slots[place] for place in self._places])

    def step(self, index: int) -> ReplayedStep:
        """Of all trainers together, and of these."""
        step = self._steps.step(index)
        return step._replace(trainers=tuple(step.trainers[place] for place in self._places))

    def check(self) -> None:
        """Of all."""
        self._steps.check()

    def warnings(self, steps: int) -> list[str]:
        return self._steps.warnings(steps)


class Replay(CacheSteps):
    """Steps on the ids of the stream, replayed when first asked for."""

    def __init__(self, plan: Plan, *, roomy: bool = False, simulated: int | None = None) -> None:
        """``roomy``: caches in which two steps always fit, to see what they need.
        ``simulated``: the caches of so many trainers only, who are spread over all, as the rows are
        that each owns: they lie in few shards; None: of all.

        Raises as `recsim_train.data.stream.open_stream`.
        """
        model, training = plan.experiment.model, plan.experiment.training
        self._plan = plan
        self._bases = first_rows(table_rows(model))
        self._model = model
        self._trainers = plan.experiment.roles.trainers
        trainers = spread(self._trainers if simulated is None else simulated, self._trainers)
        assert plan.topology.cache is not None
        self._servers = len(plan.of_role("embedding_server"))
        self._kind = plan.strategy.kind
        self._keep = plan.topology.cache.keep
        super().__init__([slots_of(plan, trainer) for trainer in trainers])
        self._owners = [ownership(plan, trainer) for trainer in trainers]
        self._maps = [slot_map(plan, trainer) for trainer in trainers]
        if roomy:
            ids = plan.examples * plan.streams * sum(table.ids for table in model.tables)
            most = [min(owner.rows, CHECKED_STEPS * ids) for owner in self._owners]
            self._maps = [SlotMap(max(1, slots), int(self._bases[-1])) for slots in most]
        self._shards = _ShardFinder(plan, self._bases)
        self._limit = replayed_steps(plan, folded=simulated is not None)
        self.complete = self._limit == training.warmup_steps + training.steps
        # Where many trainers' batches become one, larger pieces are faster to make.
        together = 1 if simulated is None else _together(plan.streams, plan.examples)
        self._loops = plan.streams // together
        self._stream = open_stream(
            model,
            feeding_data(plan.experiment.data),
            batch_size=plan.examples * together,
            positions=range(self._loops),
            total=self._loops,
            iterations=self._limit,
            seed=plan.experiment.seed,
            ids_only=True,
        )
        self._replayed: list[ReplayedStep] = []
        self._own_unique = None if together == 1 else self._sampled(plan)

    def step(self, index: int) -> ReplayedStep:
        """A run too long to be replayed repeats the second half of what was."""
        if index >= self._limit:
            half = self._limit // 2
            index = half + (index - half) % (self._limit - half)
        while len(self._replayed) <= index:
            self._replayed.append(self._next())
            if len(self._replayed) == self._limit:
                self._stream.check()
        return self._replayed[index]

    def check(self) -> None:
        """Replays the first two steps, which the prediction asks for anyway."""
        try:
            self.step(min(CHECKED_STEPS, self._limit) - 1)
        except CacheTooSmall as error:
            if len(self.slots) == self._trainers:  # in words that say how much all of them need
                check_cache(self._plan)
            raise UserError(str(error)) from None

    def _next(self) -> ReplayedStep:
        fed = [next(self._stream).batch for _ in range(self._loops)]
        batches = [row_numbers(self._model, batch, self._bases) for batch in fed]
        mean = self._own_unique
        if mean is None:
            batches_own = [np.unique(batch) for batch in batches]
            mean = sum(map(len, batches_own)) / len(batches_own)
            union = _union(batches_own, int(self._bases[-1]))
        else:
            union = _union(batches, int(self._bases[-1]))
        turnovers = []
        for trainer, (owner, slots) in enumerate(zip(self._owners, self._maps, strict=True)):
            mine = union[owner.places(union)]
            probed = slots.probe(mine)
            missing = self._shards.counts(mine[probed.missing])
            evicted = self._shards.counts(probed.evicted)
            before: tuple[int, ...] = (0,) * len(missing)
            if not self._keep:
                slots.flush()
            elif self._replayed:
                before = self._replayed[-1].trainers[trainer].kept
            kept = (b + m - e for b, m, e in zip(before, missing, evicted, strict=True))
            turnovers.append(Turnover(len(mine), missing, evicted, tuple(kept)))
        return ReplayedStep(sum(map(len, batches)), len(union), mean, tuple(turnovers))

    def _sampled(self, plan: Plan) -> float:
        """Mean of the distinct pairs of one trainer's batch, of the first few."""
        stream = open_stream(
            self._model,
            feeding_data(plan.experiment.data),
            batch_size=plan.examples,
            positions=(0,),
            total=1,
            iterations=_SAMPLED_BATCHES,
            seed=plan.experiment.seed,
            ids_only=True,
        )
        sizes = [len(np.unique(row_numbers(self._model, fed.batch, self._bases))) for fed in stream]
        return sum(sizes) / len(sizes)

    def warnings(self, steps: int) -> list[str]:
        sentences = []
        if not self.complete:
            sentences.append(
                f"The caches were replayed on the stream's first {self._limit:,} steps; later "
                "steps repeat their second half."
            )
        trainers = self._trainers
        replayed = self._replayed[-max(1, steps) :]
        if trainers == 1 or not replayed:
            return sentences
        table = sum(step.unique for step in replayed) / len(replayed)
        own = sum(step.own_unique for step in replayed) / len(replayed)
        row = row_bytes(self._model)
        reduced = 4 * (trainers - 1) / trainers * table * row
        each = own * (row + ID_BYTES)
        # through the busiest link: a trainer's, a server's, or a trainer's that holds a shard too
        moved = each * max(1.0, trainers / self._servers) if self._servers else 2 * each
        if reduced > moved:
            sentences.append(
                f"{self._kind} sums up a table of {table:,.0f} rows twice a step, for which every "
                f"trainer sends {reduced / 2**20:.2f} MiB; with a parameter server that moves rows "
                f"(pooling: worker) the busiest host would send {moved / 2**20:.2f} MiB: where the "
                "network binds, expect that one to be faster."
            )
        return sentences


def spread(count: int, trainers: int) -> list[int]:
    """So many of all trainers, as far from each other as can be."""
    return [number * trainers // count for number in range(count)]


def ids_of_step(plan: Plan) -> float:
    """Ids of all trainers' batches together, in the mean."""
    model = plan.experiment.model
    each = sum(mean_ids(model, table) for table in range(len(model.tables)))
    return plan.examples * plan.streams * each


def replayed_steps(plan: Plan, *, folded: bool) -> int:
    """How many steps of a plan are replayed; ``folded``: whether trainers stand for others."""
    total = plan.experiment.training.warmup_steps + plan.experiment.training.steps
    bound = _REPLAYED_IDS_FOLDED if folded else _REPLAYED_IDS
    return min(total, max(_LEAST_STEPS, int(bound / max(ids_of_step(plan), 1))))


def _union(batches: list[Numbers], rows: int) -> Numbers:
    """Distinct rows of all, sorted."""
    if len(batches) == 1:
        return np.unique(batches[0])
    if rows > _MARKED_ROWS:
        return np.unique(np.concatenate(batches))
    seen = np.zeros(rows, dtype=np.bool_)
    for batch in batches:
        seen[batch] = True
    return np.flatnonzero(seen)


def _together(streams: int, examples: int) -> int:
    """How many trainers' batches are made at once: a divisor of their number."""
    most = max(1, min(streams, _EXAMPLES_AT_ONCE // examples))
    return next(n for n in range(most, 0, -1) if streams % n == 0)


class _ShardFinder:
    """How many of some rows each embedding shard holds."""

    def __init__(self, plan: Plan, bases: Numbers) -> None:
        assert plan.embedding is not None
        slices = sorted(
            (int(bases[s.table]) + s.start, place)
            for place, shard in enumerate(plan.embedding.shards)
            for s in shard.slices
        )
        self._starts = np.array([start for start, _ in slices], dtype=np.int64)
        self._holder = np.array([place for _, place in slices], dtype=np.int64)
        self._shards = len(plan.embedding.shards)

    def counts(self, rows: Numbers) -> tuple[int, ...]:
        """By shard."""
        holders = self._holder[np.searchsorted(self._starts, rows, side="right") - 1]
        return tuple(np.bincount(holders, minlength=self._shards).tolist())


def check_cache(plan: Plan) -> None:
    """Raise UserError where the first two steps already do not fit into a trainer's cache."""
    rules, cache = plan.experiment.training, plan.topology.cache
    if cache is None or not cache.keep:
        return
    replay = Replay(plan, roomy=True)
    turnovers = replay.step(min(CHECKED_STEPS, rules.warmup_steps + rules.steps) - 1).trainers
    for trainer, (slots, turnover) in enumerate(zip(replay.slots, turnovers, strict=True)):
        if (needed := sum(turnover.kept)) > slots:
            raise too_small(slots, needed, trainer)


def too_small(slots: int, needed: int, trainer: int) -> UserError:
    """A cache that cannot hold the ``needed`` rows of the first two steps."""
    return UserError(
        f"the cache of {slots:,} rows per trainer cannot hold two steps: the first ones need "
        f"{needed:,} rows of trainer[{trainer}]'s own; set cache_rows to that and a little more, "
        "or use smaller batches"
    )
