"""Where run directories go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.environment import machine, versions
from recsim_train.results.rundir import RunRecord, Status, World, write_run
from recsim_train.trace.record import Outcome


@dataclass(frozen=True, slots=True)
class Keep:
    """Where run directories go."""

    out: Path
    resume: bool = False
    """Whether a complete run of the same settings that lies there is taken instead."""
    emulate: bool = False
    """Whether processes of a measurement run on emulated hosts."""
    command: tuple[str, ...] = ()
    """What asked for them."""

    def write(
        self,
        plan: Plan,
        world: World,
        cluster: Cluster | None,
        outcome: Outcome,
        status: Status = "complete",
        message: str = "",
    ) -> RunRecord:
        """Write one run directory. Raises RunFailed where the disk does not take it."""
        simulated = world == "simulated"  # equal inputs give equal files: no machine, no time
        return write_run(
            self.out,
            plan=plan,
            world=world,
            outcome=outcome,
            cluster=cluster,
            environment={"versions": versions()} if simulated else machine(),
            command=list(self.command),
            status=status,
            message=message,
        )
