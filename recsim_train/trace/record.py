"""Spans, exact totals and iteration times of one process's loops; both worlds fill the same ones.

A loop iteration is *counted* when ``warmup <= iteration < warmup + steps``. Totals cover counted
iterations only and are exact; spans are kept for the timeline and are capped.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts


class Span(NamedTuple):
    """One finished effect, or one request served for a loop's effect."""

    instance: str
    """Process, such as "trainer[0]"."""
    loop: str
    """Loop or thread within it: "worker[1]"; at a server the client, "trainer[0].worker[1]". What a
    loop has started and lets go on has a lane of its own, see `lane`."""
    iteration: int
    """Iteration of the (client's) loop, from 0; -1 outside the loop."""
    effect: str
    """"compute", "lookup" ...; at a server "serve_lookup" ...; at a reader "serve_next_batch"."""
    name: str
    """Operation, service or group."""
    start: float
    """Seconds since the run's start."""
    end: float
    bytes: int
    """Payload bytes that this side handed to the transport."""


def lane(loop: str, number: int) -> str:
    """A loop's lane for requests that go on beside it, from 1: "worker[1]/1"; 0 is the loop."""
    return f"{loop}/{number}" if number else loop


def loop_of(lane: str) -> str:
    """The loop that a lane belongs to."""
    return lane.partition("/")[0]


class TotalKey(NamedTuple):
    """What totals are kept by."""

    instance: str
    loop: str
    effect: str
    name: str


@dataclass(slots=True)
class Total:
    """Sums over counted iterations."""

    count: int = 0
    seconds: float = 0.0
    bytes: int = 0


@dataclass(slots=True)
class Iteration:
    """Start and end of one iteration of one training loop (NextBatch asked .. next one asked)."""

    loop: str
    """Full name, "trainer[0].worker[1]"."""
    iteration: int
    start: float
    end: float
    loss: float | None = None
    """Mean training loss of the batch; None in the simulator."""


class Sync(NamedTuple):
    """A loop has synchronised its trainer's dense parameters with others' (`Synced`)."""

    loop: str
    """Full name, "trainer[0].worker[1]"."""
    iteration: int
    """Of a background loop: the round."""
    end: float


R = TypeVar("R", Iteration, Sync)
_NONE = -math.inf
"""Neither a time nor a loss."""


class Compact(Generic[R]):
    """Records of one loop, each number in eight bytes: a long run has millions of them."""

    def __init__(self, make: Callable[..., R]) -> None:
        self._make: Callable[..., R] = make
        self._loop = ""
        self._columns: list[array[float]] = []

    def add(self, loop: str, *numbers: float | None) -> None:
        """One more: its fields."""
        if not self._columns:
            self._loop, self._columns = loop, [array("d") for _ in numbers]
        for column, number in zip(self._columns, numbers, strict=True):
            column.append(_NONE if number is None else number)

    def __iter__(self) -> Iterator[R]:
        for iteration, *times in zip(*self._columns, strict=False):  # another thread may add one
            numbers = (None if time == _NONE else time for time in times)
            yield self._make(self._loop, int(iteration), *numbers)


@dataclass(slots=True)
class Recorder:
    """Collects one thread's spans (one recorder per thread: no locks)."""

    warmup: int
    steps: int
    max_spans: int
    spans: list[Span] = field(default_factory=list)
    totals: dict[TotalKey, Total] = field(default_factory=lambda: defaultdict(Total))
    iterations: Compact[Iteration] = field(default_factory=lambda: Compact(Iteration))
    syncs: Compact[Sync] = field(default_factory=lambda: Compact(Sync))
    dropped_spans: int = 0
    background: bool = False
    """Of a background loop: every round is counted, and ``iterations`` are its rounds."""
    kept: list[int] = field(default_factory=lambda: [0])
    """How many spans there are, of all recorders that share this."""

    def counted(self, iteration: int) -> bool:
        """Whether an iteration lies in the counted window."""
        if self.background:
            return iteration >= 0
        return self.warmup <= iteration < self.warmup + self.steps

    def add(self, span: Span) -> None:
        """Record one finished effect."""
        if self.counted(span.iteration):
            total = self.totals[TotalKey(span.instance, span.loop, span.effect, span.name)]
            total.count += 1
            total.seconds += span.end - span.start
            total.bytes += span.bytes
        if self.kept[0] < self.max_spans:
            self.kept[0] += 1
            self.spans.append(span)
        else:
            self.dropped_spans += 1


@dataclass(frozen=True, slots=True)
class Throughput:
    """Examples per second while all training loops are at counted iterations."""

    examples: int
    """In all counted iterations."""
    seconds: float
    """First counted start to last counted end, all loops."""
    examples_per_second: float | None
    """None where nothing was counted."""
    ci95: tuple[float, float] | None
    """None below two windows."""
    windows: int


@dataclass(slots=True)
class Outcome:
    """What one run of one strategy leaves, from either world."""

    iterations: list[Iteration]
    totals: dict[TotalKey, Total]
    spans: list[Span]
    dropped_spans: int
    steps: int
    """Counted iterations per training loop that were really done (an early stop does fewer)."""
    speed: Throughput | None = None
    """Simulator: the throughput as it estimates it; None: it follows from the iterations."""
    utilisation: dict[str, float] = field(default_factory=dict)
    """Simulator: busy share of the counted window, 0..1, by resource: "machine.cores",
    "trainer[0].nic.tx", "trainer[0].interpreter"."""
    binding: Binding | None = None
    """Simulator: what limits it."""
    bound_eps: float | None = None
    """Simulator: examples per second that the binding resource cannot exceed."""
    loss: float | None = None
    """Held-out log loss; None in the simulator."""
    auc: float | None = None
    normalized_entropy: float | None = None
    rounds: list[Iteration] = field(default_factory=list)
    """Every round that a background loop ended. Totals of such a loop cover all of them."""
    syncs: list[Sync] = field(default_factory=list)
    """Every synchronisation of a trainer with others, warm-up included."""
    facts: Facts = field(default_factory=Facts)
    """What that world says of the run as a whole."""
    began: float = 0.0
    """Of a measurement: its second 0, by the monotonic clock of rank 0's machine."""

    def warn(self, sentences: Iterable[str]) -> None:
        """Add to what a reader must know of this run, one sentence each."""
        self.facts.warnings += tuple(sentences)
