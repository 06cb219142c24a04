"""The six calls that every command, notebook and benchmark stands on.

`load` reads and checks an experiment, `predict` simulates it, `measure` runs it for real,
`compare` puts both side by side, `recommend` finds a design, `calibrate` measures this machine.
Nothing is printed: what is worth saying meanwhile goes to a `Caller`, everything else is in what
they return. Bad input raises `recsim_train.config.errors.UserError` before anything starts; what
goes wrong in the middle raises `recsim_train.config.errors.RunFailed`, and what was finished is
kept.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.calls.answers import Profile, Run, Runs, run_of, runs_of
from recsim_train.config.errors import UserError
from recsim_train.results.folder import RUNS, writable
from recsim_train.results.rundir import Keep
from recsim_train.session.job import NOBODY, Caller
from recsim_train.session.study import Study, read
from recsim_train.trace.progress import Meter

if TYPE_CHECKING:
    from recsim_train.designs.making import Recommendation
    from recsim_train.designs.wanted import By
    from recsim_train.report.write import Report

__all__ = [
    "Caller",
    "Meter",
    "Profile",
    "Run",
    "Runs",
    "Study",
    "calibrate",
    "compare",
    "load",
    "measure",
    "predict",
    "recommend",
]


def load(
    experiment: str | Path | Mapping[str, Any],
    cluster: str | Path | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
) -> Study:
    """Read an experiment and check it: a YAML file, or a mapping of the same keys and values.

    ``cluster``: a cluster profile, by name or file, instead of the one that the experiment names.
    ``overrides``: ``KEY=VALUE`` as ``--set`` takes them (`recsim-train show settings`); a list of
    values makes a sweep, ``cluster.KEY=VALUE`` changes the profile. ``seed``: instead of the
    file's. Raises UserError with everything that is wrong, each with its line.

    >>> import recsim_train
    >>> study = recsim_train.load(
    ...     "experiments/quickstart.yaml",
    ...     cluster="reference-2core",
    ...     overrides=["model=tiny", "data.path=null", "training.steps=20"],
    ... )
    >>> study.experiment.roles.trainers
    2
    >>> [instance.name for instance in study.plans[0].instances]
    ['trainer[0]', 'trainer[1]', 'embedding_server[0]', 'embedding_server[1]', 'dense_server[0]']
    """
    named = None if cluster is None else str(cluster)
    source = Path(experiment) if isinstance(experiment, str | Path) else experiment
    return read(source, named, overrides, seed)


def predict(
    study: Study,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    processes: int = 1,
    what_if: bool = True,
    caller: Caller = NOBODY,
) -> Runs:
    """Simulate every run of a study: each strategy, each point of a sweep.

    Equal inputs give equal figures. ``out``: where run directories go (a sweep leaves one table
    there); None: a temporary folder that ends with this process. ``resume``: what lies there
    complete is not made again. ``processes``: how many simulate the points of a sweep.
    ``what_if``: ask what would change a prediction, and how far calibration's errors carry, by
    short runs more, as ``simulation.what_if_steps`` says or else as is usual. A ``cluster`` that is
    `local` and was never measured is measured first, which takes several minutes.

    Raises UserError where something does not fit into memory or is wrong with the data, RunFailed
    where a simulated job fails; a sweep's points say so in their ``status`` instead.

    >>> import recsim_train
    >>> small = ["model=tiny", "data.path=null", "training.steps=20", "roles.dense_servers=0"]
    >>> study = recsim_train.load(
    ...     "experiments/quickstart.yaml",
    ...     cluster="paper-20core-25gbit",
    ...     overrides=[*small, "strategy=[flat_ps, allreduce]", "roles.trainers=[2, 4]"],
    ... )
    >>> runs = recsim_train.predict(study)
    >>> [(run.strategy, run.settings["roles.trainers"]) for run in runs]
    [('flat_ps', 2), ('allreduce', 2), ('flat_ps', 4), ('allreduce', 4)]
    >>> all(run.examples_per_second < run.bound for run in runs)
    True
    >>> runs.to_frame()["strategy"].tolist()
    ['flat_ps', 'allreduce', 'flat_ps', 'allreduce']
    """
    from recsim_train.session import making, prepare
    from recsim_train.sweep import folder as sweeping

    keep = Keep(_folder(out), resume, command=caller.command)
    jobs = study.jobs(what_if=what_if, caller=caller)
    refused = prepare.too_large(jobs, some_may=study.swept, caller=caller)
    writable(keep.out)
    prepare.ensure_all_data([j for n, j in enumerate(jobs) if n not in refused], caller)
    if study.swept:
        caveats = sweeping.caveats_of(jobs)
        for sentence in caveats:
            caller.say(f"note: {sentence}")
        return runs_of(sweeping.simulate_all(jobs, refused, keep, processes, caller), caveats)
    return Runs(tuple(run_of(job, record) for job, record in making.records(jobs, keep, caller)))


def measure(
    study: Study,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    emulate: bool = False,
    caller: Caller = NOBODY,
) -> Runs:
    """Train for real: every role a process of this machine, torch.distributed over gloo.

    ``emulate``: each on an emulated host of the study's cluster, with a link of that host's rate;
    with ``execution.compute=modelled`` operations take what a prediction says of that host.

    Strategies and points of a sweep follow each other. Under torchrun this process is one rank; all
    but rank 0 get no runs back. ``out``, ``resume``: as in `predict`, but a measurement is never
    overwritten: a second one of the same settings gets "-2" behind its name.

    Raises UserError where the machine has too little memory or something is wrong with the data,
    RunFailed where a role fails or dies; what was measured until then is kept in ``out``. A model
    that diverged is no failure here: its run's ``status`` says so, and its ``auc`` is None.

    >>> import recsim_train
    >>> alone = ["roles.trainers=1", "roles.embedding_servers=0", "roles.dense_servers=0"]
    >>> study = recsim_train.load(
    ...     "experiments/quickstart.yaml",
    ...     overrides=["model=tiny", "data.path=null", "training.steps=20", *alone],
    ... )
    >>> (run,) = recsim_train.measure(study)
    >>> run.examples_per_second > 0, 0 < run.auc < 1
    (True, True)
    """
    from recsim_train.executor.link.rendezvous import read_rank, under_torchrun
    from recsim_train.executor.process import forkserver
    from recsim_train.executor.process.torchrun import reads_here, refusals_told
    from recsim_train.session import making, prepare

    if not under_torchrun():
        forkserver.ready()  # it imports torch meanwhile
    jobs = study.jobs("real", caller=caller)
    prepare.check_emulated(jobs, emulate=emulate)
    not_real = () if emulate else (prepare.not_real(job.cluster) for job in jobs)
    for sentence in dict.fromkeys(filter(None, (*not_real, *map(prepare.not_resumed, jobs)))):
        caller.say(f"note: {sentence}")
    plans = [job.plan for job in jobs]
    if under_torchrun():
        with refusals_told():
            if read_rank().rank == 0:
                writable(_folder(out))
            prepare.check_one_size(plans)
            prepare.ensure_all_data([job for job in jobs if reads_here(job.plan)], caller)
    else:
        prepare.check_this_machine(plans)
        if emulate:
            prepare.not_carried(jobs, some_may=False, caller=caller)
        prepare.ensure_all_data(jobs, caller)
    keep = Keep(_folder(out), resume, emulate, caller.command)
    return Runs(tuple(run_of(job, record) for job, record in making.records(jobs, keep, caller)))


def compare(
    *runs: Runs | Run | str | Path,
    out: str | Path | None = None,
    measured: str | Path | None = None,
) -> Report:
    """Pair predictions with measurements: how far they are apart, and why; or look at a sweep.

    ``runs``: what `predict` and `measure` gave back, run directories, or folders that hold some.
    One sweep, alone: throughput over its settings, the best points and what binds where. ``out``:
    where a report is written: one HTML page, summary.json, summary.md, figures and timelines;
    None: nowhere. ``measured``: a CSV file of measurements that were made elsewhere, which go
    beside the predictions of their settings. Raises UserError for a path that is no run or damaged,
    a bad cell of that file, or a sweep beside others.

    >>> import recsim_train
    >>> alone = ["roles.trainers=1", "roles.embedding_servers=0", "roles.dense_servers=0"]
    >>> study = recsim_train.load(
    ...     "experiments/quickstart.yaml",
    ...     cluster="reference-2core",
    ...     overrides=["model=tiny", "data.path=null", "training.steps=20", *alone],
    ... )
    >>> report = recsim_train.compare(recsim_train.predict(study), recsim_train.measure(study))
    >>> (pair,) = report.findings.comparisons
    >>> pair.signed_error == pair.predicted_eps / pair.measured_eps - 1
    True
    >>> report.to_frame()["label"].tolist()
    ['flat_ps']
    """
    from recsim_train.report.runs import find_sweep
    from recsim_train.report.write import report_on
    from recsim_train.sweep.page import report_on_sweep

    paths: list[Path] = []
    for item in runs:
        if isinstance(item, Runs) and item.sweep is not None and len(runs) == 1:
            paths.append(item.sweep.path)
        else:
            several = item.runs if isinstance(item, Runs) else (item,)
            paths += [one.folder if isinstance(one, Run) else Path(one) for one in several]
    folder, file = (None if path is None else Path(path) for path in (out, measured))
    if (place := find_sweep(paths)) is None:
        return report_on(paths, folder, file)
    if file is None:
        return report_on_sweep(place, folder)
    raise UserError(
        f"{file}: measurements are put beside runs, and {place} is a sweep; with "
        f"sweep.keep_runs=true its runs lie in {place / RUNS}"
    )


def recommend(
    study: Study,
    *,
    target: float | None = None,
    hosts: int | None = None,
    budget: str | None = None,
    by: By | None = None,
    likely: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    measure: int = 0,
    processes: int = 1,
    caller: Caller = NOBODY,
) -> Recommendation:
    """Find the design of a job that answers best: its strategy, and how hosts are divided.

    Designs are those of the experiment's ``search``, or all strategies and usual divisions of the
    hosts; a step of the job has the examples of the experiment as written, which a design's loops
    share. ``target``: examples per second at least, by the lower end of a design's 90 % interval
    (``likely``: by the prediction itself). ``hosts``: at most so many. ``budget``: money at most
    in the profile's currency, such as "50 USD/h". ``by``: the least "cost" per hour or the fewest
    "hosts" that reach the target, or "throughput"; without a target cost per example, or examples
    per second of a host; None: with a target cost, or hosts where they have no price, else
    throughput. ``out``: where a page and folders of the first designs go; None: nowhere.
    ``resume``: what an interrupted search left there is not done again. ``measure``: as many of the
    first designs are run on emulated hosts, with modelled compute. ``processes``: how many
    simulate.

    Equal inputs give equal answers. Raises UserError where there is no design, or none fits, and
    where money is asked for and a host has no price.

    >>> import recsim_train
    >>> small = ["model=tiny", "data.path=null", "training.steps=20", "search.threads=[2]"]
    >>> few = ["search.embedding_hosts=[1]", "search.trainers_per_host=[1]", "search.hosts=[2, 3]"]
    >>> study = recsim_train.load(
    ...     "experiments/quickstart.yaml",
    ...     cluster="paper-20core-25gbit",
    ...     overrides=[*small, *few, "strategy=allreduce", "search.strategies=false"],
    ... )
    >>> made = recsim_train.recommend(study, target=10_000, hosts=3)
    >>> made.met, made.answer.chosen.candidate.hosts <= 3
    (True, True)
    """
    from recsim_train.designs import making

    return making.recommend(
        study,
        target=target,
        hosts=hosts,
        budget=budget,
        by=by,
        likely=likely,
        out=None if out is None else Path(out),
        resume=resume,
        runs=measure,
        processes=processes,
        caller=caller,
    )


def calibrate(
    path: str | Path = "cluster_profiles/local.yaml",
    *,
    experiments: Sequence[str | Path] = (),
    add: bool = False,
    emulate: str | Path | None = None,
    quick: bool = False,
    caller: Caller = NOBODY,
) -> Profile:
    """Measure this machine on micro-workloads and on runs of calibration's own programs, in several
    minutes; write its profile.

    ``path``: the profile, which an experiment then names by its stem. ``experiments``: their
    operations are measured too, each at the shapes that these files give it (half a minute for
    each strategy of a file, or less where there are many); ``add``: only these, into the profile
    that ``path`` is already. ``emulate``: a profile whose emulated hosts' links are measured
    instead: how fast they are, and what their messages take; what is written extends it. ``quick``:
    less of everything, in a fifth of the time at most, with wider uncertainties. Raises UserError
    where the folder cannot be written to, an experiment is wrong or hosts cannot be emulated,
    RunFailed where a measuring process fails; a profile that was there stays as it was.

    >>> import recsim_train
    >>> profile = recsim_train.calibrate("cluster_profiles/local.yaml")
    >>> bool(profile.to_frame().loc["gemm_flop", "seconds"] < 1e-6)
    True
    >>> recsim_train.load("experiments/quickstart.yaml").experiment.cluster
    'local'
    """
    from recsim_train.session import prepare, profile

    target = Path(path)
    if emulate is not None:
        if experiments or add or quick:
            raise UserError(
                "--emulate measures links alone, and takes half a minute as it is: give no "
                "experiments (--for, --into) and no --quick beside it"
            )
        return Profile(profile.measure_links_of(str(emulate), target, caller), target)
    if add:
        target = profile.existing(target)
    jobs = [job for file in experiments for job in load(file).jobs("real")]
    prepare.check_this_machine([job.plan for job in jobs])
    prepare.ensure_all_data(jobs, caller)
    cluster = profile.measure_machine(target, caller, quick=quick, jobs=jobs, add=add)
    return Profile(cluster, target)


def _folder(out: str | Path | None) -> Path:
    return _temporary() if out is None else Path(out)


@functools.cache
def _temporary() -> Path:
    """A folder that is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="recsim-train-runs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
