"""Facts: what a world says of a run as a whole, beside its records.

Both worlds fill the same class, each its own part of it. What was not asked, or does not apply,
keeps its default and is absent from documents (`recsim_train.results.summary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recsim_train.config.measured import MachineSpeeds
from recsim_train.trace.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Compressed:
    """What compressing one kind of content did, over all iterations of a run, warm-up included."""

    values: int
    kept: int
    """Of them, sent."""
    dense_bytes: int
    """Without compression."""
    sent_bytes: int
    """Places included."""
    value_compression: float
    """values / kept."""
    wire_compression: float
    """dense_bytes / sent_bytes."""
    density: float | None = None
    """kept / values, 0..1; older runs do not say."""


@dataclass(frozen=True, slots=True)
class Cached:
    """Rows of all trainers' caches, in counted iterations."""

    slots: tuple[int, ...]
    """By trainer; 0: as many as a step needs."""
    probed: int
    missed: int
    evicted: int
    hit_rate: float | None
    """0..1; None where no row was asked for."""

    @classmethod
    def of(cls, slots: Iterable[int], probed: int, missed: int, evicted: int) -> Cached:
        """With the rate that follows."""
        rate = round(1 - missed / probed, 6) if probed else None
        return cls(tuple(slots), probed, missed, evicted, rate)

    @classmethod
    def merged(cls, parts: Sequence[Cached]) -> Cached:
        """Of all trainers from those of each, in trainer order."""
        return cls.of(
            (slots for part in parts for slots in part.slots),
            sum(part.probed for part in parts),
            sum(part.missed for part in parts),
            sum(part.evicted for part in parts),
        )


@dataclass(frozen=True, slots=True)
class PayloadSpread:
    """How much the payload of effects that follow the data differs from step to step."""

    steps: int | None
    """Steps whose batches were counted; None: sizes were estimated from shapes."""
    exact: bool
    """Whether they are those that a run of the same settings feeds."""
    effects: dict[str, float]
    """By effect: standard deviation of a step's bytes / their mean."""


@dataclass(frozen=True, slots=True)
class Resting:
    """What the predicted CPU seconds rest on: shares, 0..1, which add up to 1."""

    measured: float
    """Operations that were measured at their own shapes."""
    scaled: float
    """Operations of other shapes, scaled by what the nearest measured one came to."""
    unit: float
    """Unit prices: other operations, messages, the runtime's own work."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """By how much a process's clock is ahead of rank 0's, which is on another host."""

    ahead: float
    """Seconds."""
    error: float
    """Seconds that it may be off by."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The same when a run began, and at its end. Times of its records are rank 0's by both."""

    before: ClockReading
    after: ClockReading | None
    """None: the run did not come to its end."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """The emulated hosts of a measurement, and what went over their links in all of it."""

    links: dict[str, float]
    """Bytes of frames per second, by end of a link: "trainer[0]" is what leaves a host, "to
    trainer[0]" what comes to it, "uplink 0" what leaves a rack."""
    queue: str
    """As the profile's ``network.queue``."""
    queue_bytes: dict[str, int]
    """That may wait, by the same."""
    sent: dict[str, int]
    """Bytes of frames, by the same."""
    dropped: int
    """Packets that found their queue full."""


@dataclass(frozen=True, slots=True)
class Slept:
    """Of a process's operations that take a modelled time, in the counted window."""

    asked: float
    """Seconds that they were to take, of its threads together."""
    taken: float
    """That they took, without waits for a lock."""
    wakes: float
    """How often a thread slept."""
    late: float
    """Of these, more than a millisecond too long."""


@dataclass(frozen=True, slots=True)
class HostFailure:
    """One failure of one host."""

    host: str
    at: float
    """Seconds of simulated time."""
    back: float
    """When the host works again."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """What failures and checkpoints did to the counted iterations."""

    policy: str
    failures: int
    first_failures: tuple[HostFailure, ...]
    checkpoints: int
    """Written to the end."""
    standstill_seconds: float
    lost_examples: float
    goodput: float | None
    """Examples per second without those that were lost; None where nothing was counted."""
    checkpoint_seconds: float = 0.0
    """Of training that one checkpoint takes; 0: none are made, or the profile has no prices."""
    between_failures: float | None = None
    """Mean seconds between two random failures that lose work, of the whole job; None: none do."""
    best_interval: float | None = None
    """Seconds of training between two checkpoints, with which these and lost work take the least
    time: to first order, where that is far less than `between_failures` (Young, Communications of
    the ACM 17 (1974) 530; Daly, Future Generation Computer Systems 22 (2006) 303)."""


@dataclass(frozen=True, slots=True)
class CheckpointMade:
    """One checkpoint of a measurement, as its first process saw it."""

    iteration: int
    """That each training loop goes on with."""
    still_seconds: float
    """That the first process's loops stood still for it."""
    seconds: float
    """Until it was complete, from the end of that."""
    bytes: int
    """That the first process wrote of it."""
    problem: str = ""
    """Why it was not made."""


