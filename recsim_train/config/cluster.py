"""The cluster profile: hosts, network, and the measured price of every kind of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, inf, sqrt
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from recsim_train.config.measured import MachineSpeeds, MeasuredOperation
from recsim_train.config.topology import (
    Failures,
    MixedHosts,
    RackTopology,
    Rent,
    RoleName,
    Speed,
    Stragglers,
    Traffic,
)
from recsim_train.config.units import (
    AnySize,
    Duration,
    Positive,
    PositiveDuration,
    Rate,
    Section,
    Share,
    Size,
)

FORMAT = 1
"""Of profiles that this version reads; another number where one of those could be read wrongly."""


TypeName = Literal["default", RoleName]


class Host(Section):
    """One type of host."""

    cores: Positive
    """Cores that processes of this host share."""
    memory: Size
    """Memory in bytes."""
    nic: Rate
    """NIC rate in bytes per second and direction; on a shared machine, what one process can
    send or receive over loopback."""
    speed: Speed = 1.0
    """Speed of a core, relative to one that has the profile's prices: at 0.8 every computation
    takes 1 / 0.8 times as long."""
    rent: Rent | None = None
    """What one such host costs; none: reports say nothing of costs."""


class Loopback(Section):
    """What calibration measured between processes of one machine: no network's figures."""

    latency: Duration
    """As ``network.latency``."""
    connection_cap: Rate
    """As ``network.connection_cap``."""
    nic: Rate
    """As ``hosts.default.nic``."""


Queue = Literal["fifo", "fair"]


class Network(Section):
    """What lies between two processes."""

    latency: Duration
    """One way, from the sender's send to the first byte at the receiver, seconds."""
    efficiency: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Payload's share of the NIC rate: 1448/1514 for TCP over Ethernet."""
    connection_cap: Rate | None = None
    """Highest rate of one connection, bytes per second; none: the NIC alone binds."""
    queue: Queue = "fifo"
    """How packets wait for a link: "fifo", in one queue; "fair", in one for each host that they go
    to, which take turns packet by packet. Emulated hosts have it. It decides how unequally messages
    share a link; where a profile does not say, a prediction's interval holds both."""
    queue_length: PositiveDuration = 5e-3
    """For how long a packet waits at most, at the link's rate; what would wait longer is
    dropped, though never of fewer than 64 packets."""
    passes_at_once: AnySize | None = None
    """Bytes of payload that a link which has paused lets pass in no time: none of a network card,
    two frames or more of an emulated link, to which validations of emulated hosts set it. None: as
    of a card, and a prediction's interval holds two frames as well."""
    loopback: Loopback | None = None
    """What calibration measured within its own machine. With ``colocate: false`` such a value is
    refused where a network's is expected. None: the figures are no measured machine's."""


Basis = Literal["repeats", "fit", "once", "limit", "magnitude"]


class Price(Section):
    """Seconds of one core for one unit of work."""

    value: Duration
    """Seconds per unit."""
    uncertainty: Share = 0.0
    """Relative standard error of the value; 100 %: only its magnitude is known."""
    basis: Basis | None = None
    """What the uncertainty rests on: "repeats" of the measurement, their spread; a "fit", how far
    the price moves when the observations are resampled; "once": it was measured once, so that
    nothing is known of its spread; "limit": the value is a limit of what was searched;
    "magnitude": it was not measured. The last three are 100 % uncertain. None: the profile does
    not say."""


UNKNOWN: frozenset[Basis | None] = frozenset({"once", "limit", "magnitude"})
"""Bases of prices of which only the magnitude is known."""


ThreadClass = Literal["products", "pairs", "streams", "rows"]


@dataclass(frozen=True, slots=True)
class Usual:
    """What a price usually is, on a present server core: it decides only what a calibration's
    measurements leave open, and how placement weighs tables."""

    seconds: float
    """Per unit."""
    shared: ThreadClass | None = None
    """The class of `Threads` of such work where an operator of it is divided among threads."""


