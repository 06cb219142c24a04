"""Statistics of a run: throughput with its 95 % interval, synchronisation gaps, staleness.

Throughput is what all training loops do while every one of them is at counted iterations. Loops
that share nothing but servers drift apart; from the first start to the last end, a run of few steps
would be mostly its own ends, at which only some of them work.

The interval is by batch means (Law, Simulation Modeling and Analysis, 5th ed., section 9.5.3). That
time is cut into equal parts, examples finished in each are counted (an iteration that overlaps
several parts is shared out by time), and the parts' rates are taken as a sample. One function for
both worlds.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from recsim_train.trace.record import Iteration, Throughput

N = TypeVar("N", int, float)
MAX_WINDOWS = 20
MIN_ITERATIONS_PER_WINDOW = 4
"""Of one loop: below that a window would see the phase of its iterations, not their rate."""

# 97.5 % quantiles of Student's t, 1 to 30 degrees of freedom
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


Z975 = 1.960
"""97.5 % quantile of the normal distribution: standard errors in half a 95 % interval."""
Z95 = 1.645
"""Likewise in half a 90 % interval."""


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t; the normal one above 30 degrees of freedom."""
    if degrees < 1:
        raise ValueError("a t quantile needs at least one degree of freedom")
    return _T975[degrees - 1] if degrees <= len(_T975) else Z975 + 2.4 / degrees


def holm(chances: Mapping[str, float], level: float) -> set[str]:
    """Which of several answers are none of chance (Holm, Scandinavian Journal of Statistics 6
    (1979) 65): with probability ``level`` at most any of them is, however many are asked.

    ``chances``: of each answer, that chance alone makes one as far from nothing.
    """
    found: set[str] = set()
    for name in sorted(chances, key=chances.__getitem__):
        if chances[name] > level / (len(chances) - len(found)):
            break
        found.add(name)
    return found


def counted(iterations: Iterable[Iteration], warmup: int, steps: int) -> list[Iteration]:
    """The iterations of the counted window."""
    return [i for i in iterations if warmup <= i.iteration < warmup + steps]


def throughput(
    iterations: Iterable[Iteration], *, warmup: int, steps: int, batch_size: int
) -> Throughput:
    """Examples per second while all loops are at counted iterations, and its 95 % interval.

    Where slow loops' warm-up leaves less than the second half of the counted time of the loop that
    ends first, of that half, in which they are at work, too; and where one had not begun then, from
    the first start to the last end.

    ``steps``: counted iterations per loop; ``batch_size``: examples per iteration. An iteration
    that a loop did not do (an interrupted run) is not counted.
    """
    every = list(iterations)
    chosen = counted(every, warmup, steps)
    if not chosen:
        return Throughput(0, 0.0, None, None, 0)
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for i in chosen:
        starts[i.loop] = min(i.start, starts.get(i.loop, i.start))
        ends[i.loop] = max(i.end, ends.get(i.loop, i.end))
    start, end = min(starts.values()), max(ends.values())
    examples, seconds = len(chosen) * batch_size, end - start
    if seconds <= 0:
        return Throughput(examples, 0.0, None, None, 0)
    first = min(ends, key=lambda loop: ends[loop])
    all_begun, half = max(starts.values()), (starts[first] + ends[first]) / 2.0
    taken = chosen
    if all_begun > half:
        taken = [i for i in every if i.loop in starts]
        at_work = dict(starts)
        for i in taken:
            at_work[i.loop] = min(i.start, at_work[i.loop])
        all_begun = max(half, *at_work.values())
    if all_begun < ends[first]:
        start, end = all_begun, ends[first]
    else:
        taken = chosen
    each = len(chosen) / len(starts) * (end - start) / seconds
    found = throughput_within(taken, start, end, steps=each, batch_size=batch_size)
    return replace(found, examples=examples, seconds=seconds)


def standard_error(speed: Throughput) -> float:
    """Relative standard error of its examples per second, by windows; 0 where they do not say."""
    if speed.ci95 is None or not speed.examples_per_second:
        return 0.0
    low, high = speed.ci95
    return (high - low) / (2.0 * t_quantile(speed.windows - 1) * speed.examples_per_second)


