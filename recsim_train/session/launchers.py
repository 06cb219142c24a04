"""Start files for schedulers: text, from templates. No scheduler is a dependency."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from recsim_train.config.dump import dump_cluster, dump_yaml, resolved
from recsim_train.config.errors import UserError
from recsim_train.placement.hosts import hosts_of
from recsim_train.placement.plan import Instance
from recsim_train.results.folder import put, writable
from recsim_train.session.job import Job
from recsim_train.session.prepare import from_anywhere
from recsim_train.session.study import Study
from recsim_train.sim.host.memory import memory_of_all

Scheduler = Literal["slurm", "kubernetes", "skypilot", "ssh"]
SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)
EXPERIMENT, PROFILE = "experiment.yaml", "cluster.yaml"
FILES: Mapping[Scheduler, Mapping[str, str]] = {
    "slurm": {"run.sbatch": "slurm.sh.j2", "calibrate.sbatch": "slurm-calibrate.sh.j2"},
    "kubernetes": {"job.yaml": "kubernetes.yaml.j2", "Containerfile": "Containerfile.j2"},
    "skypilot": {"task.yaml": "skypilot.yaml.j2"},
    "ssh": {"run.sh": "ssh.sh.j2"},
}
"""What is written, and from which template."""
NOTICE = 60
"""Seconds that ranks get to end: a last checkpoint takes 25 at most."""
RESTARTS = 20
_SPARE = 1.2
"""Memory that is asked for, over what is expected."""


def write(study: Study, scheduler: Scheduler, folder: Path, minutes: int) -> list[Path]:
    """Write a job's start files, its experiment and its profile to a folder; which they are.

    ``minutes``: that it may take. Raises UserError for more than one run, for hosts that the
    profile has not, and for files that are there.
    """
    jobs = study.jobs("real", dry=True)
    if len(jobs) != 1:
        raise UserError(
            f"a start file is for one run, and this asks for {len(jobs)}: choose by --set, such as "
            "--set strategy=allreduce"
        )
    (job,) = jobs
    module = job.plan.experiment.model.module
    if module is not None and ".py:" in module and scheduler in ("kubernetes", "skypilot"):
        raise UserError(
            f"{scheduler} starts elsewhere, where {module} is not: install it as a package there, "
            "and name it in model.module as PACKAGE.MODULE:FUNCTION"
        )
    known = _known(job, scheduler, minutes)
    files = {EXPERIMENT: str(known["text"])}
    if known["profile"]:
        files[PROFILE] = known["profile"]
    for name, template in FILES[scheduler].items():
        files[name] = _rendered(template, known | {"file": name})
    if there := next((name for name in files if (folder / name).exists()), None):
        raise UserError(f"{folder / there} exists already: nothing was written")
    writable(folder)
    for name, text in files.items():
        put(folder / name, text.encode())
    return [folder / name for name in files]


def _known(job: Job, scheduler: Scheduler, minutes: int) -> dict[str, Any]:
    """What templates are told."""
    plan, spec = job.plan, job.plan.experiment
    hosts: list[Sequence[Instance]] = [plan.instances]
    own = from_anywhere(spec, spec.cluster if job.cluster is None else PROFILE)
    if job.cluster is not None:
        hosts = [host.instances for host in hosts_of(plan.instances, job.cluster)]
    uses = memory_of_all(plan, [(instance, 0.0) for instance in plan.instances])
    needed = {use.instance: _SPARE * use.needed for use in uses}
    each = [sum(needed[i] for i in host) for host in hosts]
    ranks = [f"{plan.rank(i)} {i.name}" for i in plan.instances]
    folder = "/settings/" if scheduler == "kubernetes" else ""
    command = f"recsim-train run {folder}{EXPERIMENT} --out runs --resume"
    # a name that shells, YAML and Kubernetes take: it begins with a letter and has 50 at most
    cleaned = re.sub("[^a-z0-9]+", "-", f"{spec.name}-{plan.strategy.kind}".lower())
    name = re.sub("^[^a-z]+", "", cleaned)[:50].strip("-") or plan.strategy.kind.replace("_", "-")
    return {
        "name": name,
        "title": f"{name}: {len(ranks)} ranks on {len(hosts)} hosts",
        "most": max(map(len, hosts)),
        "layout": [
            f"host {number}: rank " + ", ".join(ranks[plan.rank(i)] for i in host)
            for number, host in enumerate(hosts)
        ],
        "hosts": hosts,
        "ranks": len(ranks),
        "cores": spec.training.threads,
        "node_cores": max(map(len, hosts)) * spec.training.threads,
        "memory": int(max(needed.values()) / 2**20) + 1,
        "node_memory": max(1, int(max(each) / 2**30) + 1),
        "minutes": minutes,
        "notice": NOTICE,
        "restarts": RESTARTS,
        "experiment": EXPERIMENT,
        "command": command,
        "command_module": command.replace("recsim-train", "recsim_train", 1),
        "text": dump_yaml(resolved(own)),
        "profile": "" if job.cluster is None else dump_cluster(job.cluster),
    }


def _rendered(template: str, known: Mapping[str, Any]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("recsim_train.session", "start"),
        autoescape=False,  # of shell and YAML: nothing of a user's is filled in uncleaned
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(known)