@dataclass(frozen=True, slots=True)
class HalfFolded:
    """The same prediction with half as many simulated trainers."""

    simulated: int
    examples_per_second: float


@dataclass(frozen=True, slots=True)
class Folded:
    """Of many trainers that do the same some are simulated."""

    trainers: int
    simulated: int
    half: HalfFolded | None = None
    error: float | None = None
    """Relative change of examples per second in ``half``."""


@dataclass(frozen=True, slots=True)
class Rented:
    """What the hosts of a run cost while it goes on."""

    hosts: int
    per_hour: float
    """Of all together."""
    currency: str
    sources: tuple[str, ...]
    """Each with the date on which the amount was read there."""

    def cost(self, seconds: float) -> float:
        """Of so long, all together."""
        return self.per_hour / 3600.0 * seconds


@dataclass(frozen=True, slots=True)
class ServersNeeded:
    """How many servers of one role there are, and how many it takes not to bind."""

    present: int
    needed: int
    allow: float
    """Examples per second that the busiest of them allows."""
    others_allow: float
    """Examples per second that everything else allows."""
    hosts_left: int | None = None
    """How many hosts the cluster has beyond those in use; None: as many as one wants."""


@dataclass(frozen=True, slots=True)
class Busiest:
    """The resource of a class that is busiest over all."""

    resource: str
    busy: tuple[float, ...]
    """Its busy share in each interval, 0..1."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """How busy each class of resources is, interval by interval."""

    start: float
    """Seconds of simulated time at which the first interval begins."""
    seconds: tuple[float, ...]
    """When the intervals end."""
    busy: dict[str, tuple[float, ...]]
    """By class, the mean share of its resources in each interval, 0..1."""
    busiest: dict[str, Busiest]
    """By class."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Seconds of a mean iteration of a training loop."""

    effects: dict[str, dict[str, float]]
    """By effect and part: "compute", "transfer", "queueing", "waiting"."""
    hidden: dict[str, float]
    """By effect: communication of other loops meanwhile."""
    seconds: float
    """All of it."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Bytes of one process; parts that it does not have are None."""

    bytes: float
    """All of it."""
    available: float
    """What its host has."""
    process: float
    """Interpreter and libraries, before anything of ours."""
    tables: float | None = None
    """Rows and their optimizer's state."""
    dense: float | None = None
    cache: float | None = None
    activations: float | None = None
    queues: float | None = None
    buffers: float | None = None
    snapshot: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The short runs from which elasticities follow."""

    step: float
    """Every input was changed by this share."""
    runs: int
    events: int
    """Of all of them."""
    cost: float
    """Their events / those of the prediction itself."""
    skipped: dict[str, str]
    """What could not be asked, and why: "embedding_servers", "dense_servers"."""
    degrees: int = 3
    """Degrees of freedom of the answers' errors; older runs, which do not say, had at least so
    many."""


_HASHES, _MOST_TABLES = 1 << 24, 5
"""Numbers from there on are taken for hashes, which are meant to share rows; tables named."""


@dataclass(frozen=True, slots=True)
class BeyondRows:
    """Ids of a table that lie beyond its rows: by their remainder they share those of others.

    ``rows``: the first is that of missing values; ``share``: of the examples whose id lies beyond;
    ``largest``: of the ids.
    """

    table: int
    rows: int
    share: float
    largest: int


def beyond_said(tables: Iterable[BeyondRows]) -> list[str]:
    """A sentence on tables whose ids are no hashes, if there are such."""
    said = [
        f"table {one.table}: {100 * one.share:.3g} % of its ids lie beyond its {one.rows:,} "
        f"row{'s' * (one.rows > 1)} and share rows with others ({one.largest + 2:,} rows would "
        "hold all)"
        for one in sorted(tables, key=lambda one: -one.share)
        if one.largest < _HASHES
    ]
    more = [f"{len(said) - _MOST_TABLES} more tables"] if len(said) > _MOST_TABLES else []
    return ["; ".join([*said[:_MOST_TABLES], *more])] if said else []


@dataclass(frozen=True, slots=True)
class Diverged:
    """A model that left the finite numbers: a training loss or held-out score is infinite or NaN.

    Such a run has no held-out figure, and its throughput is no evidence of how fast its settings
    train: what is computed with such values may take more time or less, and DCT sends other bytes.
    """

    since: int | None
    """First iteration, from 0 and warm-up included, in which a loop's training loss was not finite;
    None: every one was finite, a held-out score was not."""
    losses: int
    """Training losses that were not finite, of all loops and iterations."""
    of: int
    """All training losses."""

    @property
    def phrase(self) -> str:
        """As a run's status."""
        if self.since is None:
            return "diverged at evaluation"
        return f"diverged since iteration {self.since}"

    @property
    def why(self) -> str:
        """What was seen, without a full stop."""
        if self.since is None:
            return "every training loss was finite, but held-out scores are not"
        return f"{self.losses:,} of {self.of:,} training losses are not finite"


