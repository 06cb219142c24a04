"""The ledger of a run: spans, and totals per iteration, so that an early stop cuts them exactly."""

from __future__ import annotations

from statistics import fmean, stdev

from recsim_train.trace.record import Iteration, Span, Sync, Total, TotalKey, loop_of

_MOST_SPANS = 500_000
"""Of all processes together: some hundred MB."""


class Series:
    """Effects of one kind of one loop, or requests served for it."""

    __slots__ = ("_ledger", "by_iteration", "key")

    def __init__(self, ledger: Ledger, key: TotalKey) -> None:
        self._ledger = ledger
        self.key = key
        self.by_iteration: dict[int, Total] = {}

    def add(self, iteration: int, start: float, end: float, payload: int) -> None:
        """Record one finished effect that handed ``payload`` bytes to the transport."""
        total = self.by_iteration.get(iteration)
        if total is None:
            total = self.by_iteration[iteration] = Total()
        total.count += 1
        total.seconds += end - start
        total.bytes += payload
        if self._ledger.keeps(self.key.instance):
            instance, loop, effect, name = self.key
            span = Span(instance, loop, iteration, effect, name, start, end, payload)
            self._ledger.spans.append(span)


class Ledger:
    """All records of one run."""

    def __init__(self, max_spans: int) -> None:
        self._max_spans = max_spans
        self._kept: dict[str, int] = {}
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

    def keeps(self, instance: str) -> bool:
        """Whether a process may have one more span; counts it."""
        kept = self._kept.get(instance, 0)
        if kept >= self._max_spans or len(self.spans) >= _MOST_SPANS:
            self.dropped_spans += 1
            return False
        self._kept[instance] = kept + 1
        return True

    def period(self, first: int, stop: int) -> int:
        """After how many iterations the first training loop does the same effects again.

        Looked for in its iterations ``first`` to ``stop`` (exclusive), which must hold two periods;
        otherwise 1.
        """
        if not self.iterations:
            return 1
        loop = self.iterations[0].loop
        rows: dict[str, list[int]] = {}  # how often each effect is done, by whatever name
        for key, series in self._series.items():
            if f"{key.instance}.{key.loop}" == loop:
                row = rows.setdefault(key.effect, [0] * (stop - first))
                for iteration, total in series.by_iteration.items():
                    if first <= iteration < stop:
                        row[iteration - first] += total.count
        for period in range(1, (stop - first) // 2 + 1):
            if all(row[period:] == row[:-period] for row in rows.values()):
                return period
        return 1

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
        ended: dict[str, int] = {}
        for done in self.rounds:
            ended[done.loop] = done.iteration + 1
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
