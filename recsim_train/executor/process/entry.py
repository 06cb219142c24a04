"""The process of one role instance, as the launcher has it forked.

Its command line: STAGING RANK NAME. It reads the plan from the staging folder, and leaves there
what it says of itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from torch._C._distributed_c10d import FileStore

from recsim_train import signals
from recsim_train.executor.part import TrainerSaid
from recsim_train.executor.process.board import FolderBoard
from recsim_train.executor.process.life import Life, Meeting, prepare
from recsim_train.executor.process.role import Role
from recsim_train.executor.process.spec import read_spec

_TELLING = 0.25
"""Seconds between two words on how far a process is."""


class _Teller:
    """Tells how far the loops of this process are."""

    def __init__(self, board: FolderBoard, rank: int) -> None:
        self._board, self._rank = board, rank
        self._due = 0.0

    def __call__(self, role: Role) -> None:
        loops = [c for c in role.contexts if c.definition.trains]
        if not loops or (now := time.monotonic()) < self._due:
            return
        self._due = now + _TELLING
        done = [c.done for c in loops]
        losses = [loss for c in loops if (loss := c.worker.loss) is not None]
        said = TrainerSaid(min(done), sum(done), fmean(losses) if losses else None)
        self._board.put(f"progress-{self._rank}", json.dumps(asdict(said)).encode())


def run_role(staging: Path, rank: int) -> None:
    """The role's whole life; what goes wrong in it ends the process with exit code 1."""
    scheduled = prepare()
    signals.listen()
    plan, emulated, keeping = read_spec(staging)

    def store() -> FileStore:
        return FileStore(str(staging / "store"))

    board, names = FolderBoard(staging), [each.name for each in plan.instances]
    meeting = Meeting(rank, names, store(), store, board, lambda _: board)
    life = Life(plan, meeting, keeping, emulated, scheduled=scheduled)
    limit = plan.experiment.execution.start_timeout
    try:
        life.live(lambda: limit, _Teller(board, rank))
        life.end()
    except (Exception, KeyboardInterrupt) as error:
        life.break_off(error)
        # Other threads may sit in gloo for good: do not wait for them.
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    """Entry point."""
    os.dup2(2, 1)  # what a user's code prints; nobody listens
    run_role(Path(sys.argv[1]), int(sys.argv[2]))
