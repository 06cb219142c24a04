"""Starts every role as a process of this machine, watches them, ends them, merges their results."""

from __future__ import annotations

import fcntl
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from recsim_train.checkpoints.going_on import LAST, NONE_KEPT, Keeping
from recsim_train.config.errors import RunFailed
from recsim_train.data.replay import check_cache
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.part import (
    KILLED,
    EmulatedRoles,
    Ending,
    Log,
    SoFar,
    TrainerSaid,
    unlogged,
)
from recsim_train.executor.process import forkserver
from recsim_train.executor.process.board import FolderBoard
from recsim_train.executor.process.merge import merge
from recsim_train.executor.process.parting import leave, parts_left, verdict, words_left
from recsim_train.executor.process.peers import word_of
from recsim_train.executor.process.spec import write_spec
from recsim_train.placement.plan import Instance, Plan
from recsim_train.signals import held
from recsim_train.trace.progress import Meter, unseen
from recsim_train.trace.record import Outcome

GRACE = 5.0
"""Seconds between asking processes to end and ending those that have left no word."""
WRITING = 60.0
"""The same of those that have left one, and write what they have measured."""
_LOOK = 0.02
"""Seconds between two looks at the processes."""
_TELLING = 0.1
"""Seconds between two looks at how far they are."""
VERDICT = 1.5
"""Seconds after the first failure in which others leave by themselves, and may show the cause."""
_SAID = TypeAdapter(TrainerSaid)


class PartialRun(RunFailed):
    """The run failed in the middle; ``outcome`` holds what was measured until then, or None."""

    def __init__(self, sentence: str, outcome: Outcome | None) -> None:
        super().__init__(sentence)
        self.outcome = outcome


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; ``outcome`` as in `PartialRun`."""

    def __init__(self, outcome: Outcome | None) -> None:
        super().__init__("interrupted")
        self.outcome = outcome


@dataclass(slots=True)
class Child:
    """One started process."""

    instance: Instance
    rank: int
    process: forkserver.ForkedProcess
    errors: Path


def execute(
    plan: Plan,
    *,
    staging: Path,
    progress: Meter | None = None,
    log: Log = unlogged,
    hosts: EmulatedCluster | None = None,
    times: EmulatedRoles | None = None,
    keeping: Keeping = NONE_KEPT,
) -> Outcome:
    """Run a plan on this machine and return its measurements.

    ``staging``: an existing folder for the processes' files; ``hosts``: emulated ones, on which
    processes run; ``times``: what operations take on modelled hosts, by process; None: what they
    take here.
    Raises `PartialRun` when a process fails or dies, `Interrupted` on KeyboardInterrupt; both carry
    what was measured.
    """
    check_cache(plan)
    _check_locks(staging)
    emulated = times if hosts is None else times or {}
    plan = plan.resumed(keeping.first)
    write_spec(staging, plan, emulated, keeping)
    board = FolderBoard(staging)
    children: list[Child] = []
    counted = {} if hosts is None else hosts.counted()
    begin = time.monotonic()
    asked = False
    try:
        try:
            for instance in plan.instances:
                with held():
                    place = forkserver.HERE if hosts is None else hosts.place(instance.name)
                    children.append(_start(plan, instance, staging, place))
            _watch(children, board, SoFar(plan, progress or unseen, log))
        except KeyboardInterrupt:
            asked = True
            with suppress(KeyboardInterrupt):  # a further wish: without a last checkpoint
                _end(children, board, GRACE if keeping.folder is None else LAST + GRACE)
    finally:
        _end(children, board, GRACE)
    ranks, labels = range(len(children)), [child.instance.name for child in children]
    complete = not asked and all(child.process.returncode == 0 for child in children)
    parts = parts_left(board, ranks)
    outcome = merge(plan, parts, complete=complete, first=keeping.first) if parts else None
    if asked:
        raise Interrupted(outcome)
    if outcome is None or not complete:
        raise PartialRun(verdict(words_left(board, labels), ()), outcome)
    outcome.facts.wall_seconds = time.monotonic() - begin
    if hosts is not None:
        outcome.facts.emulated = hosts.facts(counted)
        outcome.warn(["Measured on emulated hosts: namespaces of this machine, with shaped links."])
    if times is not None:
        outcome.warn(
            [
                "Compute modelled: operations took what the prediction says of these hosts, and "
                "nothing was learned; messages and links are measured."
            ]
        )
    return outcome


def _check_locks(staging: Path) -> None:
    """The store in which processes meet is a file that they lock in turn. Raises RunFailed where
    that cannot be."""
    try:
        with (staging / "store").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RunFailed(
            f"{staging}: files there cannot be locked ({error.strerror}), which the processes of a "
            "run need to find each other: set TMPDIR to a folder of a local file system"
        ) from None


def _start(plan: Plan, instance: Instance, staging: Path, place: forkserver.NetworkPlace) -> Child:
    rank = plan.rank(instance)
    errors = staging / f"stderr-{rank}.txt"
    words = [str(staging), str(rank), instance.name]
    with errors.open("wb") as sink:
        process = forkserver.start("recsim_train.executor.process.entry", words, sink, place)
    process.stdin.close()
    process.stdout.close()
    return Child(instance, rank, process, errors)


def _watch(children: list[Child], board: FolderBoard, so_far: SoFar) -> None:
    """Until all have ended, or shortly after one has failed."""
    due = 0.0
    trainers = [child for child in children if child.instance.role == "trainer"]
    failed_at: float | None = None
    # of all of them, also behind one that goes on
    while [child for child in children if child.process.poll() is None]:
        now = time.monotonic()
        if failed_at is None and any(child.process.returncode for child in children):
            failed_at = now
            _speak_for_the_dead(children, board)
        if failed_at is not None and now - failed_at > VERDICT:
            return
        if now >= due:
            due = now + _TELLING
            said = [board.get(f"progress-{child.rank}") for child in trainers]
            known = [_SAID.validate_json(one) for one in said if one is not None]
            if len(known) == len(trainers):
                so_far.tell(known)
        time.sleep(_LOOK)


def _speak_for_the_dead(children: list[Child], board: FolderBoard) -> None:
    """Of those that have failed without a word the others hear here."""
    for child in children:
        if child.process.returncode and board.get(word_of(child.rank)) is None:
            leave(board, child.rank, Ending("", KILLED, _end_of(child)))


def _end_of(child: Child) -> str:
    """How a process has ended that has left no word, in one sentence."""
    code = child.process.returncode or 0
    if child.process.lost is not None:
        return child.process.lost
    if code < 0:
        name = signal.Signals(-code).name
        return f"{child.instance.name} was killed by signal {-code} ({name})"
    said = child.errors.read_text(errors="replace").strip().splitlines()
    last = said[-1] if said else "nothing was said"
    return f"{child.instance.name} ended with exit code {code}: {last}"


def _end(children: list[Child], board: FolderBoard, patience: float) -> None:
    """End what still runs: ask, wait, then kill; only processes that were started here.

    ``patience``: seconds for those that have left no word by then.
    """
    _speak_for_the_dead(children, board)
    alive = [child for child in children if child.process.poll() is None]
    for child in alive:
        child.process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    while alive := [child for child in alive if child.process.poll(_LOOK) is None]:
        waited = time.monotonic() - asked
        for child in alive:
            writes = waited > patience and board.get(word_of(child.rank)) is not None
            if waited > (WRITING if writes else patience):
                child.process.send_signal(signal.SIGKILL)
                child.process.poll(GRACE)