class Costs(Section):
    """Prices. A name says of what: `gemm_flop` is the price of one flop in a matrix product."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("parse_row", "skip_row"),
        "the profile is of an earlier version, which priced the reading of text: calibrate again",
    )

    call: Annotated[Price, Usual(7e-7)]
    """One tensor operator call, views and those within others included."""
    interpreter: Annotated[Price, Usual(1e-6)]
    """One call out of Python: the interpreter's own work."""
    handover: Price
    """How long it takes until a thread that waits for its process's interpreter lock has woken. A
    call out of Python that ends sooner keeps the lock. No work of its own: it limits what threads
    of one process do side by side. Calibration takes it from steps of two threads of one process;
    it counts only in runs whose trainers have several loops."""
    gemm_flop: Annotated[Price, Usual(2e-11, "products")]
    """One floating-point operation of a matrix product; one multiplication and addition is two."""
    dot_product: Annotated[Price, Usual(3e-9, "pairs")]
    """One dot product of two vectors in the interaction, or one of its two gradients, without its
    flops."""
    dot_flop: Annotated[Price, Usual(3e-11, "pairs")]
    """One floating-point operation of it; one multiplication and addition is two."""
    index_element: Annotated[Price, Usual(4e-9, "rows")]
    """One element picked by its index or put back there (rows that have just arrived, what a
    compression keeps)."""
    stream_byte: Annotated[Price, Usual(1e-10, "streams")]
    """One byte read or written in order (element-wise work, copies, optimizers)."""
    gather_row: Annotated[Price, Usual(3e-8, "rows")]
    """One embedding row read at random, without its bytes: in a lookup each distinct one."""
    gather_byte: Annotated[Price, Usual(1e-10, "rows")]
    """One byte of such a row."""
    scatter_row: Annotated[Price, Usual(3e-8)]
    """One embedding row updated at random, optimizer state included, without its bytes."""
    scatter_byte: Annotated[Price, Usual(1e-10)]
    """One byte of such a row."""
    unique_id: Annotated[Price, Usual(2e-8)]
    """One id of a de-duplication by sorting."""
    hashed_id: Annotated[Price, Usual(2e-8)]
    """One id entered into the hash table that finds the rows of an update that are one."""
    read_row: Annotated[Price, Usual(2e-7)]
    """One row of a file, its columns apart: decoded, put into its order, batched. Measured in runs
    of calibration's own program, like the next ones up to `shared_byte`."""
    read_number: Annotated[Price, Usual(2e-8)]
    """One value of a numeric column of a file."""
    read_id: Annotated[Price, Usual(3e-8)]
    """One id of a file that is a whole number. A list takes what seven do, beside its own."""
    read_text: Annotated[Price, Usual(1e-7)]
    """One id of a file that is hashed, or part of a text with a separator."""
    synthesize_row: Annotated[Price, Usual(2e-6)]
    """One row made by the generator, its ids apart."""
    synthesize_id: Annotated[Price, Usual(1e-7)]
    """One id drawn by the generator. Its part in the label is counted as a share of one."""
    feed_batch: Annotated[Price, Usual(5e-5)]
    """One batch handed to its loop by a reader, holding the interpreter lock."""
    effect: Price
    """One effect of a worker loop: the runtime's own overhead, holding the interpreter lock."""
    asking: Price
    """What an effect that asks shards takes beyond that: the client's side of its requests, without
    their operations and messages, holding the interpreter lock."""
    request: Price
    """One request served by a dense shard, the runtime's own overhead, holding the interpreter
    lock."""
    row_request: Price
    """The same by an embedding shard, which has ids to take apart by table."""
    message: Annotated[Price, Usual(1e-5)]
    """One request or answer, at each of its two ends."""
    wire_byte: Annotated[Price, Usual(2e-10)]
    """One byte through the transport, at each of its two ends."""
    shared_byte: Annotated[Price, Usual(1e-10)]
    """One byte copied into or out of memory that two processes of one host share."""
    gloo_message: Annotated[Price, Usual(5e-5)]
    """One message over gloo, at each of its two ends: of what reader processes send, whose packing
    and unpacking takes what 1.6 do."""
    collective_message: Annotated[Price, Usual(2e-4)]
    """One step of a collective at one member, sending, receiving and waiting, without its bytes.
    Measured in runs of calibration's own program, like the next two."""
    reduced_byte: Annotated[Price, Usual(3e-10)]
    """One byte that a member sends or receives in an all-reduce."""
    exchanged_byte: Annotated[Price, Usual(5e-10)]
    """One byte that a member sends or receives in an all-gather or all-to-all, put together before
    and taken apart after that."""
    collective_step: Price
    """Latency of one step of a ring collective, beyond its bytes and CPU time."""
    reduced_wait: Price
    """Seconds for which a member waits, without using CPU, for each byte that it sends in an
    all-reduce, on a machine that the members share: its threads wait for one another and for the
    other members' to take what they send. Measured with two members that do nothing else, like the
    next one."""
    exchanged_wait: Price
    """The same in an all-gather or all-to-all, of what it sends or receives, whichever is more."""


