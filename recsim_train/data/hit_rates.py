"""Hit rates of caches of several sizes over a stream's rows, by the MixCache's own rule."""

from __future__ import annotations

import math

import numpy as np

from recsim_train.config.experiment import Model
from recsim_train.data.mixcache import CacheTooSmall, Numbers, SlotMap, table_rows

_SIZES = 8
_HEADROOM = 1.1
"""The smallest size over what the first two batches need: later ones may need a little more."""


class HitRates:
    """Caches of doubling sizes, all fed with the same batches; one trainer owns every row.

    Rates are of the second half of the batches: before, caches are still being filled.
    """

    def __init__(self, model: Model, batches: int) -> None:
        self._rows = sum(table_rows(model))
        self._first_counted = batches // 2
        self._maps: list[SlotMap | None] = []
        self._capacities: list[int] = []
        self._probed = 0
        self._hits: list[int] = []
        self._seen = 0
        self._held_back: Numbers | None = None
        self.two_steps = 0
        """Most rows that two batches in a row need: the smallest cache that works."""
        self._before = np.zeros(0, dtype=np.int64)

    def add(self, rows: Numbers) -> None:
        """The distinct, sorted row numbers of the next batch."""
        both = len(np.union1d(rows, self._before))
        self.two_steps = max(self.two_steps, both)
        self._before = rows
        if self._held_back is None and not self._maps:
            self._held_back = rows
            return
        if self._held_back is not None:
            self._start(both)
            first, self._held_back = self._held_back, None
            self._probe(first)
        self._probe(rows)

    def _start(self, need: int) -> None:
        size = min(_round_up(need * _HEADROOM), self._rows)
        while size < self._rows and len(self._capacities) < _SIZES - 1:
            self._capacities.append(size)
            size *= 2
        self._capacities.append(min(size, self._rows))
        self._maps = [SlotMap(capacity, self._rows) for capacity in self._capacities]
        self._hits = [0] * len(self._maps)

    def _probe(self, rows: Numbers) -> None:
        counted = self._seen >= self._first_counted
        self._seen += 1
        self._probed += len(rows) if counted else 0
        for place, slots in enumerate(self._maps):
            if slots is None:
                continue
            try:
                missing = int(np.count_nonzero(slots.probe(rows).missing))
            except CacheTooSmall:
                self._maps[place] = None
                continue
            self._hits[place] += len(rows) - missing if counted else 0

    def summary(self) -> dict[str, object]:
        """As JSON; a rate is None where the cache could not hold two batches."""
        return {
            "two_steps": self.two_steps,
            "sizes": [
                {
                    "cache_rows": capacity,
                    "hit_rate": None if slots is None else round(hits / self._probed, 4),
                }
                for capacity, slots, hits in zip(
                    self._capacities, self._maps, self._hits, strict=True
                )
            ],
        }


def _round_up(value: float) -> int:
    """To two significant digits."""
    unit = int(10.0 ** max(0, math.floor(math.log10(max(value, 1.0))) - 1))
    return math.ceil(value / unit) * unit
