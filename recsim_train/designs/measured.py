"""The first designs of an answer, run on emulated hosts: prediction beside measurement; and how far
designs are from what predictions were held to before (docs/explain/how-true.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.units import RATE
from recsim_train.designs.searching import Design
from recsim_train.placement.hosts import kinds_of
from recsim_train.report import text
from recsim_train.report.winner import listed
from recsim_train.results.figures import Summary
from recsim_train.results.rundir import Keep
from recsim_train.results.undisturbed import broken
from recsim_train.session import prepare
from recsim_train.session.caller import Caller
from recsim_train.session.job import Job
from recsim_train.session.making import RunMaker


@dataclass(frozen=True, slots=True)
class MeasuredDesign:
    """A design, and how fast it was."""

    number: int
    """Its place in the answer, from 1."""
    design: Design
    eps: float | None
    """Examples per second; None: it could not be run."""
    why: str = ""
    """Why it could not."""
    broken: tuple[str, ...] = ()
    """How this machine disturbed the emulated hosts (`recsim_train.results.undisturbed`); none: it
    left them alone."""
    auc: float | None = None
    """On held-out rows, as the next; None: not measured."""
    normalized_entropy: float | None = None

    @property
    def error(self) -> float | None:
        """Of the prediction, relative to the measurement; positive: predicted too fast."""
        predicted = self.design.eps
        return None if self.eps is None or predicted is None else predicted / self.eps - 1.0

    @property
    def held(self) -> bool | None:
        """Whether the prediction's interval holds the measurement; None: there is none."""
        ends = self.design.interval
        return None if ends is None or self.eps is None else ends[0] <= self.eps <= ends[1]


def measure(designs: Sequence[Design], out: Path, caller: Caller) -> list[MeasuredDesign]:
    """Run designs, one after the other, each role on an emulated host, with modelled compute. One
    that cannot be run says why, and the others go on. ``out``: where their runs are kept."""
    keep = Keep(out, emulate=True, command=caller.command)
    found = []
    for number, design in enumerate(designs, start=1):
        caller.say(f"measuring design {number} of {len(designs)}: {design.kind}")
        run = None
        try:
            run = _run(real(design), keep, caller)
            eps = None if run is None else run.examples_per_second
            why = "" if eps else "it was stopped before it had a figure"
            disturbed = tuple(broken(run, modelled=True)) if run is not None and eps else ()
        except (UserError, RunFailed) as error:
            eps, why, disturbed = None, str(error).splitlines()[0], ()
        quality = (None, None) if run is None else (run.auc, run.normalized_entropy)
        found.append(MeasuredDesign(number, design, eps, why, disturbed, *quality))
    return found


def real(design: Design) -> Job:
    """The design as a measurement on emulated hosts, whose compute takes what is predicted."""
    job = design.candidate.job
    made = job.case.with_({"execution.compute": "modelled"})
    loaded = replace(job.loaded, experiment=made.experiment)
    return Job("real", loaded, made.plan, job.cluster, job.settings)


def _run(job: Job, keep: Keep, caller: Caller) -> Summary | None:
    prepare.check_emulated([job], emulate=True)
    prepare.check_this_machine([job.plan])
    prepare.not_carried([job], some_may=False, caller=caller)
    prepare.ensure_all_data([job], caller)
    record = RunMaker(keep, caller).record(job)
    return None if record is None else record.summary


def order_said(found: Sequence[MeasuredDesign]) -> list[str]:
    """Where the measurements put designs into another order; sentences without a full stop."""
    there = [(one, one.design.eps or 0.0, one.eps) for one in found if one.eps]
    if len(there) < 2:
        return []
    pairs = list(combinations(there, 2))
    said = []
    for (one, predicted, measured), (other, that, theirs) in pairs:
        if (predicted - that) * (measured - theirs) < 0.0:
            first, second = (one, other) if predicted > that else (other, one)
            said.append(
                f"design {first.number} was predicted faster than design {second.number} "
                f"({text.rate(first.design.eps)}, {text.rate(second.design.eps)}) and measured "
                f"slower ({text.rate(first.eps)}, {text.rate(second.eps)})"
            )
    return said or [f"measured in the order that was predicted ({len(pairs)} pairs)"]


def document(found: Sequence[MeasuredDesign]) -> list[dict[str, object]]:
    """As JSON."""
    return [
        {
            "design": one.number,
            "examples_per_second": one.eps,
            "error": one.error,
            "auc": one.auc,
            "normalized_entropy": one.normalized_entropy,
            "why": one.why,
            "broken": list(one.broken),
        }
        for one in found
    ]


MOST_HOSTS: Final = 15
"""Of a setting of `experiments/fidelity-clusters.yaml`, the emulated clusters that predictions of
hosts of their own are held to."""
FASTEST_LINK: Final = 1e9 / 8
"""Of those, bytes per second."""


def distances(designs: Sequence[Design]) -> Iterator[str]:
    """A line for each, from the first on; designs that are equally far share one."""
    alike: dict[str, list[str]] = {}
    for number, design in enumerate(designs, start=1):
        said = listed(list(_beyond(design)))
        alike.setdefault(said, []).append(str(number))
    for said, numbers in alike.items():
        whose = f"design{'s'[: len(numbers) > 1]} {listed(numbers)}"
        beyond = f"beyond what was measured in {said}" if said else "of a size that was measured"
        yield f"{whose}: {beyond}"


def _beyond(design: Design) -> Iterator[str]:
    job = design.candidate.job
    profile, plan = job.profile, job.plan
    kinds = kinds_of(plan.instances, profile).values()
    cores, measured = max(kind.cores for kind in kinds), profile.measured_cores
    if measured is not None and cores > measured:
        yield f"cores of a host ({cores}, prices are of {measured})"
    if plan.operation_threads > profile.threads.measured:
        yield (
            f"threads of an operation ({plan.operation_threads}, prices are of "
            f"{profile.threads.measured})"
        )
    if profile.colocate:
        return
    if design.candidate.hosts > MOST_HOSTS:
        yield f"hosts ({design.candidate.hosts}, emulated were {MOST_HOSTS})"
    fastest = max(kind.nic for kind in kinds)
    if fastest > FASTEST_LINK:
        yield (
            f"network cards ({RATE.format(fastest, 3)}, emulated were "
            f"{RATE.format(FASTEST_LINK, 3)})"
        )