USUAL: Mapping[str, Usual] = {
    name: part
    for name, field in Costs.model_fields.items()
    for part in field.metadata
    if isinstance(part, Usual)
}
"""By price; the others are measured one by one, and no operation has work of theirs."""


class Scaling(Section):
    """How work of one class shortens on k threads: to ``serial`` + (1 - ``serial``) / k of its
    seconds on one thread."""

    serial: Share
    """Share that further threads do not shorten (Amdahl's law)."""
    overhead: Share = 0.0
    """CPU seconds that each further thread adds, as a share of one thread's; at most ``serial``."""
    uncertainty: Share = 0.0
    """Relative standard error of ``serial``; 100 %: only its magnitude is known."""
    basis: Basis | None = None
    """What that rests on, as of a price."""


class Waking(Section):
    """What an operator takes besides its work where it is divided: a pool of threads is woken, and
    waited for."""

    wall: Duration
    """Seconds by which the operator ends later, however many threads there are."""
    caller: Duration
    """CPU seconds of the thread that divides it; at most ``wall``."""
    pool: Duration
    """CPU seconds of each further thread; at most ``wall``."""
    uncertainty: Share = 0.0
    """Relative standard error of ``wall``; 100 %: only its magnitude is known."""
    basis: Basis | None = None
    """What that rests on, as of a price."""


class Cooling(Section):
    """How what effects and requests cost grows with the bytes that a training step moves through
    the caches between them: as (bytes / ``bytes``) ** ``exponent``."""

    exponent: Annotated[float, Field(ge=0.0, le=1.0)]
    bytes: Size
    """Of the steps at which the prices hold (`recsim_train.workload.shape`)."""


class CheckpointPrices(Section):
    """What checkpoints take, and a start after a failure, by what a run's processes do for them."""

    copied_byte: Price
    """One byte that a process holds, copied into new memory: loops stand still for that."""
    written_byte: Price
    """CPU seconds of one byte of the copy: put into a file, and its sum taken."""
    disk_byte: Price
    """For how long a process waits until the disk has taken one byte more: the disk of
    calibration's temporary folder. Processes of one host wait for one another's, too."""
    verified_byte: Price
    """One byte of a whole checkpoint, which is still in memory, read and compared with its sum."""
    loaded_byte: Price
    """One byte put in place by the process that holds it."""
    start: Price
    """From asking for processes until loops have begun, with what a first iteration takes more."""


Times = Annotated[float, Field(ge=0.5, le=4.0)]
"""So many times as long."""


class InRuns(Section):
    """How much longer a net's pass, and a batch that is read, take in a run than in a row, where a
    core's caches keep what they need and nobody interrupts them. Measured with runs and passes of
    calibration's own nets in turn."""

    times: Times = 1.0
    """So many times as long."""
    uncertainty: Share = 0.0
    """Its relative standard error."""


