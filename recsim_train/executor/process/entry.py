"""The process of one role instance, as the launcher has it forked.

Its command line: STAGING RANK NAME. It reads the plan from the staging folder, talks to the
launcher by JSON lines on standard output, and leaves its part of the result in the staging folder,
whatever happens.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
import time
import traceback
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from types import FrameType

import cloudpickle

from recsim_train.checkpoints.going_on import LAST, NONE_KEPT, Keeping
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import StrategyChoice
from recsim_train.executor.link.rendezvous import make_group
from recsim_train.executor.part import EmulatedRoles, LostPeerError
from recsim_train.executor.process.attend import in_thread, schedule
from recsim_train.executor.process.peers import Peers
from recsim_train.placement.plan import Plan
from recsim_train.strategy import parts, registry
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.parts import Part


def pack_registered(choice: StrategyChoice) -> bytes | None:
    """The strategies and parts that ``choice`` needs and that were registered in this process, on
    their way to its children; None where installed ones are enough.

    Children are fresh interpreters: they know what is installed, not what a notebook has defined. A
    class that can be imported travels by name, any other (of a notebook, of a function) by value.
    """
    needed: list[type[Strategy] | type[Part]] = [
        *registry.registered(choice),
        *parts.registered(choice.options),
    ]
    if not needed:
        return None
    for made in needed:
        _resolve(made)
    # The child imports from where this process does: a script's own folder is not installed.
    return pickle.dumps((sys.path, cloudpickle.dumps(needed)))


def register_packed(packed: bytes | None) -> None:
    """Register what `pack_registered` has packed, in another process."""
    if packed is None:
        return
    # In two steps: classes that travel by name are imported while they are unpickled.
    path, content = pickle.loads(packed)
    sys.path += [place for place in path if place not in sys.path]
    for made in pickle.loads(content):
        if issubclass(made, Strategy):
            registry.register(made)
        else:
            parts.register_part(made)


def _resolve(made: type[Strategy] | type[Part]) -> None:
    """Turn annotations that are text into types, where the names in them are known.

    Settings are read from annotations, and the module of a class that travels by value does not
    come along.
    """
    for owner in made.__mro__:
        if issubclass(owner, Strategy | Part) and "__annotations__" in vars(owner):
            known = typing.get_type_hints(owner)
            owner.__annotations__ = {name: known[name] for name in owner.__annotations__}


SPEC = "plan.pickle"


_SOURCE_PLACE = re.compile(r"^\[\S+\.(?:cc|cpp|h):\d+\] ")
"""Where in C++ an error of gloo was made."""


def say(**message: object) -> None:
    """One JSON line to the launcher."""
    with suppress(BrokenPipeError):
        print(json.dumps(message), flush=True)


def describe(error: BaseException) -> tuple[str, str]:
    """(kind, sentence): kind "peer" is the loss of another process, "stall" a time-out."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    lowered = str(error).lower()
    if isinstance(error, UserError | RunFailed):
        return "own", text
    if isinstance(error, LostPeerError):
        return "peer", text
    text = _SOURCE_PLACE.sub("", text)
    if "timed out" in lowered or "timeout" in lowered or isinstance(error, TimeoutError):
        return "stall", text
    lost = ("connection closed by peer", "connection reset", "broken pipe", "connection refused")
    if any(words in lowered for words in lost):
        return "peer", "lost the connection to another process"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return "own", f"{where}{error.strerror}"
    place = traceback.extract_tb(error.__traceback__)
    last = f" ({Path(place[-1].filename).name}:{place[-1].lineno})" if place else ""
    return "own", f"{type(error).__name__}: {text}{last}"


class Legacy:
    """What a process leaves: once and whole, whatever signals come while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = self._writing = self._asked = False

    def leave(self, part: Callable[[], object]) -> None:
        """Write the part, the first time. Where `hears_later` was asked meanwhile, the process ends
        after it."""
        if self._begun:
            return
        self._begun = self._writing = True
        try:
            # To the launcher, which then gives it more time. Not by `say`: a signal handler may
            # have come in the middle of another message.
            with suppress(OSError):
                os.write(1, b'{"leaving": true}\n')
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(pickle.dumps(part()))
            temporary.replace(self._path)
        finally:
            self._writing = False
            if self._asked:
                os._exit(1)

    def hears_later(self) -> bool:
        """Whether a signal to end came in the middle of `leave`, which sees to it."""
        self._asked = self._asked or self._writing
        return self._writing


def run_role(staging: Path, rank: int) -> None:
    """The role's whole life; what goes wrong in it ends the process with exit code 1."""
    plan, emulated, own, keeping = pickle.loads((staging / SPEC).read_bytes())
    register_packed(own)
    instance, settings = plan.instances[rank], plan.experiment.execution
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    from recsim_train.executor.process.role import Role

    torch.set_num_threads(1)
    role: Role | None = None
    legacy = Legacy(staging / f"part-{rank}.pickle")

    def leave() -> None:
        if role is not None:
            legacy.leave(role.part)

    def terminated(_: int, __: FrameType | None) -> None:
        if not legacy.hears_later():
            leave()
            os._exit(1)

    def wanted(_: int, __: FrameType | None) -> None:
        """In a thread of its own: the signal may have come in the middle of anything."""
        if role is not None and role.keeper is not None:
            in_thread(partial(role.keeper.last, LAST), "last checkpoint")

    told, made = 0.0, 0

    def progress() -> None:
        """Tell how far its loops are, a few times a second, and of each checkpoint."""
        nonlocal told, made
        if role is not None and role.keeper is not None and made < len(role.keeper.made):
            made += 1
            say(checkpoint=not role.keeper.made[made - 1].problem)
        if role is not None and role.contexts and time.monotonic() - told >= 0.25:
            told = time.monotonic()
            loops = [c for c in role.contexts if c.definition.trains]
            done = [c.done for c in loops] or [0]
            losses = [loss for c in loops if (loss := c.worker.loss) is not None]
            loss = fmean(losses) if losses else None
            say(progress=min(done), iterations=sum(done), loss=loss)

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGUSR1, wanted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        store = FileStore(str(staging / "store"), len(plan.instances))
        names = [each.name for each in plan.instances]
        peers = Peers(names, rank, store, settings.timeout)
        make_group(store, rank, len(names), settings.start_timeout, peers.check)
        role = Role(
            plan, instance, store, peers, emulated, keeping,
            lambda: FileStore(str(staging / "store")),
        )  # fmt: skip
        role.start(settings.start_timeout)
        say(progress=0, iterations=0, loss=None)
        role.finish(progress)
        leave()
        peers.end()
        dist.destroy_process_group()
    except BaseException as error:
        kind, sentence = describe(error)
        say(error=sentence, kind=kind, waits=[] if role is None else role.waits())
        traceback.print_exc()
        leave()
        # Other threads may sit in gloo for good: do not wait for them.
        sys.stderr.flush()
        os._exit(1)


def write_spec(
    staging: Path,
    plan: Plan,
    emulated: EmulatedRoles | None = None,
    keeping: Keeping = NONE_KEPT,
) -> None:
    """The plan, which every process reads, with the classes that only this process knows."""
    told = plan, emulated, pack_registered(plan.strategy), keeping
    (staging / SPEC).write_bytes(pickle.dumps(told))


def main() -> None:
    """Entry point."""
    scheduled = schedule("SCHED_BATCH")  # before gloo has threads
    sys.setswitchinterval(0.0005)
    say(sched_batch=scheduled)
    run_role(Path(sys.argv[1]), int(sys.argv[2]))