def throughput_within(
    iterations: Iterable[Iteration], start: float, end: float, *, steps: float, batch_size: int
) -> Throughput:
    """`throughput` of loops that go on, over a time in which all of them were at work.

    Loops that are ahead or behind at its ends do not lower it: an iteration that lies partly inside
    counts for that part. ``steps``: iterations of each loop in it, which say how many windows.
    """
    inside = [i for i in iterations if i.end > start and i.start < end]
    windows = max(1, window_count(steps))
    rates = window_rates(inside, start, end, windows, batch_size)
    rate = math.fsum(rates) / windows
    seconds = end - start
    examples = round(rate * seconds)
    if windows < 2:
        return Throughput(examples, seconds, rate, None, windows)
    half = half_width(rates)
    return Throughput(examples, seconds, rate, (max(0.0, rate - half), rate + half), windows)


def window_count(iterations_per_loop: float) -> int:
    """How many windows: at most 20, each with a few iterations of every loop where possible."""
    roomy = int(iterations_per_loop // MIN_ITERATIONS_PER_WINDOW)
    return min(MAX_WINDOWS, max(roomy, min(2, int(iterations_per_loop))))


def window_rates(
    iterations: Sequence[Iteration], start: float, end: float, windows: int, batch_size: int
) -> list[float]:
    """Examples per second in each of ``windows`` equal parts of [start, end].

    Their mean is the overall rate: every example is shared out once, and of an iteration that lies
    partly outside only that part which lies inside.
    """
    width = (end - start) / windows
    done = [0.0] * windows
    for i in iterations:
        span = i.end - i.start
        first = min(windows - 1, max(0, int((i.start - start) / width)))
        last = min(windows - 1, max(first, int((i.end - start) / width)))
        left = (min(i.end, end) - max(i.start, start)) / span if span > 0 else 1.0
        if first == last:
            done[last] += left
            continue
        for w in range(first, last):
            part = (start + (w + 1) * width - max(i.start, start + w * width)) / span
            part = min(left, max(0.0, part))
            done[w] += part
            left -= part
        done[last] += left
    return [n * batch_size / width for n in done]


def half_width(sample: Sequence[float]) -> float:
    """Half the 95 % t-interval of the mean of ``sample`` (two values or more)."""
    n = len(sample)
    mean = math.fsum(sample) / n
    variance = math.fsum((x - mean) ** 2 for x in sample) / (n - 1)
    return t_quantile(n - 1) * math.sqrt(variance / n)


def quantile(values: Sequence[N], share: float) -> N:
    """The least value that at least ``share`` (0..1) of the values do not exceed (nearest rank);
    ValueError for none."""
    if not values:
        raise ValueError("no quantile of nothing")
    rank = math.ceil(share * len(values) - 1e-9)  # 0.9 * 10 is nine, whatever floats say
    return sorted(values)[max(0, rank - 1)]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Some counts in short; quantiles are values that occurred (nearest rank)."""

    count: int
    mean: float
    p50: int
    p95: int
    largest: int


def distribution(values: Sequence[int]) -> Distribution | None:
    """None for no values."""
    if not values:
        return None
    p50, p95 = (quantile(values, share) for share in (0.5, 0.95))
    return Distribution(len(values), fmean(values), p50, p95, max(values))


def sync_gaps(ends: Iterable[float], syncs: Iterable[float]) -> list[int]:
    """Iterations between each two syncs of one trainer that follow one another.

    ``ends``: of all iterations of that trainer's training loops, in seconds; an iteration belongs
    to the gap in which it ends. ``syncs``: when each sync was over. Before the first and after the
    last there is no gap.
    """
    ordered = sorted(ends)
    places = [bisect_right(ordered, time) for time in sorted(syncs)]
    return [after - before for before, after in itertools.pairwise(places)]


def staleness(iterations: Sequence[Iteration]) -> list[int]:
    """Of each iteration: how many iterations of other training loops ended while it ran.

    Their updates are what its gradient did not see. One that ends at the very start or end of the
    iteration is not counted, so that loops in step have none.
    """
    ends = sorted(i.end for i in iterations)
    own: dict[str, list[float]] = {}
    for i in iterations:
        own.setdefault(i.loop, []).append(i.end)
    for of_loop in own.values():
        of_loop.sort()

    def inside(times: list[float], i: Iteration) -> int:
        return max(0, bisect_left(times, i.end) - bisect_right(times, i.start))

    return [inside(ends, i) - inside(own[i.loop], i) for i in iterations]


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank agreement of two orders (Kendall's tau-b), -1 to 1; None where it is undefined."""
    from scipy.stats import kendalltau

    if min(len(set(first)), len(set(second))) < 2:
        return None
    return float(kendalltau(first, second).statistic)