@dataclass(slots=True)
class Facts:
    """What a world says of a run as a whole."""

    # of both worlds
    warnings: tuple[str, ...] = ()
    """What a reader must know of this run, one sentence each."""
    compression: dict[str, Compressed] = field(default_factory=dict)
    """By content: "gradients", "differences", "activations", "activation_gradients"."""
    cache: Cached | None = None
    ledger: Ledger | None = None
    """Where the CPU time of the counted window went."""
    header_bytes: int | None = None
    """Of requests, answers and reader feeds, warm-up included: what is not payload."""
    clocks: dict[str, Clocks] = field(default_factory=dict)
    """By process, of those whose host has another clock than rank 0's."""

    # of a prediction: how it was made
    stopped: str | None = None
    """Why the simulation ended."""
    events: int | None = None
    activities: int | None = None
    solves: int | None = None
    """Times that rates were worked out."""
    simulated_seconds: float | None = None
    id_counts: str | None = None
    """Where the numbers of ids come from."""
    payload_spread: PayloadSpread | None = None
    resting: Resting | None = None
    folding: Folded | None = None

    nic_bytes: float | None = None
    """Bytes of frames that all hosts' NICs sent from start to end, acknowledgements included, for
    each step of all loops; None: one machine."""

    # of a prediction: its cluster
    racks: dict[str, int] = field(default_factory=dict)
    """By process."""
    slow_hosts: dict[str, float] = field(default_factory=dict)
    """By process: how many times as long its computations take."""
    reliability: Reliability | None = None
    memory: dict[str, ProcessMemory] = field(default_factory=dict)
    """By process."""
    cores: dict[str, float] = field(default_factory=dict)
    """Of its host, by process."""
    hosts: dict[str, str] = field(default_factory=dict)
    """By process the name of its host, where the profile says that some share one."""
    host_types: list[str] = field(default_factory=list)
    """Who stands on which type of host, in words; empty: all hosts are alike."""

    # of a prediction: why it is what it is
    bounds: dict[str, float] = field(default_factory=dict)
    """Examples per second that each resource in use allows; "loops": that the loops do alone."""
    class_bounds: dict[str, float] = field(default_factory=dict)
    """The tightest of each class of resources."""
    servers_needed: dict[str, ServersNeeded] | None = None
    """By role."""
    over_time: OverTime | None = None
    critical_path: CriticalPath | None = None
    elasticities: dict[str, float] = field(default_factory=dict)
    """Relative change of examples per second if an input were `WhatIf.step` more, or if there were
    one server more."""
    elasticity_errors: dict[str, float] = field(default_factory=dict)
    """Standard error of each."""
    calibration_ci95: tuple[float, float] | None = None
    """Examples per second, 95 %, as far as calibration's own errors make it unsure; None: the
    profile says nothing of them."""
    calibration_errors: dict[str, float] = field(default_factory=dict)
    """Relative standard errors of the throughput that it is made of, in quadrature, by cause
    (`recsim_train.evaluate.elasticity`); empty: as above, or an older run."""
    what_if: WhatIf | None = None
    rented: Rented | None = None
    """None: not all hosts have a price."""
    met_otherwise: float | None = None
    """Examples per second if free loops came to the busiest server in turn where they come at once,
    or at once where they come in turn; None: it makes no difference, or was not asked."""

    # of a measurement
    diverged: Diverged | None = None
    """None: every loss and every held-out score was finite."""
    malformed_rows: dict[str, int] | None = None
    """By kind."""
    malformed: str | None = None
    """The same in words, where there are any."""
    ids_beyond: list[BeyondRows] = field(default_factory=list)
    """Tables with ids beyond their rows."""
    epochs: float | None = None
    """How often the data were gone through."""
    rows_read: int | None = None
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """By process."""
    emulated: Emulated | None = None
    """None: the processes ran on this machine itself."""
    slept: dict[str, Slept] = field(default_factory=dict)
    """By process; empty: operations took what they take on this machine."""
    checkpoints: list[CheckpointMade] = field(default_factory=list)
    checkpoints_in: str | None = None
    """Their folder, seen from where the run's own lies; None: there are none."""
    resumed_at: int | None = None
    """The iteration with which the run went on from a checkpoint; None: it began at its
    beginning."""
    core_waits: dict[str, float] = field(default_factory=dict)
    """Of emulated hosts: seconds of the counted window in which threads that could run waited for
    a core, by process."""
    wall_seconds: float | None = None
    """From the first process's start to the last one's end."""
    machine_speed: MachineSpeeds | None = None
    """By the reference work; None: of older runs, of those under torchrun, or where it failed."""
    sched_batch: bool | None = None
    """Whether every process's threads of transport run under SCHED_BATCH."""
    launched_by: str | None = None
    """"torchrun", or None: recsim-train itself."""
