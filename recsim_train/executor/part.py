"""What processes of a run say of themselves: how far they are, what each leaves, how it ended, and
which end was the cause.

Imports no torch: the launcher reads it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import fmean

from recsim_train.data.malformed import Malformed
from recsim_train.placement.plan import Plan
from recsim_train.trace.facts import Cached, CheckpointMade, Clocks
from recsim_train.trace.ledger import Sample
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import Tallies
from recsim_train.workload.operations import ProcessTimes

_LATELY, _EACH = 10.0, 1.0
"""Seconds of which the speed that is shown is the mean; between two lines of a log."""
Log = Callable[[Mapping[str, float | None]], object]


def unlogged(_: Mapping[str, float | None]) -> None:
    """A log that nobody keeps."""


@dataclass(frozen=True, slots=True)
class TrainerSaid:
    """What a trainer's process says of its loops."""

    slowest: int
    """Iterations of the slowest one."""
    iterations: int
    """Of all of them together."""
    loss: float | None
    """The mean of their last batches."""


class SoFar:
    """What a meter is told of a run, and each second a log."""

    def __init__(self, plan: Plan, meter: Meter, log: Log = unlogged) -> None:
        rules = plan.experiment.training
        self._steps, self._batch = rules.warmup_steps + rules.steps, rules.batch_size
        self._meter, self._log, self._logged = meter, log, -inf
        self._seen: deque[tuple[float, int]] = deque()

    def tell(self, trainers: list[TrainerSaid]) -> None:
        """All trainers have begun, and have last said this."""
        done = min(said.slowest for said in trainers)
        now, iterations = time.monotonic(), sum(said.iterations for said in trainers)
        seen = self._seen
        seen.append((now, iterations))
        while len(seen) > 2 and now - seen[0][0] > _LATELY:
            seen.popleft()
        words = []
        (since, before), stage, speed = seen[0], "training", None
        if done >= self._steps:
            stage = "evaluating"
        elif iterations > before and now > since:
            speed = (iterations - before) * self._batch / (now - since)
            words.append(f"{speed:,.0f} examples/s")
        losses = [said.loss for said in trainers if said.loss is not None]
        loss = fmean(losses) if losses else None
        over = done >= self._steps and self._logged < inf
        if over or now - self._logged >= _EACH:
            self._logged = inf if over else now  # the end is the last line
            finite = loss if loss is not None and isfinite(loss) else None
            self._log({"iteration": done, "examples_per_second": speed, "loss": finite})
        if loss is not None:
            words.append(f"loss {loss:.4f}" if isfinite(loss) else "loss not finite")
        self._meter(done, self._steps, stage, ", ".join(words))


EmulatedRoles = dict[str, ProcessTimes]
"""What roles on emulated hosts are told: by process, what its operations take; empty: what they
take on this machine."""


@dataclass(slots=True)
class Reading:
    """What one reader has seen."""

    malformed: Malformed = field(default_factory=Malformed)
    epochs: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class ProcessPart:
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
    clocks: Clocks | None = None
    """None: its clock is rank 0's."""
    checkpoints: list[CheckpointMade] = field(default_factory=list)
    """Of the first process."""
    sched_batch: bool = False
    """Whether its threads were scheduled by SCHED_BATCH where gloo's began."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What one process said at its end."""

    name: str
    """Of the process."""
    kind: str
    """"own": an error of its own; "stall": a time-out; "peer": the loss of another process; or one
    of those below."""
    sentence: str
    waits: Sequence[str] = field(default_factory=list)
    """Who waited for what in it, one line each."""
    measured: bool = False
    """Whether it leaves a part, after this word."""


FINISHED, INTERRUPTED, KILLED = "finished", "interrupted", "killed"
"""Kinds of endings: of a run that is complete, of who was asked to end, and what another process
says of one that has left no word."""


def cause(endings: Sequence[Ending]) -> str | None:
    """The ending that explains the others, as a sentence: a death before an error, that before a
    time-out, with who waited for what; None where all have only lost another."""
    for kind in (KILLED, "own", "stall"):
        for one in endings:
            if one.kind == kind:
                told = one.sentence if kind == KILLED else f"{one.name} failed: {one.sentence}"
                waits = [line for other in endings for line in other.waits]
                if kind == "stall" and waits:
                    told = "\n  ".join([f"{told}; who waited for what:", *waits])
                return told
    return None


class LostPeerError(ConnectionError):
    """The connection to another process has ended."""

    def __init__(self, peer: str) -> None:
        """``peer``: that process, as sentences name it."""
        super().__init__(f"lost the connection to {peer}")
