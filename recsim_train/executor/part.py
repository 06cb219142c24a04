"""What one process of a run leaves. Imports no torch: the launcher reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from recsim_train.data.malformed import Malformed
from recsim_train.trace.facts import Cached
from recsim_train.trace.ledger import Sample
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import Tallies


@dataclass(slots=True)
class Reading:
    """What one reader has seen."""

    malformed: Malformed = field(default_factory=Malformed)
    epochs: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One process's part of a run's result."""

    instance: str
    """Process, such as "trainer[0]"."""
    records: Outcome
    """Its own loops' and servers', without facts."""
    cpu_seconds: float
    """Since the run's start; of a trainer until its loops had ended."""
    samples: list[Sample]
    """Of its CPU time, in order of time."""
    tallies: list[Tallies]
    """What each of its loops compressed."""
    readings: list[Reading]
    header_bytes: int
    """That it sent or got beside payload: each message counts at one end."""
    cache: Cached | None
    """None without a cache."""
