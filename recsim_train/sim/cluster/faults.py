"""What happens to hosts and links while a run goes on: episodes, bursts of traffic, failures, and
what the job does then (the experiment's recovery).

All of it is a change of capacity or pace, exact to the instant. When something happens depends on
the seed and on the host or link only. A host that is down has no cores and no NIC: what it was
doing stands still and goes on when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed
from recsim_train.config.topology import Episodes, Traffic, host_of_name
from recsim_train.placement.hosts import JobHost
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.cluster.hosts import Site
from recsim_train.sim.cluster.keeping import checkpoint_times
from recsim_train.sim.engine import Engine, Event, Steps
from recsim_train.sim.fluid.resources import Resource, Unshared
from recsim_train.sim.jitter import stream
from recsim_train.trace.facts import HostFailure, Reliability
from recsim_train.trace.record import Iteration

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


_MOST = 10_000
"""Failures after which a prediction is given up."""
_LISTED = 20
"""Failures that are listed one by one in a run's facts."""


class HostFailed(RunFailed):
    """A host has failed, and the recovery policy is to give up."""


class Faults:
    """Failures and checkpoints of one run.

    Work is *at risk* from the last checkpoint on, or since all were last put back to one. Raises
    HostFailed, out of the engine, where the policy is to stop.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        cluster: Cluster,
        hosts: dict[JobHost, HostCondition],
        sites: Mapping[Instance, Site],
        writes: Mapping[Instance, Callable[[float], Event]],
    ) -> None:
        """``sites``: of all instances; ``writes``: those that are simulated, each with what keeps
        one core of its host busy for so long."""
        self._engine = engine
        self._hosts = hosts
        self._recovery, self._checkpoint = plan.experiment.recovery, plan.experiment.checkpoint
        self._total = plan.experiment.training.warmup_steps + plan.experiment.training.steps
        self._failures = cluster.failures
        self.failures: list[HostFailure] = []
        self.checkpoints = 0
        """Written to the end."""
        self.standstills: list[tuple[float, float]] = []
        """(start, end) of each time in which all stood still."""
        self.lost: list[tuple[float, float]] = []
        """(start, end) of each time whose work was lost."""
        self._at_risk = 0.0
        self._times = checkpoint_times(plan, cluster, sites)
        # mean seconds of the whole job; None: no random failure loses work
        self._between_failures: float | None = None
        self._writes = writes
        # the `_round` of the checkpoint that is being written, and whether the next one is due
        self._writing: int | None = None
        self._due = False
        self._holds = 0
        self._held_since = 0.0
        self._round = 0
        """Counts what makes a checkpoint under way, or planned, void."""
        if self._failures is not None:
            for failure in self._failures.schedule:
                role, index = host_of_name(failure.host)
                for host in hosts:
                    if any((i.role, i.index) == (role, index) for i in host.instances):
                        engine.meanwhile(failure.at, partial(self._fail, host))
            if self._failures.mtbf is not None:
                whose = self._failures.role
                failing = {
                    site.host
                    for site in sites.values()
                    if whose in (None, site.host.instances[0].role)
                }
                for host in hosts:
                    if host in failing:
                        own = stream(plan.experiment.seed, host.name, "failures")
                        self._next(host, own, 0.0)
                if failing and self._recovery.policy != "continue_without":
                    self._between_failures = self._failures.mtbf / len(failing)
        self._plan_checkpoint()

    @property
    def any(self) -> bool:
        """Whether anything may happen."""
        return self._failures is not None or self._checkpoint.every is not None

    # ------------------------------------------------------------------ failures

    def _next(self, host: JobHost, own: np.random.Generator, down: float) -> None:
        """Plan a host's next failure, after ``down`` seconds and an exponential up-time."""
        assert self._failures is not None
        restart, mtbf = self._failures.restart, self._failures.mtbf
        assert mtbf is not None

        def happen() -> None:
            self._fail(host)
            self._next(host, own, restart)

        self._engine.meanwhile(down + own.exponential(mtbf), happen)

    def _fail(self, host: JobHost) -> None:
        assert self._failures is not None
        now, restart = self._engine.now, self._failures.restart
        self.failures.append(HostFailure(host.name, now, now + restart))
        if len(self.failures) > _MOST:
            raise RunFailed(
                f"{_MOST:,} failures within {now:.6g} s of simulated time, and the loops are not "
                "done: hosts fail too often for this experiment (cluster.failures.mtbf)"
            )
        if self._recovery.policy == "continue_without":
            condition = self._hosts[host]
            condition.hold()
            self._engine.meanwhile(restart, condition.release)
            return
        self.lost.append((self._at_risk, now))
        if self._recovery.policy == "stop":
            raise HostFailed(f"{host.name} failed after {now:.6g} s of simulated time")
        self._at_risk = now
        self._round += 1
        self._due = False
        self._hold_all()
        self._engine.meanwhile(restart + self._times.again, partial(self._go_on, self._round))

    def _go_on(self, number: int) -> None:
        """The host is back, and all have been started with the state of the last checkpoint."""
        self._release_all()
        if number == self._round:
            self._plan_checkpoint()

    def _hold_all(self) -> None:
        if self._holds == 0:
            self._held_since = self._engine.now
        self._holds += 1
        for host in self._hosts.values():
            host.hold()

    def _release_all(self) -> None:
        self._holds -= 1
        for host in self._hosts.values():
            host.release()
        if self._holds == 0:
            self.standstills.append((self._held_since, self._engine.now))

    # ------------------------------------------------------------------ checkpoints

    def _plan_checkpoint(self) -> None:
        every = self._checkpoint.every_seconds
        if every is not None:
            self._engine.meanwhile(every, partial(self._begin_checkpoint, self._round))

    def done(self, steps: int) -> None:
        """All loops have done so many iterations."""
        every = self._checkpoint.every_steps
        self._due = self._due and steps < self._total
        if every is not None and steps % every == 0 and steps < self._total:
            self._begin_checkpoint(self._round)

    def _begin_checkpoint(self, number: int) -> None:
        self._due = number == self._writing == self._round
        if number == self._round and not self._due:
            self._hold_all()
            copied = partial(self._copied, number, self._engine.now)
            self._engine.meanwhile(self._times.still, copied)

    def _copied(self, number: int, begun: float) -> None:
        self._release_all()
        if number == self._round:
            self._engine.process(self._write(number, begun))

    def _write(self, number: int, begun: float) -> Steps:
        """Loops go on meanwhile. One that is void before it is complete is written, too."""
        self._writing = number
        yield from [write(self._times.writing.get(who, 0.0)) for who, write in self._writes.items()]
        yield self._engine.timeout(self._times.disk)
        if number == self._round:
            self.checkpoints += 1
            self._at_risk, self._writing = begun, None
            self._plan_checkpoint()
            if self._due:
                self._begin_checkpoint(number)

    # ------------------------------------------------------------------ what it comes to

    def lost_examples(self, iterations: Sequence[Iteration], batch: int) -> float:
        """Examples of these iterations whose work was lost.

        An iteration of which a part was lost counts for that part of the time that it worked.
        """
        if not iterations or not self.lost:
            return 0.0
        starts = self._working([i.start for i in iterations])
        ends = self._working([i.end for i in iterations])
        spans = ends - starts
        total = 0.0
        for start, end in zip(
            self._working([a for a, _ in self.lost]),
            self._working([b for _, b in self.lost]),
            strict=True,
        ):
            inside = np.minimum(ends, end) - np.maximum(starts, start)
            parts = np.where(spans > 0.0, inside / np.where(spans > 0.0, spans, 1.0), 0.0)
            total += float(np.clip(parts, 0.0, 1.0).sum())
        return total * batch

    def _working(self, times: Iterable[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Times without those in which all stood still."""
        found = np.array(list(times), dtype=np.float64)
        still = np.zeros_like(found)
        for start, end in self.standstills:
            still += np.clip(found, start, end) - start
        if self._holds:
            still += np.maximum(found - self._held_since, 0.0)
        return found - still

    def reliability(
        self, counted: Sequence[Iteration], *, batch: int, examples_per_second: float | None
    ) -> Reliability:
        """What failures and checkpoints did to the counted iterations."""
        lost = self.lost_examples(counted, batch)
        start = min((i.start for i in counted), default=0.0)
        end = max((i.end for i in counted), default=0.0)
        still = sum(max(0.0, min(b, end) - max(a, start)) for a, b in self.standstills)
        share = 1.0 - lost / (len(counted) * batch) if counted else None
        return Reliability(
            policy=self._recovery.policy,
            failures=len(self.failures),
            first_failures=tuple(self.failures[:_LISTED]),
            checkpoints=self.checkpoints,
            standstill_seconds=still,
            lost_examples=lost,
            goodput=None
            if examples_per_second is None or share is None
            else examples_per_second * share,
            checkpoint_seconds=self._times.taken,
            between_failures=self._between_failures,
            best_interval=sqrt(2.0 * self._times.taken * self._between_failures)
            if self._times.taken and self._between_failures
            else None,
        )
