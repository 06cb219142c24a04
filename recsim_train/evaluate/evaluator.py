"""The evaluator: cases at a level in, their rows out, one after the other or in a pool of
processes, within limits of CPU time, none of them twice: what was evaluated before is in a file,
from which whatever is interrupted goes on."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.data.counts import IdCounts, counts_for, counts_key
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import BORROWED, FINAL, Level, at, requests_of
from recsim_train.report.caveats import of_prediction
from recsim_train.results.folder import clean, clean_document, put, writing
from recsim_train.results.row import COMPLETE, DOES_NOT_FIT, FAILED, Row, row_from, row_of
from recsim_train.results.rundir import Keep, RunRecord, clear, manifest_of
from recsim_train.results.summary import summarise
from recsim_train.signals import die_with_parent, note_finished
from recsim_train.trace.progress import Meter, unseen
from recsim_train.trace.record import Outcome


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """What a memo's file holds, in the order in which it was found: ``code``, ``case``, ``level``
    and ``row`` of each line; nothing where there is no file. A line that is none is left out: the
    last one of a process that was killed."""
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("row"), dict):
                known = {"code": None, "case": "", "level": "", **entry}
                yield known | {"row": row_from(entry["row"])}


class Memo:
    """Rows by case and level, one on each line of a file; without a file nothing is kept."""

    def __init__(self, path: Path | None = None, code: str = "", *, resume: bool = False) -> None:
        """``resume``: what the file has of this ``code`` is known, but for what failed without
        taking too long, which may be the disk's fault; what it has of other code stays in it.
        Raises RunFailed where it cannot be written."""
        self._path, self._code = path, code
        self._known: dict[tuple[str, str], Row] = {}
        self.others: list[str | None] = []
        """Of each row of other code, which."""
        if path is None:
            return
        kept = list(entries(path)) if resume else []
        for entry in kept:
            row = entry["row"]
            if entry["code"] != code:
                self.others.append(entry["code"])
            elif row.status != FAILED or row.too_long:
                self._known[entry["case"], entry["level"]] = row
        with writing(path):  # so that nothing is added to half a line
            put(path, "".join(map(_line, kept)).encode())

    def __len__(self) -> int:
        return len(self._known)

    def known(self, case: str, level: Level) -> Row | None:
        """A row that was found before. ``case``: its identity."""
        return self._known.get((case, level.name))

    def add(self, case: str, level: Level, row: Row) -> None:
        """Keep a row. Raises RunFailed where the disk does not take it."""
        if self._path is None:
            return
        entry = {"code": self._code, "case": case, "level": level.name, "row": row}
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line(entry))
        note_finished()

    def close(self) -> None:
        """What it was for is done: nothing is left to go on from."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def _line(entry: Mapping[str, Any]) -> str:
    return f"{json.dumps(clean(entry), ensure_ascii=False)}\n"


_REMEMBERED = 8
"""Cases with equal ids per batch mostly follow each other."""


class Simulator:
    """Simulates one case after the other, and remembers what the next ones may share."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Hashable, IdCounts] = OrderedDict()

    def predict(
        self,
        case: Case,
        progress: Meter | None = None,
        first: Callable[[Outcome], object] | None = None,
    ) -> Outcome:
        """See `recsim_train.evaluate.prediction.predict`."""
        from recsim_train.evaluate.prediction import predict

        return predict(case, progress=progress, counts=self._counted(case), first=first)

    def row(self, case: Case, level: Level, keep: Keep | None = None) -> Row:
        """A case's figures at a level; one that fails or does not fit says so in its row."""
        start = time.perf_counter()
        of: dict[str, Callable[[Case, Level, Keep | None], Row]] = {
            "bounds": self._bounds, "rate": self._rate, "prediction": self._prediction,
            "interval": self._interval,
        }  # fmt: skip
        try:
            row = of[level.gives](case, level, keep)
        except (UserError, RunFailed) as error:
            status = DOES_NOT_FIT if isinstance(error, UserError) else FAILED
            row = row_of(case.plan, case.cluster, None, status, str(error))
        return replace(row, wall_seconds=round(time.perf_counter() - start, 4))

    def _bounds(self, case: Case, level: Level, keep: Keep | None) -> Row:
        from recsim_train.evaluate.asymptotic import asymptotic_bounds
        from recsim_train.evaluate.simulations import representatives
        from recsim_train.sim.host.memory_check import check_memory, nearly_full

        plan = case.plan
        # only the large parts are counted, and a design that runs out of memory is none
        for said in nearly_full(check_memory(plan, case.cluster)):
            raise UserError(f"{said}; a tenth of each host's memory is kept in reserve")
        few = representatives(at(case, level)).simulated
        if requests_of(plan) / len(plan.training) * few > level.racks:
            case = case.with_({"cluster.topology": None})
        bounds = clean_document(asymptotic_bounds(case).bounds)
        return replace(row_of(plan, case.cluster, None, COMPLETE), bounds=bounds)

    def _rate(self, case: Case, level: Level, keep: Keep | None) -> Row:
        from recsim_train.evaluate.simulations import briefly

        case = at(case, level)
        outcome = briefly(case, self._counted(case))
        summary = summarise(case.plan, outcome=outcome, world="simulated", status=COMPLETE)
        return row_of(case.plan, case.cluster, summary, COMPLETE)

    def _prediction(self, case: Case, level: Level, keep: Keep | None) -> Row:
        case = at(case, level)
        plan, cluster = case.plan, case.cluster
        outcome = self.predict(case)
        record = None if keep is None else keep.write(plan, "simulated", cluster, outcome)
        summary = summarise(plan, outcome=outcome, world="simulated", status=COMPLETE)
        described = RunRecord(Path(), manifest_of(plan, "simulated", cluster, ""), {}, summary)
        row = row_of(plan, cluster, summary, COMPLETE, notes=of_prediction(described))
        return replace(row, run_id=None if record is None else record.run_id)

    def _interval(self, case: Case, level: Level, keep: Keep | None) -> Row:
        asked, most = at(case, level).experiment, BORROWED.few.threads or 0
        itself = case.cluster.topology is None and asked.training.threads <= most
        if asked.simulation.what_if_steps and itself:
            return self._prediction(case, level, keep)
        alone = at(case, level).with_({"simulation.what_if_steps": 0})
        row = self._prediction(alone, FINAL, keep)
        if not (eps := row.examples_per_second):
            return row
        other = self.row(alone, BORROWED)
        if not (theirs := other.examples_per_second):
            return row

        def borrowed(own: float | None, end: float | None) -> float | None:
            return own if end is None else eps * end / theirs

        return replace(
            row,
            calibration_low=borrowed(row.calibration_low, other.calibration_low),
            calibration_high=borrowed(row.calibration_high, other.calibration_high),
            calibration_errors=other.calibration_errors,
        )

    def _counted(self, case: Case) -> IdCounts:
        from recsim_train.evaluate.simulations import representatives

        plan = case.plan
        loops = representatives(case).loops(plan)
        key = loops, counts_key(plan)
        counts = self._counts.pop(key, None)
        self._counts[key] = counts = counts_for(plan, loops) if counts is None else counts
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return counts


