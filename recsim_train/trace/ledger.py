"""The ledger of CPU time: every CPU second of the counted window under (role, what, thread).

What: an operation by its name, or one of

- ``runtime``: a loop's own work between operations, from effect to effect;
- ``asking``: a loop's end of its requests, without their operations and messages;
- ``requests``: a server's, from request to request: telling what is asked, recording;
- ``transport``: sending, receiving and waiting for requests and batches, bytes on the wire;
- ``collectives``: the same where members of a group meet;
- ``reading``: making batches; ``supervision``: a process's main thread.

Throughput = cores busy / CPU seconds per example. The sum of the lines and the total are found
independently of each other: what is left is the remainder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

RUNTIME, ASKING, REQUESTS, TRANSPORT = "runtime", "asking", "requests", "transport"
COLLECTIVES, READING, SUPERVISION = "collectives", "reading", "supervision"

NOT_BOOKED = "not booked"

AROUND = frozenset({RUNTIME, ASKING, REQUESTS, TRANSPORT, COLLECTIVES, SUPERVISION})
"""What is neither an operation nor the making of batches."""

Key = tuple[str, str, str]
"""(role, what, thread): "loop", "pool" (the further threads on which a loop's operations run),
"server", "reader", "sender", "receiver", "main", "gloo"; of a prediction
"wire", which is the transport's threads and the kernel's work on bytes."""
Booked = dict[Key, float]
"""CPU seconds."""


def share_around(spent: Iterable[tuple[str, float]]) -> float:
    """What is `AROUND`, as a share of all CPU seconds; ``spent``: what for, and how many."""
    around = whole = 0.0
    for what, seconds in spent:
        whole += seconds
        around += seconds if what in AROUND else 0.0
    return around / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """CPU seconds of all processes of one role."""

    role: str
    what: str
    thread: str
    seconds: float


@dataclass(frozen=True, slots=True)
class MachineUse:
    """Who kept a machine's cores busy in the counted window: mean numbers of cores."""

    cores: int
    own: float
    """The run's processes."""
    others: float
    steal: float
    """Taken by the host of a virtual machine."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the CPU time of the counted window went."""

    seconds: float
    """Of the window."""
    total: float
    """CPU seconds of all processes."""
    lines: tuple[LedgerLine, ...]
    """Sorted."""
    machine: MachineUse | None = None
    """None: a prediction, or several machines."""

    @classmethod
    def of(
        cls,
        seconds: float,
        total: float,
        booked: Mapping[Key, float],
        machine: MachineUse | None = None,
    ) -> Ledger:
        """Lines without any seconds are left out."""
        lines = tuple(LedgerLine(*key, booked[key]) for key in sorted(booked) if booked[key] > 0.0)
        return cls(seconds, total, lines, machine)

    @property
    def remainder(self) -> float:
        """CPU seconds that no line has."""
        return self.total - fsum(line.seconds for line in self.lines)

    @property
    def cores_busy(self) -> float:
        """Mean number of cores that worked for the run."""
        return self.total / self.seconds

    def per_example(self, rate: float) -> dict[tuple[str, str], float]:
        """CPU seconds of one example at ``rate`` examples per second, by (role, what), with the
        remainder as `NOT_BOOKED` of no role."""
        rows = self.rows() | {("", NOT_BOOKED): self.remainder}
        return {key: seconds / (self.seconds * rate) for key, seconds in rows.items()}

    def spent(self, what: str, *roles: str) -> float:
        """CPU seconds of everybody who did ``what``, or of some roles."""
        rows = self.rows().items()
        return fsum(s for (role, does), s in rows if does == what and (not roles or role in roles))

    def rows(self) -> dict[tuple[str, str], float]:
        """CPU seconds by (role, what)."""
        found: dict[tuple[str, str], float] = {}
        for line in self.lines:
            key = line.role, line.what
            found[key] = found.get(key, 0.0) + line.seconds
        return found


class Sample(NamedTuple):
    """What one process had used at one moment; differences of two are what counts."""

    time: float
    """Seconds since the run's start."""
    total: float
    booked: Booked
    busy: float = 0.0
    """Seconds of all cores of its machine that were not idle."""
    steal: float = 0.0
    waited: float = 0.0
    """Seconds for which threads that could run had no core; 0 where nobody asked."""
    slept: tuple[float, ...] = ()
    """Figures of `recsim_train.trace.facts.Slept`, where operations take a modelled time."""


def between(samples: Sequence[Sample], start: float, end: float) -> Sample:
    """What was used from ``start`` to ``end``, evenly between two samples.

    Beyond the first and the last sample nothing is known of: zero.
    """
    first, last = _at(samples, start), _at(samples, end)
    return Sample(
        end - start,
        last.total - first.total,
        {key: seconds - first.booked.get(key, 0.0) for key, seconds in last.booked.items()},
        last.busy - first.busy,
        last.steal - first.steal,
        last.waited - first.waited,
        tuple(b - a for a, b in zip(first.slept, last.slept, strict=True)),
    )


def _at(samples: Sequence[Sample], time: float) -> Sample:
    place = bisect_right(samples, time, key=lambda sample: sample.time)
    if place in (0, len(samples)):
        return samples[max(0, place - 1)]
    a, b = samples[place - 1], samples[place]
    share = (time - a.time) / (b.time - a.time)

    def mean(before: float, after: float) -> float:
        return before + share * (after - before)

    booked = {key: mean(a.booked.get(key, 0.0), seconds) for key, seconds in b.booked.items()}
    names = ("total", "busy", "steal", "waited")
    total, busy, steal, waited = (mean(getattr(a, name), getattr(b, name)) for name in names)
    slept = tuple(mean(x, y) for x, y in zip(a.slept, b.slept, strict=True))
    return Sample(time, total, booked, busy, steal, waited, slept)
