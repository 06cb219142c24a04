"""What happened in a simulation: spans and totals per iteration, so that an early stop cuts them
exactly; and books of the CPU seconds that activities take, as the executor keeps of real ones.

An activity is booked as a whole where it begins. Seconds are those of its work: what a cluster's
``contention`` takes from cores that are all busy shows as fewer cores busy, not as more seconds.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from statistics import fmean, stdev

from recsim_train.trace.ledger import Booked, Key
from recsim_train.trace.record import Iteration, Span, Sync, Total, TotalKey, loop_of

_MOST_SPANS = 500_000
"""Of all processes together: some hundred MB."""


class Series:
    """Effects of one kind of one loop, or requests served for it."""

    __slots__ = ("_records", "by_iteration", "key")

    def __init__(self, records: Records, key: TotalKey) -> None:
        self._records = records
        self.key = key
        self.by_iteration: dict[int, Total] = defaultdict(Total)

    def add(self, iteration: int, start: float, end: float, payload: int) -> None:
        """Record one finished effect that handed ``payload`` bytes to the transport."""
        total = self.by_iteration[iteration]
        total.count += 1
        total.seconds += end - start
        total.bytes += payload
        records = self._records
        instance, loop, effect, name = self.key
        if records.kept[instance] >= records.max_spans or len(records.spans) >= _MOST_SPANS:
            records.dropped_spans += 1
            return
        records.kept[instance] += 1
        records.spans.append(Span(instance, loop, iteration, effect, name, start, end, payload))


class Records:
    """All records of one run."""

    def __init__(self, max_spans: int) -> None:
        self.max_spans = max_spans
        """Of one process."""
        self.kept: Counter[str] = Counter()
        """By process: how many spans of it there are."""
        self._series: dict[TotalKey, Series] = {}
        self.spans: list[Span] = []
        self.dropped_spans = 0
        self.iterations: list[Iteration] = []
        self.rounds: list[Iteration] = []
        """Rounds of background loops."""
        self.syncs: list[Sync] = []

    def series(self, instance: str, loop: str, effect: str, name: str) -> Series:
        """Where effects with these names are recorded."""
        key = TotalKey(instance, loop, effect, name)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Series(self, key)
        return found

    def done(self) -> Counter[tuple[str, str, str]]:
        """By process, loop and effect: how often, but for what is served for others."""
        found: Counter[tuple[str, str, str]] = Counter()
        for key, series in self._series.items():
            if not key.effect.startswith("serve_"):
                counts = (total.count for total in series.by_iteration.values())
                found[key.instance, key.loop, key.effect] += sum(counts)
        return found

    def spread(self, effect: str, first: int, stop: int) -> float:
        """Standard deviation of the payload of one step, all roles together, over its mean.

        Of iterations ``first`` to ``stop`` (exclusive); 0 where there are fewer than two.
        """
        steps: dict[int, int] = dict.fromkeys(range(first, stop), 0)
        for key, series in self._series.items():
            if key.effect.removeprefix("serve_") == effect:
                for iteration in steps.keys() & series.by_iteration.keys():
                    steps[iteration] += series.by_iteration[iteration].bytes
        sent = list(steps.values())
        mean = fmean(sent) if sent else 0.0
        return stdev(sent) / mean if len(sent) > 1 and mean else 0.0

    def totals(self, first: int, stop: int) -> dict[TotalKey, Total]:
        """Exact sums over iterations ``first`` to ``stop`` (exclusive).

        Of background loops: over all rounds that ended.
        """
        ended = {done.loop: done.iteration + 1 for done in self.rounds}
        found: dict[TotalKey, Total] = {}
        for key in sorted(self._series):
            by_iteration = self._series[key].by_iteration
            loop = loop_of(key.loop)
            rounds = ended.get(f"{key.instance}.{loop}", ended.get(loop))
            low, high = (first, stop) if rounds is None else (0, rounds)
            totals = [by_iteration[i] for i in sorted(by_iteration) if low <= i < high]
            if totals:
                found[key] = Total(
                    count=sum(t.count for t in totals),
                    seconds=sum(t.seconds for t in totals),
                    bytes=sum(t.bytes for t in totals),
                )
        return found


class CpuBooks:
    """Of all processes."""

    __slots__ = ("_noted", "seconds")

    def __init__(self) -> None:
        self.seconds: Booked = {}
        self._noted: dict[float, array[float]] = {}
        """By time: what was booked until then, in the order of ``seconds``, which only grows."""

    def add(
        self,
        role: str,
        thread: str,
        parts: Iterable[tuple[str, float, float, float, float]],
        times: float = 1.0,
        *,
        threaded: bool = False,
    ) -> None:
        """A thread spends seconds on what they are for, ``times`` as many as given.

        ``threaded``: further threads, its pool, take the share of operations that they can take
        (`recsim_train.sim.pricing.Part`).
        """
        booked = self.seconds
        for what, seconds, _, added, further in parts:
            key, own = (role, what, thread), seconds
            if threaded:
                own += added - further
                if further:
                    pool = role, what, "pool"
                    booked[pool] = booked.get(pool, 0.0) + further * times
            booked[key] = booked.get(key, 0.0) + own * times

    def add_one(self, key: Key, seconds: float) -> None:
        """Seconds of one thing."""
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds

    def note(self, now: float) -> None:
        """Remember what has been booked until the first event at this time."""
        self._noted.setdefault(now, array("d", self.seconds.values()))

    def between(self, start: float, end: float) -> Booked:
        """What was booked between two times that were noted; the run's start needs no note."""
        empty = array("d")
        both = zip_longest(self._noted.get(start, empty), self._noted[end], fillvalue=0.0)
        return {key: y - x for key, (x, y) in zip(self.seconds, both, strict=False)}
