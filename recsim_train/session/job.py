"""One run to make: a strategy at one point, with its plan and the cluster it is for; and who asks
for it, with what they hear meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import UserError
from recsim_train.config.load import Loaded
from recsim_train.evaluate.case import Case
from recsim_train.placement.plan import Plan
from recsim_train.results.environment import cores, memory
from recsim_train.results.rundir import World, identity
from recsim_train.trace.progress import Meter, unseen

if TYPE_CHECKING:
    from recsim_train.evaluate.asymptotic import AsymptoticBounds
    from recsim_train.sim.host.memory_check import MemoryCheck


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. The default hears nothing."""

    say: Callable[[str], object] = field(default=lambda sentence: None, repr=False)
    """Called with each sentence, as soon as it is true: what a prediction leaves out, what is
    measured first, what an interrupt has left."""
    progress: Callable[[str], AbstractContextManager[Meter]] = field(
        default=lambda title: nullcontext(unseen), repr=False
    )
    """Called with a title; gives a context in which a `Meter` is shown."""
    command: tuple[str, ...] = ()
    """The command line that asks, which run directories remember; empty: it was Python."""
    log: Path | None = None
    """Gets a line of JSON each second of a measurement that is started here."""

    def logged(self, run: str, figures: Mapping[str, float | None]) -> None:
        """One such line: of which run, when, and how far it is. One that cannot be written, as on a
        full disk, is left out: no run ends for it."""
        if self.log is None:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        with suppress(OSError), self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"run": run, "at": at, **figures}) + "\n")


NOBODY = Caller()


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make."""

    world: World
    loaded: Loaded
    """The point that it belongs to."""
    plan: Plan
    cluster: Cluster | None
    """None where there is no profile yet, or a measurement that needs none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What tells it from the study's others beside the strategy: swept settings by name (None for
    an option that the strategy does not have)."""
    identity: str = field(init=False)
    """Of everything that decides its outcome: equal jobs are one run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", identity(self.plan, self.world, self.cluster))

    @property
    def case(self) -> Case:
        """What is predicted of it."""
        known = self.identity if self.world == "simulated" else None
        return Case.of(self.plan, self.profile, known)

    @property
    def profile(self) -> Cluster:
        """The cluster of a prediction, which always has one."""
        assert self.cluster is not None
        return self.cluster

    def memory(self) -> MemoryCheck | None:
        """Whether it fits into the hosts' memory, a measurement into this machine's; None without
        a profile."""
        from recsim_train.sim.host.memory_check import machine_check, memory_check

        if self.world == "real":
            return machine_check(self.plan, this_machine())
        return None if self.cluster is None else memory_check(self.plan, self.cluster)

    def asymptotic_bounds(self) -> AsymptoticBounds | None:
        """What is known of a prediction before it is made; None without a profile, of a
        measurement, and where it takes data that are not there yet."""
        from recsim_train.evaluate.asymptotic import asymptotic_bounds

        if self.world == "real" or self.cluster is None:
            return None
        with suppress(UserError):
            return asymptotic_bounds(self.case)
        return None


def this_machine() -> Host:
    """A host with what this process may use of this machine."""
    host = {"cores": cores(), "memory": f"{memory()} B", "nic": "1 GB/s"}
    return Host.model_validate(host)
