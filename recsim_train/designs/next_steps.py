"""Folders of the first designs: what simulates each, and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsim_train.config.dump import dump_cluster, dump_yaml, resolved
from recsim_train.designs.searching import Design
from recsim_train.results.folder import put, slug, writing

EXPERIMENT, PROFILE, COMMANDS = "experiment.yaml", "cluster.yaml", "commands.txt"


def write(folder: Path, designs: Sequence[Design]) -> list[Path]:
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
    job = design.candidate.job
    profile = (place / PROFILE).as_posix()
    experiment = job.plan.experiment.model_copy(update={"cluster": profile})
    return {
        EXPERIMENT: dump_yaml(resolved(experiment)),
        PROFILE: dump_cluster(job.profile, f"of {job.loaded.path}, as `recommend` divides it"),
        COMMANDS: "".join(f"{line}\n" for line in commands(place, design)),
    }


def commands(place: Path, design: Design) -> list[str]:
    """What one does with a design."""
    job = design.candidate.job
    experiment = (place / EXPERIMENT).as_posix()
    count = len(job.plan.instances)
    return [
        "# predict it again, with all that a prediction says",
        f"recsim-train simulate {experiment}",
        "# run it on this machine, each role on an emulated host (as root)",
        f"recsim-train run {experiment} --emulate --compute modelled",
        f"# run it on hosts: {count} ranks, as docs/tasks/several-machines.md says",
        f"torchrun --nnodes={design.candidate.hosts} --nproc-per-node=PROCESSES_OF_THIS_HOST "
        "--rdzv-backend=c10d --rdzv-endpoint=FIRST_HOST:29400 --rdzv-id=job "
        f"-m recsim_train run {experiment}",
    ]
