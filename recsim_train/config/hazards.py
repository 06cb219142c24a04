"""The sections of a cluster profile for hosts that are slow, slow for a while, or fail."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recsim_train.config.topology import HostName, RoleName
from recsim_train.config.units import Duration, PositiveDuration, Section, Share

Factor = Annotated[float, Field(ge=1.0)]


class SlowHosts(Section):
    """Hosts that are slow all the time: some that are named, or a share of a role's."""

    hosts: tuple[HostName, ...] = ()
    """Which ones, by name; quote them in a list: ["trainer[2]"]."""
    share: Share | None = None
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

    probability: Share
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
