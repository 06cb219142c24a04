"""When the processes of a run make a checkpoint, and that all do it of the same moment.

Trainers' loops stand still before one iteration; what they had under way is done then, and nothing
is asked of servers. Every process copies what it holds, and loops go on while the copies are
written. Loops in the background are not held up: a strategy that has some has no exact state.

What they say to each other stands in the run's store, by the number of the checkpoint:

    ask             somebody wants one now
    soon/TRAINER    the iteration before which this trainer's loops can stand still; the last counts
    still/TRAINER   they do
    copied/RANK     this process has its copy
    written/RANK    its files, as JSON, or why there are none
    made            there is a manifest, or there will be none
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from recsim_train.checkpoints.going_on import Keeping
from recsim_train.checkpoints.manifest import (
    SavedTensor,
    check_space,
    complete,
    manifest_of,
    merged,
    place,
    prune,
)
from recsim_train.config.errors import UserError
from recsim_train.executor.checkpoint.files import MemoryBlock, bytes_of, snapshot, write
from recsim_train.executor.checkpoint.halts import Halts
from recsim_train.executor.checkpoint.state import RoleState
from recsim_train.executor.process.attend import in_thread
from recsim_train.placement.plan import Instance, Plan
from recsim_train.trace.facts import CheckpointMade

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_LOOK = 0.25
"""Seconds between two looks at whether somebody asks for a checkpoint."""
_STEP = 0.02
_WAIT = timedelta(seconds=0.1)
_AT_THE_END = "end"


@dataclass(slots=True)
class Written:
    """What a process says of its files."""

    tensors: dict[str, SavedTensor]
    files: dict[str, int]
    problem: str = ""


_WRITTEN = TypeAdapter(Written)


class StoppedError(Exception):
    """The process has failed, or ends."""


class Keeper:
    """One process's part in all checkpoints of a run."""

    def __init__(
        self,
        plan: Plan,
        instance: Instance,
        keeping: Keeping,
        store: Store,
        state: RoleState,
        stopped: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``store``: over a connection of its own; ``stopped``: whether this process ``failed``."""
        assert keeping.folder is not None
        self.plan, self.instance, self.folder = plan, instance, keeping.folder
        self._store, self._state, self._stopped = store, state, stopped
        self._failed = failed
        self._rank = plan.rank(instance)
        self._rules = plan.experiment.checkpoint
        rules = plan.experiment.training
        self._total = rules.warmup_steps + rules.steps
        self.made: list[CheckpointMade] = []
        self.halts: Halts | None = None
        if instance.role == "trainer":
            loops = [x for x in plan.all_loops if x.trainer == instance.index]
            feeding = [x.name for x in loops if x in plan.feeding]
            training = [x.name for x in loops if x in plan.training]
            reach = range(keeping.first, self._total)
            self.halts = Halts(feeding, training, reach, self._after(keeping.first), stopped)
        self._since = time.monotonic()
        self._over = False
        self._next = 0
        """Number of the next checkpoint that loops stand still for."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """From when loops begin."""
        self._since = time.monotonic()
        self._thread = in_thread(self._body, "checkpoints")

    def _after(self, iteration: int) -> int | None:
        """The iteration of the next checkpoint, by steps."""
        every = self._rules.every_steps
        return None if every is None else (iteration // every + 1) * every

    def _body(self) -> None:
        try:
            while (iteration := self._agreed(number := self._next)) < self._total:
                copies = snapshot(self._state.held())
                still = 0.0
                self._say(number, f"copied/{self._rank}")
                everyone = range(len(self.plan.instances))
                if self.halts is not None:
                    self._wait(number, (f"copied/{rank}" for rank in everyone))
                    still = time.monotonic() - self.halts.still_since
                    self.halts.stand(self._after(iteration))
                self._next = number + 1
                self._write(str(number), iteration, copies, still, ended=False)
                del copies
                self._since = time.monotonic()
        except StoppedError:
            return
        except BaseException as error:  # loops that stand still would do so for good
            self._failed(error)

    def last(self, seconds: float) -> None:
        """Have one made as soon as may be, and wait for it; no longer than so many seconds."""
        number, end = self._next, time.monotonic() + seconds
        with suppress(StoppedError):
            self._say(number, "ask")
            while not self._there([_key(number, "made")]) and time.monotonic() < end:
                self._check(idle=True)
                time.sleep(_STEP)

    def finish(self, held: Iterable[MemoryBlock]) -> None:
        """Make the last one, of what is ``held`` when training is over; all processes."""
        # until then others may want one, and their loops stand still for it
        trainers = range(self.plan.experiment.roles.trainers)
        with suppress(StoppedError):
            self._wait_for([f"done/{trainer}" for trainer in trainers])
        self._over = True
        if self._thread is not None:
            self._thread.join()
        with suppress(StoppedError):
            self._write(_AT_THE_END, self._total, list(held), 0.0, ended=True)

    # -- when --------------------------------------------------------------------------------

    def _agreed(self, number: int) -> int:
        """The iteration before which all loops stand still by now."""
        trainers = range(self.plan.experiment.roles.trainers)
        if self.halts is not None:
            soon = False
            while not self.halts.still(_LOOK):
                self._check(idle=True)
                if not soon and self._asked(number):
                    soon = True
                    self._say(number, f"soon/{self.instance.index}", str(self.halts.ask()))
                    soons = (f"soon/{trainer}" for trainer in trainers)
                    said = self._wait(number, soons, idle=True)
                    self.halts.stand(max(map(int, said)))
            self._state.settle()
            at = str(self.halts.at)
            if not soon:  # others may have been asked meanwhile, who go on as far then
                self._say(number, f"soon/{self.instance.index}", at)
            self._say(number, f"still/{self.instance.index}", at)
        said = self._wait(number, (f"still/{trainer}" for trainer in trainers), idle=True)
        return int(said[0])

    def _asked(self, number: int) -> bool:
        """Whether somebody wants one; this process may, after a time."""
        every = self._rules.every_seconds
        if self._rank == 0 and every is not None and time.monotonic() - self._since >= every:
            self._say(number, "ask")
        return self._there([_key(number, "ask")])

    # -- what --------------------------------------------------------------------------------

    def _write(
        self, number: str, iteration: int, held: list[MemoryBlock], still: float, *, ended: bool
    ) -> None:
        begin, path = time.monotonic(), place(self.folder, iteration)
        written = Written({}, {})
        try:
            path.mkdir(parents=True, exist_ok=True)
            check_space(path, bytes_of(held))
            who = f"{self.instance.role}-{self.instance.index}"
            written.tensors, written.files = write(path, who, held)
        except (OSError, UserError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            written = Written({}, {}, f"{path}: {why or error}")
        self._say(number, f"written/{self._rank}", json.dumps(asdict(written)))
        if self._rank == 0:
            everyone = range(len(self.plan.instances))
            said = self._wait(number, (f"written/{rank}" for rank in everyone))
            for rank in everyone:  # the store's memory has them, and nobody else reads them
                self._forget(number, f"written/{rank}")
            problem = self._complete(path, iteration, said, ended=ended)
            seconds = time.monotonic() - begin
            self.made.append(CheckpointMade(iteration, still, seconds, bytes_of(held), problem))
            self._say(number, "made")
        self._wait(number, ["made"])

    def _complete(self, path: Path, iteration: int, said: list[bytes], *, ended: bool) -> str:
        """Write the manifest; why there is none."""
        all_written = [_WRITTEN.validate_json(one) for one in said]
        if problem := next((one.problem for one in all_written if one.problem), ""):
            shutil.rmtree(path, ignore_errors=True)
            return problem
        tensors = merged(one.tensors for one in all_written)
        files = {name: size for one in all_written for name, size in one.files.items()}
        try:
            complete(path, manifest_of(self.plan, iteration, tensors, files, ended=ended))
        except OSError as error:
            return f"{path}: {error.strerror}"
        prune(self.folder, self._rules.keep)
        return ""

    # -- the store ---------------------------------------------------------------------------

    def _say(self, number: int | str, what: str, value: str = "1") -> None:
        with _lost():
            self._store.set(_key(number, what), value)

    def _forget(self, number: int | str, what: str) -> None:
        with _lost():
            self._store.delete_key(_key(number, what))

    def _there(self, keys: list[str]) -> bool:
        with _lost():
            return self._store.check(keys)

    def _wait(self, number: int | str, what: Iterable[str], *, idle: bool = False) -> list[bytes]:
        """What is said under these keys, once all are there. ``idle``: as of `_check`."""
        return self._wait_for([_key(number, one) for one in what], idle=idle)

    def _wait_for(self, keys: list[str], *, idle: bool = False) -> list[bytes]:
        while not self._there(keys):
            self._check(idle=idle)
            with suppress(RuntimeError):  # not yet; or the store is gone, which the next look shows
                self._store.wait(keys, _WAIT)
        with _lost():
            return self._store.multi_get(keys)

    def _check(self, *, idle: bool) -> None:
        """Raise StoppedError where the process has failed; or, between two checkpoints (``idle``),
        where there are no more."""
        if self._stopped() or (idle and self._over):
            raise StoppedError


@contextmanager
def _lost() -> Iterator[None]:
    """Whoever loses the store's keeper says so elsewhere. Raises StoppedError in its place."""
    try:
        yield
    except RuntimeError:
        raise StoppedError from None


def _key(number: int | str, what: str) -> str:
    return f"checkpoint/{number}/{what}"