class Threads(Section):
    """Operations on several threads, by the class of their work; all other work stays on one."""

    measured: Positive
    """Most threads that calibration has seen; for more of them the law is extrapolated, and its
    uncertainty grows in proportion. 1: nothing was measured."""
    wake: Waking
    """Every operator that is divided, whatever its work."""
    products: Scaling
    """Matrix products (`gemm_flop`)."""
    pairs: Scaling
    """Dot products of the interaction (`dot_product`, `dot_flop`)."""
    streams: Scaling
    """Element-wise work (`stream_byte`): threads share the memory's rate."""
    rows: Scaling
    """Rows read at random and summed per bag (`gather_row`, `gather_byte`, `index_element`)."""

    def of(self, group: str) -> Scaling:
        """The law of a class."""
        scaling: Scaling = getattr(self, group)
        return scaling

    def uncertainty(self, group: str, threads: int) -> float:
        """Relative standard error of a class's serial share, or of "wake", for so many threads."""
        known: Scaling | Waking = getattr(self, group)
        return min(1.0, known.uncertainty * max(1.0, threads / self.measured))


THREAD_CLASSES: tuple[ThreadClass, ...] = get_args(ThreadClass)


def _assumed(serial: float, overhead: float) -> Scaling:
    return Scaling.model_construct(
        serial=serial, overhead=overhead, uncertainty=1.0, basis="magnitude"
    )


ASSUMED_THREADS = Threads.model_construct(
    measured=1,
    wake=Waking.model_construct(
        wall=7e-5, caller=3.5e-5, pool=3.5e-5, uncertainty=1.0, basis="magnitude"
    ),
    products=_assumed(0.05, 0.01),
    pairs=_assumed(0.1, 0.0),
    streams=_assumed(0.1, 0.05),
    rows=_assumed(0.1, 0.05),
)
"""Where nothing is measured: the profile of a machine of one core, and placement, which knows no
profile."""


