"""The first designs of an answer: a folder of each, with what simulates and runs it; and, run on
emulated hosts, prediction beside measurement."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from recsim_train.config.dump import dump_cluster, dump_yaml, resolved
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.designs.searching import Design
from recsim_train.placement.hosts import hosts_of
from recsim_train.report import text
from recsim_train.results.folder import put, slug, writing
from recsim_train.results.rundir import Keep
from recsim_train.results.summary import Summary
from recsim_train.results.undisturbed import broken
from recsim_train.session import prepare
from recsim_train.session.job import Caller, Job
from recsim_train.session.making import RunMaker

EXPERIMENT, PROFILE, COMMANDS = "experiment.yaml", "cluster.yaml", "commands.txt"


def write_folders(folder: Path, designs: Sequence[Design]) -> list[Path]:
    """One folder for each design, in order. Raises RunFailed where the disk does not take them."""
    made = []
    for number, design in enumerate(designs, start=1):
        place = folder / f"{number}-{slug(design.candidate.job.plan.strategy.kind, 'design')}"
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
            for name, content in _files(place, design).items():
                put(place / name, content.encode())
        made.append(place)
    return made


def _files(place: Path, design: Design) -> dict[str, str]:
    """By name. The folder works where it is put."""
    job = design.candidate.job
    return {
        EXPERIMENT: dump_yaml(resolved(prepare.from_anywhere(job.plan.experiment, PROFILE))),
        PROFILE: dump_cluster(job.profile, f"of {job.loaded.path}, as `recommend` divides it"),
        COMMANDS: "".join(f"{line}\n" for line in commands(place, design)),
    }


def commands(place: Path, design: Design) -> list[str]:
    """What one does with a design whose folder is ``place``."""
    job = design.candidate.job
    hosts = hosts_of(job.plan.instances, job.profile)
    return [
        "# in the folder of this file",
        f"cd {shlex.quote(str(place.absolute()))}",
        "# predict it again, with all that a prediction says",
        f"recsim-train simulate {EXPERIMENT}",
        "# run it on this machine, each role on an emulated host (as root)",
        f"recsim-train run {EXPERIMENT} --emulate --compute modelled",
        "# run it on hosts, one of these lines on each; FIRST is an address of the first that all",
        "# reach (docs/tasks/several-machines.md)",
        *(
            f"torchrun --nnodes={len(hosts)} --node-rank={rank} --master-addr=${{FIRST:?}} "
            f"--master-port=29400 --nproc-per-node={len(host.instances)} "
            f"-m recsim_train run {EXPERIMENT}  # {host.name}"
            for rank, host in enumerate(hosts)
        ),
    ]


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
