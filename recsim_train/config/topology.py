"""The sections of a cluster profile for racks, hosts that differ within a role, other traffic, and
hosts that are slow, slow for a while, or fail."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recsim_train.config.problems import shown
from recsim_train.config.units import (
    Duration,
    Portion,
    Positive,
    PositiveDuration,
    Rate,
    Section,
    Share,
    Size,
)

RoleName = Literal["trainer", "embedding_server", "dense_server", "reader"]
ROLE_NAMES: tuple[RoleName, ...] = ("trainer", "embedding_server", "dense_server", "reader")

Speed = Annotated[float, Field(gt=0.0, le=100.0)]
_HOST = re.compile(rf"({'|'.join(ROLE_NAMES)})\[(\d+)\]\Z")


def _host_name(text: str) -> str:
    if not _HOST.match(text):
        raise ValueError(
            f"expected a host such as 'trainer[2]' (roles: {', '.join(ROLE_NAMES)}), got {text!r}"
        )
    return text


HostName = Annotated[str, AfterValidator(_host_name)]
"""One host, by the instance that it runs: trainer[2]."""


def host_of_name(name: str) -> tuple[str, int]:
    """(role, index) of a checked host name."""
    match = _HOST.match(name)
    assert match is not None
    return match[1], int(match[2])


class Rent(Section):
    """What a host costs while it is there, whether it is busy or not."""

    per_hour: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    """Of one host, in the currency."""
    currency: Annotated[str, Field(pattern=r"^\S+$")]
    """A label that stands behind each amount, such as USD; nothing is converted."""
    source: Annotated[str, Field(pattern=r"\S")]
    """Where the amount is from: a price list's address, or a contract."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """When it was read there, as 2026-11-27; reports say it."""


class MixedHosts(Section):
    """Hosts that are alike: what is left out is that of the role's host type."""

    count: Positive | None = None
    """How many; only the last entry may leave it out: all further ones."""
    cores: Positive | None = None
    """Cores of each of these hosts."""
    memory: Size | None = None
    """Memory of each of these hosts in bytes."""
    nic: Rate | None = None
    """NIC rate of each of these hosts in bytes per second and direction."""
    speed: Speed | None = None
    """Speed of a core of these hosts, relative to one that has the profile's prices."""
    rent: Rent | None = None
    """What one of these hosts costs."""


def _rooms(value: object) -> object:
    counts = value if isinstance(value, list | tuple) else [value]
    if value is None or (counts and all(type(count) is int and count > 0 for count in counts)):
        return tuple(value) if isinstance(value, list) else value
    raise ValueError(
        f"expected an integer of at least 1, or a list with one for each rack, got {shown(value)}"
    )


Rooms = Annotated[Positive | tuple[Positive, ...], BeforeValidator(_rooms)]


class RackTopology(Section):
    """Racks: hosts of different racks reach each other over both racks' uplinks."""

    racks: Positive
    """Number of racks. Between their uplinks the network has no limit."""
    hosts_per_rack: Rooms | None = None
    """Hosts that there are in each rack: one number, or a list with one for each; none: as many as
    are needed."""
    uplink: Rate | None = None
    """Rate of one rack's uplink in bytes per second, each way. Instead of ``oversubscription``."""
    oversubscription: Annotated[float, Field(gt=0.0)] | None = None
    """NIC rates of a rack's hosts together, divided by its uplink's rate. The hosts are its
    ``hosts_per_rack`` of type ``hosts.default``, or of ``mixed.default`` in the same shares;
    without that, those that the run puts there."""
    arrange: Literal["spread", "fill"] = "spread"
    """spread: host i of each role stands in rack i mod ``racks``, or the next one with room; fill:
    one rack after the other, in the order trainers, embedding servers, dense servers, readers."""
    latency: Duration = 0.0
    """One way, in addition to ``network.latency``, between hosts of different racks."""

    @property
    def rooms(self) -> tuple[int, ...] | None:
        """Hosts that there are in each rack; None: as many as are needed."""
        each = self.hosts_per_rack
        return (each,) * self.racks if isinstance(each, int) else each


