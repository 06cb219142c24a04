"""The maker of runs: the one place that measures, resumes and writes; what is told of a prediction
meanwhile, its bound first, then its headline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recsim_train.checkpoints.going_on import NONE_KEPT, Keeping, clear_after, keeping_of
from recsim_train.checkpoints.manifest import check_space
from recsim_train.config.errors import RunFailed
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.data.malformed import beyond
from recsim_train.evaluate.evaluator import Simulator
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import layout_of
from recsim_train.executor.link.rendezvous import read_rank, under_torchrun
from recsim_train.executor.process import launch
from recsim_train.executor.process.launch import Interrupted, PartialRun
from recsim_train.placement.plan import Plan
from recsim_train.report import naming, text
from recsim_train.report.caveats import elsewhere, of_prediction
from recsim_train.report.runs import title
from recsim_train.results.environment import machine
from recsim_train.results.folder import writable
from recsim_train.results.rundir import Keep, RunRecord, Status, base_name, find_complete
from recsim_train.session.job import NOBODY, Caller, Job
from recsim_train.session.lives import Lives
from recsim_train.session.prepare import check_this_machine
from recsim_train.signals import held, note_finished
from recsim_train.sim.host.memory import checkpoint_bytes
from recsim_train.trace.progress import about, between
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import ProcessTimes

if TYPE_CHECKING:
    from recsim_train.evaluate.asymptotic import AsymptoticBounds


def records(jobs: Sequence[Job], keep: Keep, caller: Caller) -> Iterator[tuple[Job, RunRecord]]:
    """Every job with its run, one made after the other, without those another rank writes."""
    maker = RunMaker(keep, caller)
    for job in jobs:
        if (record := maker.record(job)) is not None:
            yield job, record


def caveats_here(record: RunRecord) -> list[str]:
    """All that must be known of a prediction which somebody at this machine asks for."""
    cluster = record.manifest.get("cluster") or {}
    return [*elsewhere(cluster, machine()), *of_prediction(record)]


class RunMaker:
    """Makes one run after the other."""

    def __init__(self, keep: Keep, caller: Caller) -> None:
        self._keep = keep
        self._caller = caller
        self._simulator = Simulator()

    def record(self, job: Job) -> RunRecord | None:
        """A job's run, made unless it is there; None where another rank of torchrun writes it.

        Raises RunFailed, and UserError for what only shows when it is made.
        """
        record = None
        if self._keep.resume:
            emulated = self._keep.emulate and job.world == "real"
            record = find_complete(
                self._keep.out,
                job.plan,
                job.world,
                job.cluster,
                emulated=emulated,
                say=self._caller.say,
            )
        if record is None and job.world == "real" and job.loaded.sweep is not None:
            self._caller.say(f"{job.plan.strategy.kind}, {job.loaded.point}")
        if job.world == "simulated":
            return record or self._predicted(job)
        return self._as_rank(job, record) if under_torchrun() else record or self._measured(job)

    def _predicted(self, job: Job) -> RunRecord:
        from recsim_train.sim.ready import get_ready

        plan, say = job.plan, self._caller.say
        if self._caller is not NOBODY and (known := job.asymptotic_bounds()) is not None:
            say(before(plan, known))
        with self._caller.progress(f"simulating {plan.strategy.kind}") as progress:
            get_ready(progress)
            outcome = self._simulator.predict(
                job.case, progress, lambda first: say(headline(plan, first))
            )
        record = self._keep.write(job.plan, "simulated", job.cluster, outcome)
        for sentence in caveats_here(record):
            self._caller.say(f"note: {sentence}")
        asked = record.facts.what_if
        if asked is not None:
            self._caller.say(
                f"what-if: {asked.runs} short runs with {asked.cost:.1f} times the events "
                "of the prediction itself (simulation.what_if_steps=0 leaves them out)"
            )
        return record

    def _keeping(self, job: Job, *, writes: bool = True, again: bool = False) -> Keeping:
        """Of a measurement. ``writes``: whether this process writes the run; ``again``: after it
        has failed, where such runs are started again."""
        say = self._caller.say if writes else NOBODY.say
        resume = self._keep.resume or again
        name = base_name(job.plan, "real", job.cluster)
        if writes:
            writable(self._keep.out, name)
        # points of a sweep are apart also where they differ in their numbers of processes alone
        own = None if job.loaded.sweep is None else f"{name}-checkpoints"
        keeping = keeping_of(job.plan, self._keep.out, resume=resume, say=say, name=own)
        if writes:
            clear_after(keeping)
            if keeping.folder is not None:
                check_space(keeping.folder.parent, int(sum(checkpoint_bytes(job.plan).values())))
        return keeping

    def _measured(self, job: Job) -> RunRecord:
        """A run, started again from its last checkpoint as often as its policy says. Raises
        RunFailed."""
        in_vain, keeping, lives = 0, self._keeping(job), Lives(job.plan)
        before, times = self._speed(), self._times(job)
        emulated: AbstractContextManager[EmulatedCluster | None] = nullcontext()
        if self._keep.emulate:
            emulated = EmulatedCluster(layout_of(job.plan, job.profile))
        with emulated as hosts:
            log = partial(self._caller.logged, base_name(job.plan, "real", job.cluster))
            execute = partial(launch.execute, job.plan, hosts=hosts, times=times, log=log)
            while True:
                try:
                    return self._life(job, keeping, lives, execute, before)
                except PartialRun as error:
                    if job.plan.experiment.recovery.policy != "restart":
                        raise
                    said = f"{error}; recovery.policy restart looks for its last checkpoint"
                    self._caller.say(said)
                    lives.failed(keeping.first, error.outcome)
                    began, keeping = keeping.first, self._keeping(job, again=True)
                    in_vain = 0 if keeping.first > began else in_vain + 1
                    if in_vain >= _IN_VAIN:
                        raise

    def _as_rank(self, job: Job, there: RunRecord | None) -> RunRecord | None:
        """As `_measured`, of one rank among others. ``there``: the run, where it has been made."""
        from recsim_train.executor.process.torchrun import execute_rank

        me, policy = read_rank(), job.plan.experiment.recovery.policy
        again = policy == "restart" and me.restart > 0
        keeping = NONE_KEPT
        if there is None:
            keeping = self._keeping(job, writes=me.rank == 0, again=again)
        try:
            whole = execute_rank(
                job.plan,
                lambda plan, here: check_this_machine([plan], here),
                keeping,
                there=there is not None,
            )
        except (PartialRun, Interrupted) as error:
            self._keep_partial(job, error, keeping)
            raise
        if whole is None:
            return there if me.rank == 0 else None
        return self._judged(job, whole, keeping)

    def _life(
        self,
        job: Job,
        keeping: Keeping,
        lives: Lives,
        execute: Callable[..., Outcome],
        before: MachineSpeed | None,
    ) -> RunRecord:
        """A run until it ends, or one of its processes does. ``execute``: does it; ``before``: how
        fast the machine was when the first of its lives began."""
        from recsim_train.executor.process.forkserver import remove_at_the_end

        try:
            with (
                tempfile.TemporaryDirectory(prefix="recsim-train-") as staging,
                self._caller.progress(f"running {job.plan.strategy.kind}") as progress,
            ):
                remove_at_the_end(Path(staging))
                outcome = execute(staging=Path(staging), progress=progress, keeping=keeping)
        except (PartialRun, Interrupted) as error:
            if error.outcome is not None:
                error.outcome.facts.machine_speed = MachineSpeeds(before=before)
            self._keep_partial(job, error, keeping)
            raise
        with held():
            outcome.facts.machine_speed = MachineSpeeds(before=before, after=self._speed())
            outcome.facts.reliability = lives.reliability(keeping.first, outcome)
            return self._judged(job, outcome, keeping)

    def _times(self, job: Job) -> dict[str, ProcessTimes] | None:
        """What operations take on modelled hosts, where those are asked for. Raises UserError."""
        if job.plan.experiment.execution.compute == "real":
            return None
        from recsim_train.evaluate.simulations import times_of

        return times_of(job.case)

    def _judged(self, job: Job, outcome: Outcome, keeping: Keeping) -> RunRecord:
        """Keep a run that came to its end. Raises RunFailed, and keeps it as a partial one, where
        too many of the rows that all of its readers read were malformed."""
        data, facts = job.plan.experiment.data, outcome.facts
        counts, rows = facts.malformed_rows or {}, facts.rows_read or 0
        path = data.named(data.path) if data.path else None
        why = beyond(path, data.malformed_limit, counts, rows, facts.malformed)
        if why is None:
            return self._kept(job, outcome, keeping)
        record = self._kept(job, outcome, keeping, "partial", why)
        self._caller.say(f"what was measured is kept in {record.path}")
        raise RunFailed(why)

    def _keep_partial(self, job: Job, error: PartialRun | Interrupted, keeping: Keeping) -> None:
        """What was measured of a run that ended early, if anything."""
        if error.outcome is None:
            return
        if any(not made.problem for made in error.outcome.facts.checkpoints):
            note_finished()
        if error.outcome.steps == 0:
            return
        status: Status = "interrupted" if isinstance(error, Interrupted) else "partial"
        with held():
            record = self._kept(job, error.outcome, keeping, status, str(error))
        self._caller.say(f"what was measured until then is kept in {record.path}")

    def _speed(self) -> MachineSpeed | None:
        """The machine's at the moment; no run is lost because it cannot be measured."""
        from recsim_train.calibration.speed import measure_speed

        try:
            return measure_speed()
        except RunFailed as error:
            self._caller.say(f"note: how fast the machine is beside the run is not known: {error}")
            return None

    def _kept(
        self,
        job: Job,
        outcome: Outcome,
        keeping: Keeping,
        status: Status = "complete",
        message: str = "",
    ) -> RunRecord:
        """Write a measurement; where that cannot be, somewhere else, because it was dear."""
        outcome.facts.checkpoints_in = keeping.seen_from(self._keep.out)

        def write(keep: Keep) -> RunRecord:
            return keep.write(job.plan, "real", job.cluster, outcome, status, message)

        try:
            return write(self._keep)
        except RunFailed as error:
            spare = replace(self._keep, out=Path(tempfile.mkdtemp(prefix="recsim-train-kept-")))
            saved = write(spare)
            raise RunFailed(f"{error}; the measurement is kept in {saved.path}") from None