def evaluate(
    cases: Sequence[Case],
    level: Level,
    *,
    processes: int | Workers = 1,
    memo: Memo | None = None,
    keep: Keep | None = None,
    meter: Meter = unseen,
    seconds: float | None = None,
) -> Generator[tuple[int, Row], None, None]:
    """The rows of cases at a level with their places, as they are finished; first those that are
    remembered.

    They do not depend on ``processes``, of which there are so many at most, those of somebody who
    goes on with them or, by their number, new ones. ``memo``: what was found before, and where more
    of it goes. ``keep``: where predictions leave run directories.
    ``meter``: is told of what comes before the first. ``seconds``: of CPU that each case may take,
    whatever else the machine does, instead of the level's, beyond which it fails; not kept where
    this is not a process's first thread. Closing the iterator before its end ends the processes.
    Raises RunFailed if one of them dies.
    """
    left: list[int] = []
    for place, case in enumerate(cases):
        known = None if memo is None else memo.known(case.identity, level)
        if known is None:
            left.append(place)
        else:
            yield place, known
    limit = level.seconds if seconds is None else seconds
    with contextlib.ExitStack() as until:
        if keep is not None:
            until.callback(clear, keep.out)
        if isinstance(processes, int):
            processes = until.enter_context(Workers(min(processes, len(left))))
        tasks = [_Task(place, cases[place], level, keep, limit) for place in left]
        for place, row in until.enter_context(contextlib.closing(processes.rows(tasks, meter))):
            if memo is not None:
                memo.add(cases[place].identity, level, row)
            yield place, row


class _Task(NamedTuple):
    place: int
    case: Case
    level: Level
    keep: Keep | None
    limit: float | None
    """Seconds of CPU."""


class Workers:
    """Processes that evaluate cases: no more than ``most``, and started once there is work for
    several; they end with the context."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._here = Simulator()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def rows(self, tasks: Sequence[_Task], meter: Meter) -> Generator[tuple[int, Row], None, None]:
        """See `evaluate`."""
        from recsim_train.sim.ready import get_ready

        if not tasks:
            return
        get_ready(meter)  # here, before several processes would do it side by side
        if self._most <= 1 or len(tasks) <= 1:
            for task in tasks:
                yield _in_time(self._here, task)
            return
        if self._pool is None:
            # Fresh interpreters: a fork of one with threads may hang, and has all of its memory.
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._most, mp_context=spawn, initializer=_start)
        try:
            with _interrupts_blocked():  # as the new processes begin: they inherit it
                waiting = {self._pool.submit(_do, task) for task in tasks}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException as error:
            for child in multiprocessing.active_children():
                child.terminate()
            self.__exit__()
            if isinstance(error, BrokenProcessPool):
                raise RunFailed(
                    "a process that simulated died (is there enough memory for --jobs of them?); "
                    "what is finished is kept, --resume goes on"
                ) from None
            raise


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


def _in_time(simulator: Simulator, task: _Task) -> tuple[int, Row]:
    try:
        with _within(task.limit):
            return task.place, simulator.row(task.case, task.level, task.keep)
    except TooLongError as error:
        row = row_of(task.case.plan, task.case.cluster, None, FAILED, str(error))
        return task.place, replace(row, too_long=True)


_own = Simulator()
"""Of a process of the pool."""


def _start() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    die_with_parent(parent.pid)


def _do(task: _Task) -> tuple[int, Row]:
    return _in_time(_own, task)
