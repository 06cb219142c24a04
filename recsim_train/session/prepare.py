"""What must be there before a run: the profile of a cluster, the data file, enough memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Experiment
from recsim_train.config.load import Loaded
from recsim_train.config.profiles import PROFILES, find_cluster, load_cluster
from recsim_train.executor.emulation import capacity
from recsim_train.executor.emulation.cluster import check_here
from recsim_train.executor.emulation.layout import layout_of
from recsim_train.executor.link.rendezvous import under_torchrun
from recsim_train.placement.plan import Instance, Plan
from recsim_train.results.folder import turn, writable
from recsim_train.results.rundir import World
from recsim_train.session.job import Caller, Job, this_machine
from recsim_train.trace.facts import beyond_said

LOCAL = Path(PROFILES) / "local.yaml"
"""Where the profile of this machine lies, under the current folder."""


@dataclass(slots=True)
class Profiles:
    """The cluster profiles of a study's points, each read once."""

    name: str | None
    """Instead of what the experiments name."""
    world: World
    dry: bool
    """Nothing is measured: where this machine's profile is missing, there is none."""
    caller: Caller
    read: dict[str, Cluster | None] = field(default_factory=dict)

    def of(self, loaded: Loaded) -> Cluster | None:
        """The profile of a point; a measurement does not need one. Raises UserError."""
        wanted = self.name or loaded.experiment.cluster
        beside = loaded.path.parent / wanted
        if self.name is None and beside.suffix in (".yaml", ".yml") and beside.is_file():
            wanted = str(beside)  # wherever the experiment's folder is put
        key = f"{wanted} {loaded.profile_sets!r}"
        if key not in self.read:
            self.read[key] = self._found(wanted, loaded)
        return self.read[key]

    def _found(self, wanted: str, loaded: Loaded) -> Cluster | None:
        if find_cluster(wanted, loaded.path) is None:
            if self.world == "real" and self.name is None:
                return None
            if self.world == "simulated" and wanted == "local":
                if self.dry:
                    return None
                self.caller.say(
                    f"no profile of this machine at {LOCAL}: measuring it now, once, which takes "
                    "several minutes"
                )
                from recsim_train.session.profile import measure_machine

                measure_machine(LOCAL, self.caller)
        return load_cluster(wanted, loaded.path, loaded.profile_sets)


def from_anywhere(spec: Experiment, cluster: str) -> Experiment:
    """An experiment for a folder of its own: data as from anywhere on this machine, its profile as
    it lies beside it."""
    given = {"path": spec.data.path, "eval_path": spec.data.eval_path}
    paths = {
        f"data.{key}": names and tuple(str(Path(name).absolute()) for name in names)
        for key, names in given.items()
    }
    return spec.with_({"cluster": cluster, **paths})


def not_real(profile: Cluster | None) -> str | None:
    """A sentence where a profile describes what a measurement does not have."""
    if profile is None:
        return None
    described = {
        "racks": profile.topology,
        "hosts that differ": profile.mixed,
        "stragglers": profile.stragglers,
        "traffic of others": profile.background,
        "failures": profile.failures,
    }
    if not (given := [name for name, value in described.items() if value]):
        return None
    return (
        f"cluster profile {profile.name} describes {', '.join(given)}; only `simulate` takes "
        "that into account: this measures the machines as they are"
    )


def not_resumed(job: Job) -> str | None:
    """A sentence where a measurement does not do what is to be done when a process dies."""
    if job.plan.experiment.recovery.policy != "continue_without":
        return None
    return (
        "recovery.policy continue_without is simulated only: this run stops when one of its "
        "processes dies"
    )


def check_emulated(jobs: Sequence[Job], *, emulate: bool) -> None:
    """Raise UserError for what cannot be emulated, before anything is started."""
    if not emulate:
        if any(job.plan.experiment.execution.compute == "modelled" for job in jobs):
            raise UserError(
                "execution.compute: modelled: operations take what a prediction says on emulated "
                "hosts only: add --emulate"
            )
        return

    if under_torchrun():
        raise UserError("--emulate starts all roles itself: leave torchrun out")
    for job in jobs:
        if job.cluster is None:
            raise UserError(
                f"--emulate needs a cluster profile, and there is none called "
                f"{job.loaded.experiment.cluster!r}: name one with --cluster"
            )
        layout_of(job.plan, job.cluster)


def can_emulate() -> None:
    """Raise UserError where hosts cannot be emulated."""
    check_here()


def not_carried(jobs: Sequence[Job], *, some_may: bool, caller: Caller) -> dict[int, str]:
    """Which emulated clusters have faster links than this machine carries, as a sentence by the
    job's number.

    Raises UserError where it emulates nothing, or carries none, and unless ``some_may`` where there
    is one that it does not.
    """
    check_here({layout_of(job.plan, job.profile).hosts[0].link.queue for job in jobs})
    if (carries := capacity.measured_here()) is None:
        caller.say(
            "note: others use the cores, so that it is not known whether emulated hosts carry "
            "these rates here"
        )
        return {}

    some = "clusters have faster links than this machine carries, and are not measured"
    return _refused(
        jobs,
        lambda job: capacity.check_carried(layout_of(job.plan, job.profile), carries),
        some if some_may else None,
        "this machine carries none of these clusters",
        caller,
    )


