"""Changes of hosts and links while a run goes on: episodes, bursts of traffic, standstills.

All of it is a change of capacity or pace, exact to the instant. When something happens depends on
the seed and on the host or link only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import fsum, prod
from typing import TYPE_CHECKING

from recsim_train.config.topology import Episodes, Traffic
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.records import Resource
from recsim_train.sim.fluid.unshared import Unshared
from recsim_train.sim.jitter import stream

if TYPE_CHECKING:
    from recsim_train.sim.fluid.solver import Fluid


class HostCondition:
    """What a host has of its cores and its NIC at the moment.

    ``computing``: its cores, whose pace is the speed of one of them, and what else its
    computations use; ``nic``: both directions.
    """

    def __init__(
        self,
        fluid: Fluid | Unshared,
        cores: Resource,
        computing: Sequence[Resource],
        nic: LinkCondition,
    ) -> None:
        self._fluid = fluid
        self._cores = cores
        self._computing = [cores, *computing]
        self._nic = nic
        self._speed = cores.pace
        self._factors: list[float] = []
        self._holds = 0

    def slow(self, factor: float) -> None:
        """From now on computations take ``factor`` times as long."""
        self._factors.append(factor)
        self._apply()

    def recover(self, factor: float) -> None:
        """A `slow` is over."""
        self._factors.remove(factor)
        self._apply()

    def hold(self) -> None:
        """The host stands still until `release`; nested."""
        self._holds += 1
        self._apply()

    def release(self) -> None:
        """A reason to stand still is gone."""
        self._holds -= 1
        self._apply()

    def _apply(self) -> None:
        pace = 1.0 / prod(self._factors)
        for resource in self._computing:
            self._fluid.set_capacity(resource, resource.capacity * (0.0 if self._holds else pace))
        self._fluid.set_pace(self._cores, self._speed * pace)
        self._nic.stop(self._holds > 0)


class LinkCondition:
    """What is left of a link, both directions, by the traffic of others."""

    def __init__(self, fluid: Fluid | Unshared, directions: Sequence[Resource]) -> None:
        self._fluid = fluid
        self._directions = directions
        self._taken: list[float] = []
        self._stopped = False

    def take(self, share: float) -> None:
        """Others take this share of the capacity."""
        self._taken.append(share)
        self._apply()

    def give_back(self, share: float) -> None:
        """A `take` is over."""
        self._taken.remove(share)
        self._apply()

    def stop(self, stopped: bool) -> None:
        """Whether nothing passes at all."""
        self._stopped = stopped
        self._apply()

    def _apply(self) -> None:
        left = 0.0 if self._stopped else 1.0 - fsum(self._taken)
        for resource in self._directions:
            self._fluid.set_capacity(resource, resource.capacity * left)


def constant_share(traffic: Iterable[Traffic]) -> float:
    """Share of a link that the traffic takes that is always there."""
    return fsum(t.share for t in traffic if t.burst is None)


def start_episodes(
    engine: Engine, seed: int, name: str, host: HostCondition, episodes: Sequence[Episodes]
) -> None:
    """Let a host be slow for a while, again and again."""
    for n, entry in enumerate(episodes):
        if entry.role in (None, name.partition("[")[0]):
            generator = stream(seed, name, f"episodes/{n}")
            _alternate(
                engine,
                pause=partial(generator.exponential, entry.every),
                length=partial(float, entry.duration),
                begin=partial(host.slow, entry.factor),
                end=partial(host.recover, entry.factor),
            )


def start_bursts(
    engine: Engine, seed: int, name: str, link: LinkCondition, traffic: Sequence[Traffic]
) -> None:
    """Let traffic of others come and go on a link.

    ``traffic``: all of it on this link, the constant one included, which is not part of the
    capacity that the link was made with.
    """
    left = 1.0 - constant_share(traffic)
    for n, entry in enumerate(traffic):
        if entry.burst is None or entry.pause is None:
            continue
        generator = stream(seed, name, f"traffic/{n}")
        share = entry.share / left
        _alternate(
            engine,
            pause=partial(generator.exponential, entry.pause),
            length=partial(generator.exponential, entry.burst),
            begin=partial(link.take, share),
            end=partial(link.give_back, share),
        )


def _alternate(
    engine: Engine,
    pause: Callable[[], float],
    length: Callable[[], float],
    begin: Callable[[], None],
    end: Callable[[], None],
) -> None:
    """A pause, ``begin``, some length, ``end``, and so on."""

    def on() -> None:
        begin()
        engine.meanwhile(length(), off)

    def off() -> None:
        end()
        engine.meanwhile(pause(), on)

    engine.meanwhile(pause(), on)
