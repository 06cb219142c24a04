"""What happened in a simulation: spans and totals per iteration, so that an early stop cuts them
exactly; books of the CPU seconds that activities take, as the executor keeps of real ones; and
accounts of where the time of a training loop's effects goes.

An activity is booked as a whole where it begins. Seconds are those of its work: what a cluster's
``contention`` takes from cores that are all busy shows as fewer cores busy, not as more seconds.

Every effect of a loop is a chain: its own work, then what it waits for. Of requests that go out
together the one that comes back last is the chain. An effect's seconds are

- compute: work on a core, the loop's own and what servers did for it, as long as it takes alone;
- transfer: latency, and bytes at the rate that they would have alone;
- waiting: until others are where the loop is, or have made what it needs (members of a collective,
  trainers that update together, readers, the other end of a queue);
- queueing: everything else, which is what sharing costs: cores, interpreter locks and NICs that
  others used too, and requests that stood in line.

Beside the parts stands the `Account.least` that an iteration takes: its own work, and of every
chain what is left of its work and transfer when all that the loop did meanwhile hides some of it.
Of a chain that hid in part the parts are shared out, so that they say nothing for certain.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from statistics import fmean, stdev
from typing import NamedTuple

from recsim_train.trace.ledger import Booked, Key
from recsim_train.trace.record import Iteration, Span, Sync, Total, TotalKey, loop_of

COMPUTE, QUEUEING, TRANSFER, WAITING = range(4)
PARTS = ("compute", "queueing", "transfer", "waiting")

Split = list[float]
"""Seconds by part, in the order of `PARTS`."""


class Chain(NamedTuple):
    """What one request that was waited for consisted of, seconds."""

    compute: float
    transfer: float
    waiting: float
    total: float


class Account:
    """The effects of one loop."""

    __slots__ = ("_certain", "_first", "effects", "least", "now")

    def __init__(self, first: int) -> None:
        self._first = first
        """Iterations before this one do not count."""
        self.effects: dict[str, Split] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        self.now: Split = [0.0, 0.0, 0.0, 0.0]
        """Of the effect that goes on."""
        self.least: dict[int, float] = {}
        """By iteration: seconds that it takes even where nothing is shared and nobody is late."""
        self._certain = 0.0

    def take(self, part: int, seconds: float) -> None:
        """Work or transfer that nothing hides."""
        self.now[part] += seconds
        self._certain += seconds

    def blame(self, waited: float, chain: Chain | None) -> None:
        """Share out the time until the last of some requests was done.

        What the loop did itself meanwhile is no wait, so that a chain may be longer than that.
        """
        if chain is None or chain.total <= 0.0:
            return
        self._certain += max(0.0, chain.compute + chain.transfer - (chain.total - waited))
        share = min(1.0, waited / chain.total)
        self.now[COMPUTE] += share * chain.compute
        self.now[TRANSFER] += share * chain.transfer
        self.now[WAITING] += share * chain.waiting

    def close(self, effect: str, iteration: int, seconds: float) -> None:
        """An effect is over."""
        now = self.now
        self.now = [0.0, 0.0, 0.0, 0.0]
        certain, self._certain = self._certain, 0.0
        if iteration < self._first:
            return
        self.least[iteration] = self.least.get(iteration, 0.0) + certain
        now[QUEUEING] += seconds - sum(now)
        if now[QUEUEING] < 0.0:  # own work that went on while the chain did: it hid behind it
            now[TRANSFER] = max(0.0, now[TRANSFER] + now[QUEUEING])
            now[QUEUEING] = 0.0
        known = self.effects[effect]
        for part, value in enumerate(now):
            known[part] += value


def merged(accounts: Iterable[Account]) -> dict[str, Split]:
    """The sums of several loops' effects."""
    found: dict[str, Split] = {}
    for account in accounts:
        for effect, split in account.effects.items():
            known = found.setdefault(effect, [0.0, 0.0, 0.0, 0.0])
            for part, value in enumerate(split):
                known[part] += value
    return found


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
