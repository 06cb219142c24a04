"""Points of a sweep, or designs, one by one in a pool of processes or one after the other."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.placement.plan import Plan
from recsim_train.report.caveats import of_prediction
from recsim_train.results.row import COMPLETE, DOES_NOT_FIT, FAILED, row_of
from recsim_train.results.rundir import RunRecord, clear, manifest_of
from recsim_train.results.summary import summarise
from recsim_train.session.making import Keep, Simulator
from recsim_train.signals import die_with_parent
from recsim_train.trace.progress import Meter, unseen


@dataclass(frozen=True, slots=True)
class Task:
    """One point and one strategy of it."""

    number: int
    plan: Plan
    cluster: Cluster


Finished = tuple[int, dict[str, Any]]
"""A task's number and its figures, see `recsim_train.results.row.row_of`."""


def simulate_point(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """One point's figures; one that fails or does not fit says so in its row."""
    start = time.perf_counter()
    plan = task.plan
    try:
        outcome = simulator.simulate(plan, task.cluster)
        record = None if keep is None else keep.write(plan, "simulated", task.cluster, outcome)
    except (UserError, RunFailed) as error:
        status = DOES_NOT_FIT if isinstance(error, UserError) else FAILED
        row = row_of(plan, task.cluster, None, status, str(error))
    else:
        summary = summarise(plan, outcome=outcome, world="simulated", status=COMPLETE)
        described = RunRecord(Path(), manifest_of(plan, "simulated", task.cluster, ""), {}, summary)
        row = row_of(plan, task.cluster, summary, COMPLETE, notes=of_prediction(described))
        row["run_id"] = None if record is None else record.run_id
    row["wall_seconds"] = round(time.perf_counter() - start, 4)
    return task.number, row


Work = Callable[[Task, Simulator, Keep | None], Finished]
"""What is done with a task; a function of a module, since other processes look it up there."""


def each(
    work: Work,
    tasks: Sequence[Task],
    jobs: int,
    keep: Keep | None = None,
    *,
    meter: Meter = unseen,
    limit: float | None = None,
) -> Generator[Finished, None, None]:
    """What ``work`` makes of the tasks as they are finished, from at most ``jobs`` processes.

    It does not depend on ``jobs``. ``meter``: is told of what comes before the first. ``limit``:
    CPU seconds that a task may take, whatever else the machine does, beyond which it fails; not
    kept where this is not a process's first thread. Closing the iterator ends the processes. Raises
    RunFailed if one of them dies.
    """
    from recsim_train.sim.ready import get_ready

    get_ready(meter)  # here, before several processes would do it side by side
    if jobs <= 1 or len(tasks) <= 1:
        simulator = Simulator()
        for task in tasks:
            yield _in_time(work, task, simulator, keep, limit)
        return
    # A fresh interpreter: a fork of one with threads may hang, and has all of its memory.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=context, initializer=_start, initargs=(work, keep, limit)
    )
    try:
        with _interrupts_blocked():  # as the new processes begin: they inherit it
            waiting = {pool.submit(_do, task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise RunFailed(
            "a process of the sweep died (is there enough memory for --jobs of them?); what is "
            "finished is kept, --resume goes on"
        ) from None
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        if keep is not None:
            clear(keep.out)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C is for this process, which ends the others; one that comes meanwhile is not lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TooLongError(BaseException):
    """A task took more than it may: nothing on the way takes that for a failure of its own."""


@contextlib.contextmanager
def _within(limit: float | None) -> Iterator[None]:
    """Raises TooLongError inside once this process has had so many seconds of CPU."""
    if limit is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: object) -> None:
        raise TooLongError(f"took more than {limit:g} s of CPU")

    before = signal.signal(signal.SIGPROF, end)
    # again and again: what is raised while something is deleted is lost
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _in_time(
    work: Work, task: Task, simulator: Simulator, keep: Keep | None, limit: float | None
) -> Finished:
    try:
        with _within(limit):
            return work(task, simulator, keep)
    except TooLongError as error:
        row = row_of(task.plan, task.cluster, None, FAILED, str(error))
        return task.number, {**row, "too_long": True}


_own: tuple[Work, Simulator, Keep | None, float | None] | None = None
"""Of a process of the pool."""


def _start(work: Work, keep: Keep | None, limit: float | None) -> None:
    global _own  # noqa: PLW0603 - a pool's initializer has no other place for state
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    die_with_parent(parent.pid)
    _own = work, Simulator(), keep, limit


def _do(task: Task) -> Finished:
    assert _own is not None
    work, simulator, keep, limit = _own
    return _in_time(work, task, simulator, keep, limit)