def too_large(jobs: Sequence[Job], *, some_may: bool, caller: Caller) -> dict[int, str]:
    """What does not fit into the hosts, or their memory, as a sentence by the job's number.

    Raises UserError where nothing fits, and unless ``some_may`` where anything does not.
    """
    from recsim_train.sim.host.memory_check import check_memory

    some = "points do not fit into the hosts, as their rows say"
    return _refused(
        jobs,
        lambda job: check_memory(job.plan, job.profile),
        some if some_may else None,
        "no point fits into the hosts",
        caller,
    )


def _refused(
    jobs: Sequence[Job],
    check: Callable[[Job], object],
    some: str | None,
    none: str,
    caller: Caller,
) -> dict[int, str]:
    """What a check says of the jobs that do not pass it, by number. ``some``: what is told of these
    where others pass; None: the first one ends it. ``none``: what is raised where none passes."""
    refused: dict[int, str] = {}
    for number, job in enumerate(jobs):
        try:
            check(job)
        except UserError as error:
            if some is None:
                raise
            refused[number] = str(error)
    if refused:
        first = next(iter(refused.values()))
        if len(refused) == len(jobs):
            raise UserError(f"{none}; the first: {first}")
        caller.say(f"note: {len(refused)} of {len(jobs)} {some}; the first: {first}")
    return refused


def check_this_machine(plans: Iterable[Plan], here: Sequence[Instance] | None = None) -> None:
    """Raise UserError for a plan whose processes, or those that are ``here``, do not fit into this
    machine's memory."""
    from recsim_train.sim.host.memory_check import check_machine

    host = this_machine()
    for plan in plans:
        check_machine(plan, host, here)


def check_one_size(plans: Sequence[Plan]) -> None:
    """Raise UserError where the plans need different numbers of torchrun's ranks."""
    if len(sizes := sorted({len(plan.instances) for plan in plans})) > 1:
        raise UserError(
            f"the strategies or points need different numbers of processes ({sizes[0]} to "
            f"{sizes[-1]}): under torchrun, start each of them by itself with --set"
        )


_MOST_SOURCES = 3
"""Of the jobs of a sweep, which are said; of more it is their number."""


def sources(jobs: Sequence[Job]) -> list[str]:
    """Where the jobs' training and held-out rows come from, each way once."""
    said = list(dict.fromkeys(job.loaded.experiment.data.said for job in jobs))
    more = len(said) - _MOST_SOURCES
    return said if more <= 0 else [*said[:_MOST_SOURCES], f"{more} more ways in the sweep's points"]


def ensure_all_data(jobs: Sequence[Job], caller: Caller) -> None:
    """The data files of these jobs, each once, and what they are: see `ensure_data`."""
    from recsim_train.data.counts import depends_on_data

    for said in sources(jobs):
        caller.say(f"data: {said}")
    needed: dict[object, bool] = {}
    own: dict[object, Loaded] = {}
    for job in jobs:
        spec = job.loaded.experiment
        key = spec.model, spec.data
        own.setdefault(key, job.loaded)
        needed[key] = needed.get(key, False) or job.world == "real" or depends_on_data(job.plan)
    for place, loaded in own.items():
        if needed[place] or loaded.sweep is None:
            ensure_data(loaded, caller, make=needed[place])
    for data in dict.fromkeys(job.loaded.experiment.data for job in jobs if job.world == "real"):
        convert_data(data, caller)


def ensure_data(loaded: Loaded, caller: Caller, *, make: bool = True) -> None:
    """Make the experiment's own data file if it asks for that, convert text, and check the files.

    Raises UserError. What is to be made yet is neither made nor checked unless ``make``; text is
    looked at then as it is.
    """
    from recsim_train.data.stream import check_data

    spec = loaded.experiment
    data = spec.data
    if data.path is None:
        return
    path = Path(data.path[0])
    if data.generate and not path.exists():
        if not make:
            return
        with turn(path, lambda: caller.say(f"another process is making {path}: waiting for it")):
            if not path.exists():
                rows = data.synthetic.rows
                caller.say(f"{path} does not exist yet: writing {rows:,} rows with the generator")
                generate(spec, path, rows, caller)
    for said in beyond_said(check_data(spec.model, data)):
        caller.say(f"note: at the beginning of {data.named(data.path)}: {said}")


def convert_data(data: Data, caller: Caller) -> None:
    """Make of text, and of Parquet files with large row groups, what is read of them in a run; once
    on a machine, while others wait. Raises UserError and RunFailed."""
    from recsim_train.data import convert
    from recsim_train.data.input import to_convert

    for path, text, target in to_convert(data):
        waiting = f"another process is converting {path}: waiting for it"
        writable(target.parent)
        with turn(target, lambda said=waiting: caller.say(said)):  # type: ignore[misc]
            if convert.is_fresh(path, target):
                continue
            convert.check_space(path, target)
            caller.say(f"{path} is converted to Parquet once: {target}")
            with caller.progress(f"converting {path}") as progress:
                if text is None:
                    convert.rewrite(path, target, progress)
                else:
                    convert.convert_text(text, target, progress)


def generate(experiment: Experiment, target: Path, rows: int, caller: Caller) -> None:
    """Write a data file, of the format that its name says, with the generator."""
    from recsim_train.data.generated import write_generated

    writable(target.parent)
    with caller.progress(f"writing {target}") as progress:
        write_generated(target, experiment.model, experiment.data.synthetic, rows, progress)
