"""Folders of the first designs: what simulates each, and what runs it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from recsim_train.config.dump import dump_cluster, dump_yaml, resolved
from recsim_train.designs.searching import Design
from recsim_train.placement.hosts import hosts_of
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
    """By name. The folder works where it is put: its profile is named as it lies beside the
    experiment, and data as from anywhere on this machine."""
    job = design.candidate.job
    spec, data = job.plan.experiment, job.plan.experiment.data
    given = {"path": data.path, "eval_path": data.eval_path}
    paths = {
        key: names and tuple(str(Path(name).absolute()) for name in names)
        for key, names in given.items()
    }
    own = {f"data.{key}": value for key, value in paths.items()}
    moved = spec.with_({"cluster": PROFILE, **own})
    return {
        EXPERIMENT: dump_yaml(resolved(moved)),
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
