"""Starts every role as a process of this machine, watches them, ends them, merges their results."""

from __future__ import annotations

import fcntl
import json
import pickle
import queue
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_train.checkpoints.going_on import LAST, NONE_KEPT, Keeping
from recsim_train.config.errors import RunFailed
from recsim_train.data.replay import check_cache
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.part import EmulatedRoles, Ending, ProcessPart, SoFar, TrainerSaid, cause
from recsim_train.executor.process import forkserver
from recsim_train.executor.process.attend import in_thread
from recsim_train.executor.process.entry import write_spec
from recsim_train.executor.process.merge import merge
from recsim_train.placement.plan import Instance, Plan
from recsim_train.signals import held, note_finished
from recsim_train.trace.progress import Meter, unseen
from recsim_train.trace.record import Outcome

GRACE = 5.0
"""Seconds between asking processes to end and ending them."""
LEAVING = 60.0
"""The same of a process that has begun to write what it has measured."""
_LOOK = 0.02
"""Seconds between two looks at the processes."""
VERDICT = 1.5
"""Seconds after the first failure in which others may show the real cause."""
_LAST_WORDS = 1.0
"""Seconds within which what an ended process has said is heard."""


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
    process: forkserver.ForkedProcess
    errors: Path
    ending: Ending | None = None
    """As it has told; None: it has not."""
    said: TrainerSaid | None = None
    """Of its loops, last; None: they have not started."""
    scheduled: bool | None = None
    ended_at: float | None = None
    stopped_by_us: bool = False
    checkpoints: int = 0
    """How often it has told of one."""
    leaving: bool = False
    """Whether it has begun to write its part."""
    listener: threading.Thread | None = None
    """Hears what it says."""


