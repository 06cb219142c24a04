"""The micro-workload of readers: batches from the plan's own data, as many as are made together.

They are made as often as in a run: once in so many rounds, after everything else has been through
the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

from recsim_train.calibration.own.bench import Bench, Micro, Timed
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.stream import open_stream
from recsim_train.executor import feed
from recsim_train.placement.plan import Instance
from recsim_train.placement.reading import positions_of, reading_of
from recsim_train.strategy.values import Batch
from recsim_train.workload.scope import Scope

OPERATIONS = frozenset({"reading"})
_ENDLESS = 1 << 40
"""Iterations."""


class Reads(Micro):
    """One reader of each shape: all others do the same."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        readers: dict[Scope, Instance | None] = {}
        for reader in bench.plan.of_role("reader") or (None,):
            readers.setdefault(reading_of(bench.plan, reader), reader)
        self._streams = [(scope, self._stream(reader)) for scope, reader in readers.items()]
        self.period = max(int(scope.batches) for scope in readers)
        self._rounds = count()

    def _stream(self, reader: Instance | None) -> Iterator[NumpyBatch]:
        plan = self.bench.plan
        with open_stream(
            self.bench.model,
            plan.experiment.data,
            batch_size=plan.examples,
            positions=positions_of(plan, reader),
            total=plan.streams,
            iterations=_ENDLESS,
        ) as stream:
            for fed in stream:
                yield fed.batch

    def round(self, _: Batch, timed: Timed) -> None:
        done = next(self._rounds)
        for scope, stream in self._streams:
            if done % int(scope.batches) == 0:
                made = partial(feed.read_batches, self.bench.model, stream, int(scope.batches), [])
                timed(
                    "reading", made, ids=scope.ids, batches=scope.batches, skipped=scope.skipped,
                    source=scope.source,
                )  # fmt: skip