class Traffic(Section):
    """Traffic of others, which has priority: training gets what it leaves."""

    link: Literal["nic", "uplink"]
    """Which links it takes a share of, in both directions."""
    share: Share
    """Share of the link's rate that it takes."""
    role: RoleName | None = None
    """NICs of this role's hosts only; none: of all hosts."""
    burst: PositiveDuration | None = None
    """It comes in bursts of this mean length (exponential, seeded, each link on its own); none:
    it never pauses."""
    pause: PositiveDuration | None = None
    """Mean length of the pauses between bursts (exponential)."""


Factor = Annotated[float, Field(ge=1.0)]


class SlowHosts(Section):
    """Hosts that are slow all the time: some that are named, or a share of a role's."""

    hosts: tuple[HostName, ...] = ()
    """Which ones, by name; quote them in a list: ["trainer[2]"]."""
    share: Portion | None = None
    """Or: this share of the role's hosts, rounded, at least one; the seed decides which."""
    role: RoleName = "trainer"
    """Role of ``share``."""
    factor: Factor
    """All their computations take this many times as long."""


class Episodes(Section):
    """Hosts that are slow for a while, each at its own times."""

    every: PositiveDuration
    """Mean time from the end of one episode to the start of the next (exponential, seeded)."""
    duration: PositiveDuration
    """Length of an episode."""
    factor: Factor
    """During it all computations of the host take this many times as long."""
    role: RoleName | None = None
    """Hosts of this role only; none: all hosts."""


class Hiccups(Section):
    """Single computations that take much longer. The mean grows: 1 + probability (factor - 1)."""

    probability: Portion
    """Of each computation."""
    factor: Factor
    """How many times as long such a computation takes."""
    role: RoleName | None = None
    """In processes of this role only; none: in all."""


class Tail(Section):
    """A heavy-tailed factor on each computation's time, with mean 1."""

    distribution: Literal["lognormal", "pareto"]
    """lognormal with relative standard deviation ``deviation``, or Pareto with tail index
    ``index`` and the smallest value (index - 1) / index."""
    deviation: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    """lognormal: standard deviation relative to the mean."""
    index: Annotated[float, Field(gt=1.0)] | None = None
    """pareto: P(factor > x) falls as x to the power -index; from 2 downwards the variance is
    infinite."""
    role: RoleName | None = None
    """In processes of this role only; none: in all."""


class Stragglers(Section):
    """Hosts and computations that are slower than others, beside the profile's ``jitter``.

    Which hosts, when, and which computations depend on the experiment's seed, the instance and the
    computation's purpose only, so that all strategies meet the same ones.
    """

    slow: tuple[SlowHosts, ...] = ()
    """Hosts that are slow all the time; factors of a host in several entries multiply."""
    episodes: tuple[Episodes, ...] = ()
    """Hosts that are slow for a while; factors of episodes at one time multiply."""
    hiccups: Hiccups | None = None
    """Single computations that take longer."""
    tail: Tail | None = None
    """A heavy tail of all computations."""


class ScheduledFailure(Section):
    """One failure of which the time is given."""

    at: Duration
    """Seconds of simulated time from the start, warm-up included."""
    host: HostName
    """Which host; quote it inside braces: "trainer[2]"."""


class Failures(Section):
    """Hosts that go down and come back. What the job does then: the experiment's ``recovery``."""

    restart: PositiveDuration
    """From a failure until the host works again."""
    mtbf: PositiveDuration | None = None
    """Mean time between failures of one host: its up-times are exponential with this mean, seeded,
    the same for all strategies; none: no random failures."""
    role: RoleName | None = None
    """Random failures of this role's hosts only; none: of all hosts."""
    schedule: tuple[ScheduledFailure, ...] = ()
    """Failures at fixed times, besides the random ones."""