_IN_VAIN = 3
"""Starts of a run without a new checkpoint, after which it is given up."""
_SHOWN = 3
"""Bounds."""


def before(plan: Plan, known: AsymptoticBounds) -> str:
    """Before it is simulated."""
    takes = f"simulating {_name(plan)}: takes {_duration(known)}"
    if known.bound is None:
        return takes
    binds = naming.class_words(next(iter(known.bounds)))
    return f"{takes}; at a glance at most about {text.rate(known.bound)} examples/s ({binds})"


def verdicts(known: AsymptoticBounds) -> Iterator[str]:
    """What ``--dry-run`` says of a prediction, the tightest bounds first."""
    bounds = [(text.rate(eps), naming.class_words(name)) for name, eps in known.bounds.items()]
    if bounds:
        (eps, what), *further = bounds[:_SHOWN]
        then = ", ".join(f"{more} ({other})" for more, other in further)
        yield f"binds: {what}, at about {eps} examples/s" + (f"; then {then}" if then else "")
    yield f"simulating it takes {_duration(known)}"


def _duration(known: AsymptoticBounds) -> str:
    asking = f", asking what would change it {about(known.asking)} more" if known.asking else ""
    return between(*known.seconds) + asking


def headline(plan: Plan, outcome: Outcome) -> str:
    """As soon as it stands."""
    speed = outcome.speed
    if speed is None or speed.examples_per_second is None:
        return f"predicted {_name(plan)}: too short for a throughput"
    found, binds = text.rate(speed.examples_per_second), naming.bottleneck(outcome.binding)
    said = f"predicted {_name(plan)}: {found} examples/s, bound by {binds}"
    if outcome.bound_eps:
        said += f"; nothing can beat {text.rate(outcome.bound_eps)}"
    asked = bool(plan.experiment.simulation.what_if_steps)
    return said + (". Its interval follows" if asked else "")


def _name(plan: Plan) -> str:
    return title(plan.strategy.kind, plan.strategy.options)