def execute(
    plan: Plan,
    *,
    staging: Path,
    progress: Meter | None = None,
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
    messages: queue.Queue[tuple[Child, dict[str, Any]]] = queue.Queue()
    children: list[Child] = []
    counted = {} if hosts is None else hosts.counted()
    begin = time.monotonic()
    try:
        for instance in plan.instances:
            with held():
                place = forkserver.HERE if hosts is None else hosts.place(instance.name)
                children.append(_start(plan, instance, staging, messages, place))
        _watch(plan, children, messages, progress)
    except KeyboardInterrupt:
        if keeping.folder is not None:
            _keep_last(children, messages)
        _end(children, messages)
        raise Interrupted(_partial(plan, staging, keeping)) from None
    finally:
        _end(children, messages)
    _drain(messages)
    for child in children:
        if child.process.returncode != 0:
            raise PartialRun(_sentence(children), _partial(plan, staging, keeping))
    outcome = merge(plan, _parts(plan, staging), complete=True, first=keeping.first)
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
    outcome.facts.sched_batch = all(child.scheduled for child in children)
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


def _start(
    plan: Plan,
    instance: Instance,
    staging: Path,
    messages: queue.Queue[tuple[Child, dict[str, Any]]],
    place: forkserver.NetworkPlace,
) -> Child:
    rank = plan.rank(instance)
    errors = staging / f"stderr-{rank}.txt"
    words = [str(staging), str(rank), instance.name]
    with errors.open("wb") as sink:
        process = forkserver.start("recsim_train.executor.process.entry", words, sink, place)
    process.stdin.close()
    child = Child(instance, process, errors)

    def listen() -> None:
        with process.stdout:
            for line in process.stdout:
                with suppress(ValueError):
                    messages.put((child, json.loads(line)))

    child.listener = in_thread(listen, f"listen {instance.name}")
    return child


def _watch(
    plan: Plan,
    children: list[Child],
    messages: queue.Queue[tuple[Child, dict[str, Any]]],
    progress: Meter | None,
) -> None:
    """Until all have ended, or shortly after one has failed."""
    so_far = SoFar(plan, progress or unseen)
    trainers = [child for child in children if child.instance.role == "trainer"]
    failed_at: float | None = None
    while True:
        if _drain(messages):
            said = [child.said for child in trainers if child.said is not None]
            if len(said) == len(trainers):
                so_far.tell(said)
        now = time.monotonic()
        for child in children:
            if child.ended_at is None and child.process.poll() is not None:
                child.ended_at = now
                if child.process.returncode != 0 and failed_at is None:
                    failed_at = now
        judged = failed_at is not None and now - failed_at > VERDICT
        if judged or all(child.ended_at is not None for child in children):
            return
        time.sleep(_LOOK)


def _drain(messages: queue.Queue[tuple[Child, dict[str, Any]]]) -> bool:
    moved = False
    while True:
        try:
            child, message = messages.get_nowait()
        except queue.Empty:
            return moved
        if "progress" in message:
            child.said = TrainerSaid(message["progress"], message["iterations"], message["loss"])
            moved = True
        if "checkpoint" in message:
            child.checkpoints += 1
            if message["checkpoint"]:
                note_finished()
        if "leaving" in message:
            child.leaving = True
        if "sched_batch" in message:
            child.scheduled = bool(message["sched_batch"])
        if "error" in message:
            child.ending = Ending(
                child.instance.name, message["kind"], message["error"], message["waits"]
            )


def _end(children: list[Child], messages: queue.Queue[tuple[Child, dict[str, Any]]]) -> None:
    """End what still runs: ask, wait, then kill; only processes that were started here."""
    alive = [child for child in children if child.process.poll() is None]
    for child in alive:
        child.stopped_by_us = True
        child.process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    while alive := [child for child in alive if child.process.poll(_LOOK) is None]:
        _drain(messages)
        waited = time.monotonic() - asked
        late = [child for child in alive if waited > (LEAVING if child.leaving else GRACE)]
        for child in late:
            child.process.send_signal(signal.SIGKILL)
            child.process.poll(GRACE)
            alive.remove(child)
    for child in children:  # on busy cores last words are heard after the end is seen
        if child.listener is not None:
            child.listener.join(_LAST_WORDS)


def _keep_last(children: list[Child], messages: queue.Queue[tuple[Child, dict[str, Any]]]) -> None:
    """Have a last checkpoint made, where all processes train; a further wish to end ends that."""
    first, end = children[0], time.monotonic() + LAST
    known = first.checkpoints
    with suppress(KeyboardInterrupt):
        if first.said is not None:
            first.process.send_signal(signal.SIGUSR1)
            while first.checkpoints == known and time.monotonic() < end:
                if any(child.process.poll() is not None for child in children):
                    return
                _drain(messages)
                time.sleep(_LOOK)


def _sentence(children: list[Child]) -> str:
    """What happened first, in one sentence that names the role; time-outs say who waits."""
    ended = [c for c in children if c.process.returncode and not c.stopped_by_us]
    failed = sorted(ended, key=lambda c: c.ended_at or 0.0)
    for child in failed:
        code = child.process.returncode or 0
        if child.process.lost is not None:
            return child.process.lost
        if code < 0:
            name = signal.Signals(-code).name
            return f"{child.instance.name} was killed by signal {-code} ({name})"
    said_why = [child.ending for child in failed if child.ending is not None]
    if (told := cause(said_why)) is not None:
        return told
    first = failed[0]
    if first.ending is not None:
        return f"{first.instance.name} failed: {first.ending.sentence}"
    said = first.errors.read_text(errors="replace").strip().splitlines()
    last = said[-1] if said else "nothing was said"
    return f"{first.instance.name} ended with exit code {first.process.returncode}: {last}"


def _parts(plan: Plan, staging: Path) -> list[ProcessPart]:
    paths = [staging / f"part-{rank}.pickle" for rank in range(len(plan.instances))]
    return [pickle.loads(path.read_bytes()) for path in paths if path.exists()]


def _partial(plan: Plan, staging: Path, keeping: Keeping) -> Outcome | None:
    parts = _parts(plan, staging)
    return merge(plan, parts, complete=False, first=keeping.first) if parts else None
