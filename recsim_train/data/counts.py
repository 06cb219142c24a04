"""Counts of ids, and of distinct ones, that each batch sends to each embedding shard.

The simulator moves no ids, but some sizes depend on them: distinct ids where workers pool, ids per
part of a split table, ids of variable bags. Those are counted in the very batches that a real run
would feed. Where no size depends on the data, the shapes alone give them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Data
from recsim_train.data.drawn import DrawnCounts, expected_in_table
from recsim_train.data.shard_counter import ShardCounter
from recsim_train.data.stream import generated_rows, generator_stands_in, open_stream
from recsim_train.placement.plan import Plan
from recsim_train.workload.shape import mean_ids

_EXACT_IDS = 200_000_000
"""Ids that are counted exactly at most: some seconds' work, or half a minute's of a file."""
_REPEATED_IDS = 10_000_000
"""Of a run that has more, how many are: those of its first batches, which it uses over and over."""
_EXACT_IDS_FOLDED = 5_000_000
"""The same where trainers stand for others: their batches do, too."""
_EXACT_ENTRIES = 4_000_000
"""(Batch, shard) pairs whose counts are kept at most: 48 MB."""
_EXACT_BATCH = 3_000_000
"""Ids of one batch from which on none is counted."""
_KEPT_COUNTS = 500_000
"""Counts that are kept in the form in which they are asked for."""
_SAMPLED_BATCHES = 4
_SAMPLED_IDS = 4_000_000


class ShardCount(NamedTuple):
    """What one batch looks up at one shard."""

    ids: int
    """Ids inside the shard's slices."""
    unique: int
    """Distinct (table, id) pairs among them."""
    lengths: int
    """int32 bag lengths that travel with the ids where the shard pools: one per example for each
    slice of a variable or split table. 0 where workers pool."""


def counts_for(plan: Plan, loops: int | None = None) -> IdCounts:
    """Exact counts of the stream where a size depends on the data, else the shapes' counts.

    Of very large batches the shapes' counts will do: they hardly vary. ``loops``: of the first so
    many loops that get batches; None: of all.
    Raises UserError where sizes depend on a file that does not exist.
    """
    if not depends_on_data(plan) or _ids_per_batch(plan) > _EXACT_BATCH:
        return shape_counts(plan)
    return StreamCounts(plan, loops=loops)


def counts_key(plan: Plan) -> Hashable:
    """Plans with equal keys have equal counts."""
    training, embedding = plan.experiment.training, plan.embedding
    return (
        plan.experiment.model,
        plan.experiment.data,
        plan.examples,
        plan.streams,
        training.warmup_steps + training.steps,
        None if embedding is None else (embedding.service.pooling, embedding.shards),
    )


def depends_on_data(plan: Plan) -> bool:
    """Whether any payload of this plan depends on which ids the batches hold."""
    embedding = plan.embedding
    return any(table.variable for table in plan.experiment.model.tables) or (
        embedding is not None
        and (embedding.service.pooling == "worker" or bool(embedding.split_tables))
    )


class IdCounts(ABC):
    """Counts of the batch that a loop gets in an iteration."""

    def __init__(
        self,
        plan: Plan,
        source: str,
        loops: int | None = None,
        counter: ShardCounter | None = None,
    ) -> None:
        self.source = source
        """Where the counts come from, in one phrase for reports."""
        self.steps: int | None = None
        """How many different steps were counted; None: sizes are estimated from shapes."""
        self.exact = False
        """Whether every step's own batches were counted."""
        self._loops = max(1, plan.streams if loops is None else loops)
        self._counter = counter or ShardCounter(plan)
        self._lists: dict[int, list[ShardCount]] = {}

    @abstractmethod
    def _of(self, index: int) -> NDArray[np.int32]:
        """[shards + 1, 2] of the stream's batch ``index``."""

    def shard_counts(self, position: int, iteration: int) -> Sequence[ShardCount]:
        """By embedding shard, in shard order."""
        counts = self._of(iteration * self._loops + position)
        by_shard = self._lists.get(id(counts))  # these arrays live as long as this object
        if by_shard is None:
            lengths = self._counter.lengths
            pairs = counts[:-1].tolist()
            by_shard = [ShardCount(i, u, n) for (i, u), n in zip(pairs, lengths, strict=True)]
            if len(self._lists) * len(by_shard) >= _KEPT_COUNTS:
                self._lists.clear()
            self._lists[id(counts)] = by_shard
        return by_shard

    def batch_counts(self, position: int, iteration: int) -> tuple[int, int]:
        """(ids, distinct (table, id) pairs) of the whole batch."""
        ids, unique = self._of(iteration * self._loops + position)[-1].tolist()
        return ids, unique


