"""Counts of ids, and of distinct ones, that each batch sends to each embedding shard.

The simulator moves no ids, but some sizes depend on them: distinct ids where workers pool, ids per
part of a split table, ids of variable bags. Those are counted in the very batches that a real run
would feed. Where no size depends on the data, the shapes alone give them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from glob import glob
from os.path import lexists
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Data, Synthetic
from recsim_train.data.batch import NumpyBatch, ids_by_table
from recsim_train.data.drawn import (
    AskedTable,
    DrawnCounts,
    TablePart,
    count_ids,
    expected_in_table,
)
from recsim_train.data.stream import generated_rows, generator_stands_in, open_stream
from recsim_train.placement.plan import EmbeddingShard, Plan
from recsim_train.workload.shape import mean_ids

_Number = TypeVar("_Number", np.int32, np.float64)


class ShardCounter:
    """Counts ids by the shards of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._model, embedding = plan.experiment.model, plan.embedding
        self._shards: tuple[EmbeddingShard, ...] = embedding.shards if embedding else ()
        slices = [(place, s) for place, shard in enumerate(self._shards) for s in shard.slices]
        self._slices = [s for _, s in slices]
        self._owner = np.array([place for place, _ in slices], dtype=np.int64)
        self.lengths = [0] * len(self._shards)
        if embedding and embedding.service.pooling == "server":
            variable = {t for t, table in enumerate(self._model.tables) if table.variable}
            told = variable | set(embedding.split_tables)
            self.lengths = [
                plan.examples * sum(s.table in told for s in shard.slices) for shard in self._shards
            ]

    def count(self, batch: NumpyBatch) -> NDArray[np.int32]:
        """[shards + 1, 2]: (ids, unique) of a batch by shard, and of the whole one last."""
        tables = zip(ids_by_table(self._model, batch), self._model.tables, self._parts, strict=True)
        cut = [count_ids(ids, table.rows, parts) for ids, table, parts in tables]
        counts: NDArray[np.int32] = self.joined(cut)[0]
        return counts

    def asked(self, synthetic: Synthetic, batch: int, first: int, rows: int) -> list[AskedTable]:
        """What is counted in each table's draws, of a stream of ``rows`` rows from ``first`` on."""
        tables = enumerate(zip(self._model.tables, self._parts, strict=True))
        stream = synthetic.seed, synthetic.zipf, batch, first, rows
        return [
            AskedTable(number, table.rows, table.ids, table.variable, parts, *stream)
            for number, (table, parts) in tables
        ]

    @cached_property
    def _parts(self) -> list[tuple[TablePart, ...]]:
        """Of each table, as its slices cut it."""
        cuts: list[set[TablePart]] = [set() for _ in self._model.tables]
        for s in self._slices:
            if s.step == 1:
                cuts[s.table].add(TablePart(s.start, s.stop))
            elif not cuts[s.table]:  # all remainders at once: others have the same step
                cuts[s.table] |= {TablePart(start, s.stop, s.step) for start in range(s.step)}
        whole = [(TablePart(0, table.rows),) for table in self._model.tables]
        return [tuple(sorted(cut)) or all_ for cut, all_ in zip(cuts, whole, strict=True)]

    @cached_property
    def _places(self) -> list[int]:
        """Where each slice's part is among those of all tables."""
        order = [(t, part.start) for t, parts in enumerate(self._parts) for part in parts]
        places = {part: place for place, part in enumerate(order)}
        return [places[s.table, s.start] for s in self._slices]

    def joined(self, tables: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
        """[batches, shards + 1, 2]: as `count`, from the counts of each table's parts."""
        parts: NDArray[_Number] = np.concatenate(tables, axis=1).transpose(1, 0, 2)
        counts = np.zeros((len(self._shards) + 1, *parts.shape[1:]), dtype=parts.dtype)
        counts[-1] = parts.sum(axis=0)
        np.add.at(counts, self._owner, parts[self._places])
        return counts.transpose(1, 0, 2)


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
_LOOPS_READ = 32
"""Loops of which each one's own rows are read of files: each holds some megabytes."""
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
    few = not depends_on_data(plan) or _ids_per_batch(plan) > _EXACT_BATCH
    counts = shape_counts(plan) if few else stream_counts(plan, loops)
    if _are_there(plan.experiment.data):
        from recsim_train.data.log_stream import decoded_rows  # with it comes pyarrow

        spec = plan.experiment
        counts.decoded = decoded_rows(spec.model, spec.data, max(1, plan.streams))
    return counts


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


class IdCounts:
    """Counts of the batch that a loop gets in an iteration."""

    def __init__(
        self,
        counter: ShardCounter,
        source: str,
        batches: Iterator[NDArray[np.int32]],
        loops: int,
        *,
        most: int = 1,
        steps: int | None = None,
        exact: bool = False,
    ) -> None:
        """``batches``: [shards + 1, 2] of each of the stream's first batches, made when first asked
        for; after so many as ``most`` they are used again from the first."""
        self.source = source
        """Where the counts come from, in one phrase for reports."""
        self.steps = steps
        """How many different steps were counted; None: sizes are estimated from shapes."""
        self.exact = exact
        """Whether every step's own batches were counted."""
        self.decoded = 1.0
        """Rows that are decoded for each one that is taken."""
        self._counter, self._loops = counter, loops
        self._ahead, self._most = batches, most
        self._counted: list[NDArray[np.int32]] = []
        self._lists: dict[int, list[ShardCount]] = {}

    def _of(self, index: int) -> NDArray[np.int32]:
        """Of the stream's batch ``index``."""
        index %= self._most
        while len(self._counted) <= index:
            self._counted.append(next(self._ahead))
        return self._counted[index]

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


def stream_counts(plan: Plan, loops: int | None = None) -> IdCounts:
    """Exact counts of the batches that a run would feed, made when first asked for.

    As many of the stream's first batches are counted as a run has, within bounds on time and
    memory; after these they are used again from the first. ``loops``: the first so many loops only,
    which share the whole stream; None: all.
    Raises as `recsim_train.data.stream.open_stream`.
    """
    training = plan.experiment.training
    data = feeding_data(plan.experiment.data)
    reading = max(1, plan.streams if loops is None else loops)
    wanted = reading * (training.warmup_steps + training.steps)
    most = min(wanted, _most_exact(plan, loops is not None, wanted))
    repeated = f": its first {most:,} batches, over and over"
    how = ", batch by batch" if most == wanted else repeated
    counter = ShardCounter(plan)
    return IdCounts(
        counter,
        f"counted in the ids of {_name(plan.experiment.data)}{how}",
        (_drawn if data.path is None else _read)(plan, data, counter, most),
        reading,
        most=most,
        steps=max(1, most // reading),
        exact=most == wanted and (data.path is None or reading <= _LOOPS_READ),
    )


def _read(plan: Plan, data: Data, counter: ShardCounter, most: int) -> Iterator[NDArray[np.int32]]:
    """Of files' batches: those of each loop, or of very many those of one in their place."""
    loops = plan.streams if plan.streams <= _LOOPS_READ else 1
    stream = open_stream(
        plan.experiment.model,
        data,
        batch_size=plan.examples,
        positions=range(loops),
        total=loops,
        iterations=-(-most // loops),
        seed=plan.experiment.seed,
    )

    def counted() -> Iterator[NDArray[np.int32]]:
        for number, fed in enumerate(stream, start=1):
            if number == most:
                stream.check()
            yield counter.count(fed.batch)

    return counted()


def _drawn(plan: Plan, data: Data, counter: ShardCounter, most: int) -> Iterator[NDArray[np.int32]]:
    """Of the generator's batches."""
    first, rows = generated_rows(data)
    drawn = DrawnCounts(counter.asked(data.synthetic, plan.examples, first, rows))
    pieces = range(-(-most // drawn.together))
    return (batch for piece in pieces for batch in counter.joined(drawn.piece(piece)))


def _from_shapes(
    plan: Plan, source: str, counts: NDArray[np.float64], counter: ShardCounter
) -> IdCounts:
    """The same counts for every batch."""
    every = iter([np.rint(counts).astype(np.int32)])
    return IdCounts(counter, f"ids from the shapes, {source}", every, max(1, plan.streams))


def shape_counts(plan: Plan) -> IdCounts:
    """Counts by arithmetic: ids follow from the shapes, distinct ids are estimated.

    Distinct ids (here only the cost of updates depends on them) are the mean of a few batches of
    the file where it exists, else their expectation under the generator's Zipf law.
    """
    experiment = plan.experiment
    model, data, b = experiment.model, experiment.data, plan.examples
    if _are_there(data) and _ids_per_batch(plan) * _SAMPLED_BATCHES <= _SAMPLED_IDS:
        counter = ShardCounter(plan)
        stream = open_stream(
            model,
            data,
            batch_size=b,
            positions=(0,),
            total=1,
            iterations=_SAMPLED_BATCHES,
            seed=experiment.seed,
        )
        sampled = np.mean([counter.count(fed.batch) for fed in stream], axis=0)
        source = f"distinct ids the mean of {_SAMPLED_BATCHES} batches of {_name(data)}"
        return _from_shapes(plan, source, sampled, counter)
    return expected_counts(plan)


def _are_there(data: Data) -> bool:
    """Whether the files are."""
    return bool(data.path) and all(lexists(name) or glob(name) for name in data.path or ())


def expected_counts(plan: Plan) -> IdCounts:
    """Counts by arithmetic alone: no data are read or drawn, whatever they decide."""
    synthetic = plan.experiment.data.synthetic
    source = f"distinct ids expected for a Zipf exponent of {synthetic.zipf:g}"
    counter = ShardCounter(plan)
    tables = counter.asked(synthetic, plan.examples, 0, synthetic.rows)
    (expected,) = counter.joined([expected_in_table(table)[None] for table in tables])
    return _from_shapes(plan, source, expected, counter)


def feeding_data(data: Data) -> Data:
    """The same data, fed directly by the generator where it has yet to write the file."""
    return data.model_copy(update={"path": None}) if generator_stands_in(data) else data


def _name(data: Data) -> str:
    if data.path is None:
        return "the generator's stream"
    if generator_stands_in(data):
        return f"the rows that the generator will write to {data.named(data.path)}"
    return data.named(data.path)


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
