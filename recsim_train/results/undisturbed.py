"""How far a machine was as a prediction takes it: how its speed moved between a calibration and the
runs that it predicts, and whether it left its emulated hosts and their links alone.

Its speed is that of the reference work on idle cores before and after both
(`recsim_train.config.measured`), so that no run enters what is said of the machine beside it. It
corrects nothing: errors are raw.

Whether hosts were left alone is decided by invariants that were stated in advance (the idea is
Mininet-HiFi's: Handigol et al., CoNEXT 2012, "Reproducible network experiments using
container-based emulation"). None reads a predicted throughput. That of sleep, of modelled compute,
compares what operations took with what they were to take, which are the prediction's times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import fmean, stdev

from recsim_train.config.measured import MachineSpeeds
from recsim_train.results.environment import same_machine
from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import Summary
from recsim_train.trace.ledger import AROUND

MOVED = 0.05
"""Relative change of a machine's speed since its calibration from which errors are not the
prediction's alone."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The machine's speed, idle before and after some runs, relative to that at calibration."""

    change: float
    """- 1; geometric mean over the runs."""
    error: float | None
    """Standard error of `change`, calibration's readings included; None: not known."""
    runs: int
    """How many have a speed."""
    off: int = 0
    """Of these, beside how many it was more than `MOVED` from that at calibration."""

    @property
    def far(self) -> bool:
        """Whether errors contain so much of it that they are not the prediction's alone."""
        return abs(self.change) > MOVED


def moved(calibration: MachineSpeeds | None, runs: Sequence[MachineSpeeds | None]) -> Moved | None:
    """Of runs on the machine that was calibrated; None where no speed is known."""
    at = calibration and calibration.idle
    known = [run for run in runs if run is not None and run.idle]
    if calibration is None or not at or not known:
        return None
    each = [log(run.idle / at) for run in known if run.idle]
    own = stdev(each) / sqrt(len(each)) if len(each) > 1 else known[0].error
    change, there = exp(fmean(each)), calibration.error
    error = None if own is None or there is None else change * hypot(own, there)
    off = sum(abs(exp(one) - 1) > MOVED for one in each)
    return Moved(change - 1, error, len(each), off)


@dataclass(frozen=True, slots=True)
class Drift:
    """The machine that a profile describes and a run was made on, both times."""

    calibration: MachineSpeeds | None
    """None: not known, or of another machine."""
    run: MachineSpeeds | None
    named: bool
    """Whether both say which machine it was."""

    @property
    def since(self) -> Moved | None:
        """Since the calibration; None: not known."""
        return moved(self.calibration, [self.run])

    @property
    def steady(self) -> bool:
        """Whether the machine is known to be about as fast as at its calibration."""
        return self.named and self.since is not None and not self.since.far


def drift_of(simulated: RunRecord, real: RunRecord) -> Drift:
    """Between the calibration of the profile that a prediction was made with, and a measurement."""
    calibration = (simulated.manifest.get("cluster") or {}).get("calibration") or {}
    there, here = str(calibration.get("machine") or ""), real.environment
    named = bool(there and here.get("machine"))
    told = calibration.get("machine_speed")
    same = told and (not named or same_machine(there, here))
    speeds = MachineSpeeds.model_validate(told) if same else None
    return Drift(speeds, real.facts.machine_speed, named)


OTHERS, IDLE, WAITS, SLEPT, BEYOND, LATE, ROUND, RATE = (
    0.25, 0.25, 0.05, 0.02, 0.05, 0.05, 0.10, 0.02,
)  # fmt: skip
"""Most of all cores that other programs have, or the host of this machine takes; least idle share
of them; most that a process's threads together wait for a core, as a share
of the window; how far what a process's operations took may be from what they were to take, as a
share of that, or of the window, where they are little of it; most sleepers that wake more than a
millisecond late; most CPU time of messages and coding in a process's window; how far a link may
exceed its rate."""


def broken(summary: Summary, *, modelled: bool) -> Iterator[str]:
    """The invariants that a run breaks, each with its figure."""
    facts = summary.facts
    ledger, emulated = facts.ledger, facts.emulated
    if ledger is None or ledger.machine is None or emulated is None:
        yield "emulated: the run says nothing of its hosts"
        return
    use = ledger.machine
    if (others := (use.others + use.steal) / use.cores) > OTHERS:
        yield f"others: {others:.0%} of the cores were taken from it"
    if modelled:
        sleepers = facts.slept.values()
        if not any(one.asked for one in sleepers):
            yield "sleep: nothing was modelled"
        off = {
            name: (one.taken - one.asked) / ledger.seconds
            for name, one in facts.slept.items()
            if abs(one.taken - one.asked) > max(SLEPT * one.asked, BEYOND * ledger.seconds)
        }
        if off:
            worst = max(off, key=lambda name: abs(off[name]))
            yield f"sleep: {worst}'s operations took {off[worst]:+.1%} of the time more than asked"
        wakes = sum(one.wakes for one in sleepers)
        if (late := sum(one.late for one in sleepers) / max(1, wakes)) > LATE:
            yield f"wake-ups: {late:.1%} of them came more than a millisecond late"
        if (around := messages_share(summary)) > ROUND:
            yield f"messages: their CPU time is {around:.1%} of a process's"
    else:
        idle = 1.0 - (use.own + use.others + use.steal) / use.cores
        if idle < IDLE:
            yield f"idle: {idle:.0%} of the cores were"
        waits = {name: seconds / ledger.seconds for name, seconds in facts.core_waits.items()}
        if (longest := max(waits.values(), default=0.0)) > WAITS:
            yield f"waits: a process's threads waited {longest:.1%} of the time for a core"
    for name, rate in emulated.links.items():
        most = rate * (facts.wall_seconds or 0.0)
        if emulated.sent[name] > most * (1.0 + RATE):
            yield f"rate: {name} sent {emulated.sent[name] / most:.2f} times what its link carries"


def messages_share(summary: Summary) -> float:
    """CPU time of messages, coding and the runtime's own work in the counted window, as a share of
    it: the mean of a role's processes, of the role where that is most."""
    ledger = summary.facts.ledger
    assert ledger is not None
    processes = Counter(name.partition("[")[0] for name in summary.facts.cpu_seconds)
    shares = (
        sum(ledger.spent(what, role) for what in AROUND) / (ledger.seconds * count)
        for role, count in processes.items()
    )
    return max(shares, default=0.0)