class Calibration(Section):
    """Where the numbers come from."""

    date: str
    """ISO date of the measurement."""
    machine: str
    """Processor and host."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Python, torch and tool versions."""
    background_load: str = ""
    """Other load while measuring."""
    seconds: float = 0.0
    """How long it took."""
    machine_speed: MachineSpeeds | None = None
    """How fast the machine was, by its reference work; none: not known."""
    command: str = ""
    """The command that wrote the profile."""
    residuals: dict[str, str] = Field(default_factory=dict)
    """Per group of micro-workloads: how well the fitted prices reproduce the measured times."""
    fit_errors: dict[str, Annotated[float, Field(ge=0.0)]] = Field(default_factory=dict)
    """By the same group: root mean square error of fitted prices on settings kept out of the fit,
    of the logarithm of seconds."""
    own_error: Share | None = None
    """By how much predictions of calibration's own runs miss their throughput beyond what is known
    of the predictions' errors, root mean square of the logarithm, where no CPU second is of an
    operation; where a fifth is around operations (calls, requests, messages, collectives) a fifth
    of it. How far one run is from another of the same is in it. 0: they miss no more than is known,
    which is no proof that the model has no error. None: not known."""
    unseen: Share = 0.0
    """By how much the machine's speed may be another from one minute to the next without this
    calibration, a quick one, having seen it: relative standard deviation. 0: it took long enough to
    see that."""
    valid_range: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Range of the settings that were measured, such as batch size; outside it is extrapolation."""

    @property
    def speed_spread(self) -> float | None:
        """Relative standard deviation of the machine's speed at one moment from the profile's,
        which is the mean of its readings; no prediction knows the speed itself. None: not known."""
        speeds = self.machine_speed
        if speeds is None or speeds.spread is None:
            return self.unseen or None
        return hypot(self.unseen, speeds.spread * sqrt(1.0 + 1.0 / speeds.readings))


class Cluster(Section):
    """A cluster profile."""

    format: int = FORMAT
    """Which version of the program wrote it; in a file it has to be said: 1."""
    extends: str | None = None
    """Another profile, by its name or file: what is left out here is taken from there. Sections are
    joined, of ``costs`` and ``threads`` price by price; lists are replaced. Nothing keeps it: what
    has been read is whole."""
    name: str
    """Name printed in reports."""
    description: str = ""
    """What it stands for and where its numbers come from."""
    colocate: bool = False
    """Whether all roles are processes of one machine (of the type ``hosts.default``)."""
    most_hosts: Positive | None = None
    """How many hosts there are: no job has more. None: as many as racks hold, and without racks as
    many as one wants."""
    hosts: dict[TypeName, Host]
    """Host types: "default", and others for roles that have their own."""
    per_host: dict[RoleName, Positive] | None = None
    """How many processes of a role share a host: with 4 trainers those numbered 0 to 3 the first
    one, 4 to 7 the next. Its cores, its memory and its NIC are theirs together, and what they send
    each other stays within it. Processes of roles that are not named have hosts of their own."""
    mixed: dict[TypeName, tuple[MixedHosts, ...]] | None = None
    """Roles whose hosts differ: the first ``count`` hosts, the next ones ..., by what each entry
    has otherwise than the role's host type. ``default``: the hosts that there are for all roles
    without a type of their own in ``hosts``: servers and readers take theirs first, trainers what
    is left, each from the first entry on."""
    mixed_from_last: tuple[RoleName, ...] | None = None
    """Roles that take hosts of ``mixed.default`` from its last entry on. None: no role does, and
    `recommend` tries it of trainers, of all others, and of both."""
    network: Network
    contention: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Speed of each core when all cores of a machine are busy, relative to one busy alone."""
    measured_cores: Positive | None = None
    """Most cores that were seen busy side by side when that was measured; of hosts with more
    nothing is known of it, and predictions say so. None: the profile does not say."""
    jitter: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Relative standard deviation of a computation's time: a lognormal factor with mean 1."""
    cooling: Cooling | None = None
    """How much dearer effects and requests are after work that moves more through the caches; none:
    they cost the same whatever is done between them."""
    in_runs: InRuns | None = None
    """How much longer passes and batches take in a run than in a row; none: as long."""
    checkpoints: CheckpointPrices | None = None
    """What checkpoints take, and a start after a failure; none: it was not measured, and
    predictions take them to cost nothing."""
    turn: PositiveDuration = 4e-3
    """For how long threads that share a core of a machine of all roles take turns, and how long a
    core is free before it takes one of two from another: the scheduler's tick."""
    topology: RackTopology | None = None
    """Racks; none: all hosts reach each other at the rate of their NICs."""
    stragglers: Stragglers | None = None
    """Slow hosts and computations."""
    background: tuple[Traffic, ...] | None = None
    """Traffic of others on NICs and uplinks."""
    failures: Failures | None = None
    """Hosts that go down and come back."""
    costs: Costs
    threads: Threads
    """How operations scale over threads."""
    operations: tuple[MeasuredOperation, ...] | None = None
    """Operations measured at the shapes of some experiments; all others have unit prices, scaled by
    what the nearest shape of the same operation came to. None: nothing was measured so."""
    calibration: Calibration | None = None

    def host(self, role: TypeName) -> Host:
        """The host type of a role."""
        if self.colocate or role not in self.hosts:
            return self.hosts["default"]
        return self.hosts[role]

    def lots(self, role: TypeName) -> list[tuple[Host, float]]:
        """The entries of ``mixed`` for a role, or "default": each one's type, whole, and how many
        there are of it, infinitely many where it does not say."""
        found = []
        for entry in (self.mixed or {}).get(role, ()):
            said = {k: v for k in Host.model_fields if (v := getattr(entry, k)) is not None}
            found.append((self.host(role).model_copy(update=said), entry.count or inf))
        return found

    @property
    def limits(self) -> dict[str, int]:
        """How many hosts there are, by the setting that says so; empty: as many as one wants."""
        mixed = sum(many for _, many in self.lots("default"))
        known = {
            # roles with a type of their own have hosts beside these
            "mixed.default": mixed if len(self.hosts) == 1 else inf,
            "most_hosts": self.most_hosts or inf,
            "topology.hosts_per_rack": sum((self.topology and self.topology.rooms) or ()),
        }
        return {key: int(many) for key, many in known.items() if 0 < many < inf}

    def together(self, role: RoleName) -> int:
        """How many processes of a role share a host; not for one machine of all roles."""
        return (self.per_host or {}).get(role, 1)