class StreamCounts(IdCounts):
    """Exact counts of the batches that a run would feed, made when first asked for."""

    def __init__(self, plan: Plan, loops: int | None = None) -> None:
        """As many of the stream's first batches are counted as a run has, within bounds on time and
        memory; after these they are used again from the first.

        ``loops``: the first so many loops only, which share the whole stream; None: all.
        Raises as `recsim_train.data.stream.open_stream`.
        """
        training = plan.experiment.training
        data = feeding_data(plan.experiment.data)
        reading = max(1, plan.streams if loops is None else loops)
        wanted = reading * (training.warmup_steps + training.steps)
        self._exact = min(wanted, _most_exact(plan, loops is not None, wanted))
        repeated = f": its first {self._exact:,} batches, over and over"
        how = ", batch by batch" if self._exact == wanted else repeated
        super().__init__(plan, f"counted in the ids of {_name(plan.experiment.data)}{how}", loops)
        self.steps, self.exact = max(1, self._exact // reading), self._exact == wanted
        self._ahead = self._drawn(plan, data) if data.path is None else self._read(plan, data)
        self._counted: list[NDArray[np.int32]] = []

    def _of(self, index: int) -> NDArray[np.int32]:
        index %= self._exact
        while len(self._counted) <= index:
            self._counted.append(next(self._ahead))
        return self._counted[index]

    def _read(self, plan: Plan, data: Data) -> Iterator[NDArray[np.int32]]:
        """Of a file's batches."""
        stream = open_stream(
            plan.experiment.model,
            data,
            batch_size=plan.examples,
            positions=(0,),
            total=1,
            iterations=self._exact,
        )

        def counted() -> Iterator[NDArray[np.int32]]:
            with stream:
                for number, fed in enumerate(stream, start=1):
                    if number == self._exact:
                        stream.check()
                    yield self._counter.count(fed.batch).astype(np.int32)

        return counted()

    def _drawn(self, plan: Plan, data: Data) -> Iterator[NDArray[np.int32]]:
        """Of the generator's batches."""
        first, rows = generated_rows(data)
        drawn = DrawnCounts(self._counter.asked(data.synthetic, plan.examples, first, rows))
        pieces = range(-(-self._exact // drawn.together))
        return (batch for piece in pieces for batch in self._counter.joined(drawn.piece(piece)))


class _ShapeCounts(IdCounts):
    """The same counts for every batch."""

    def __init__(
        self, plan: Plan, source: str, counts: NDArray[np.int32], counter: ShardCounter
    ) -> None:
        super().__init__(plan, f"ids from the shapes, {source}", counter=counter)
        self._counts = counts

    def _of(self, index: int) -> NDArray[np.int32]:
        return self._counts


def shape_counts(plan: Plan) -> IdCounts:
    """Counts by arithmetic: ids follow from the shapes, distinct ids are estimated.

    Distinct ids (here only the cost of updates depends on them) are the mean of a few batches of
    the file where it exists, else their expectation under the generator's Zipf law.
    """
    experiment = plan.experiment
    model, data, b = experiment.model, experiment.data, plan.examples
    exists = data.path is not None and Path(data.path).exists()
    if exists and _ids_per_batch(plan) * _SAMPLED_BATCHES <= _SAMPLED_IDS:
        counter = ShardCounter(plan)
        with open_stream(
            model, data, batch_size=b, positions=(0,), total=1, iterations=_SAMPLED_BATCHES
        ) as stream:
            sampled = np.mean([counter.count(fed.batch) for fed in stream], axis=0)
        source = f"distinct ids the mean of {_SAMPLED_BATCHES} batches of {data.path}"
        return _ShapeCounts(plan, source, np.rint(sampled).astype(np.int32), counter)
    return expected_counts(plan)


def expected_counts(plan: Plan) -> IdCounts:
    """Counts by arithmetic alone: no data are read or drawn, whatever they decide."""
    synthetic = plan.experiment.data.synthetic
    source = f"distinct ids expected for a Zipf exponent of {synthetic.zipf:g}"
    counter = ShardCounter(plan)
    tables = counter.asked(synthetic, plan.examples, 0, synthetic.rows)
    (expected,) = counter.joined([expected_in_table(table)[None] for table in tables])
    return _ShapeCounts(plan, source, np.rint(expected).astype(np.int32), counter)


def feeding_data(data: Data) -> Data:
    """The same data, fed directly by the generator where it has yet to write the file."""
    return data.model_copy(update={"path": None}) if generator_stands_in(data) else data


def _name(data: Data) -> str:
    if data.path is None:
        return "the generator's stream"
    if generator_stands_in(data):
        return f"the rows that the generator will write to {data.path}"
    return data.path


def _ids_per_batch(plan: Plan) -> float:
    model = plan.experiment.model
    return sum(plan.examples * mean_ids(model, t) for t in range(len(model.tables)))


def _most_exact(plan: Plan, folded: bool, wanted: int) -> int:
    """How many of ``wanted`` batches are counted."""
    ids = max(_ids_per_batch(plan), 1)
    exact = _EXACT_IDS_FOLDED if folded else _EXACT_IDS
    if not folded and wanted * ids > exact:
        exact = _REPEATED_IDS
    shards = len(plan.embedding.shards) if plan.embedding else 0
    return max(1, min(int(exact / ids), _EXACT_ENTRIES // (shards + 1)))
