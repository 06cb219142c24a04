"""The first counted iterations of a run as lanes of bars, for the timeline figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import SERVED, folded
from recsim_train.trace.perfetto import order

MOST_LANES = 14


class Bar(NamedTuple):
    """One effect; seconds from the start of the first counted iteration."""

    effect: str
    served: bool
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One loop, or everything that one server did."""

    label: str
    bars: tuple[Bar, ...]
    marks: tuple[float, ...]
    """Where iterations begin."""


def timeline(record: RunRecord, iterations: int) -> list[Lane]:
    """Lanes of the training loops, then of the servers; empty where no span was kept.

    The window is that of the first loop's ``iterations`` first counted iterations.
    """
    warmup = int(record.manifest["configuration"]["training"]["warmup_steps"])
    marks = record.iterations()
    window = [i for i in marks if warmup <= i.iteration < warmup + iterations]
    if not window:
        return []
    first = min(window, key=lambda i: (order(i.loop.partition(".")[0]), i.loop))
    own = [i for i in window if i.loop == first.loop]
    begin, end = min(i.start for i in own), max(i.end for i in own)
    lanes: dict[tuple[str, str], list[Bar]] = {}
    for s in record.spans():
        if s.end <= begin or s.start >= end or s.end <= s.start:
            continue
        served = s.effect.startswith(SERVED)
        # A server answers its clients from several threads: one lane shows when it is at work.
        lane = (s.instance, "" if served else s.loop)
        start, stop = max(s.start, begin) - begin, min(s.end, end) - begin
        lanes.setdefault(lane, []).append(Bar(folded(s.effect), served, start, stop))
    if not lanes:
        return []
    starts: dict[str, list[float]] = {}
    for i in marks:
        if begin <= i.start < end:
            starts.setdefault(i.loop, []).append(i.start - begin)
    found = []
    for instance, loop in sorted(lanes, key=lambda lane: (order(lane[0]), lane[1])):
        label = f"{instance}.{loop}" if loop else instance
        if not loop and instance.startswith("trainer"):
            label = f"{instance} (own shard)"
        bars = tuple(sorted(lanes[instance, loop], key=lambda b: (b.start, b.end, b.effect)))
        found.append(Lane(label, bars, tuple(sorted(starts.get(f"{instance}.{loop}", [])))))
    return found[:MOST_LANES]
