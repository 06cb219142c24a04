"""The life of one process of a run, whoever started it: it meets the others in their store, trains,
and leaves on the board why it ends and what it has measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsim_train.checkpoints.going_on import LAST, Keeping
from recsim_train.executor.link.rendezvous import make_group
from recsim_train.executor.part import FINISHED, EmulatedRoles, Ending
from recsim_train.executor.process.attend import schedule
from recsim_train.executor.process.board import Board
from recsim_train.executor.process.parting import describe, leave
from recsim_train.executor.process.peers import Peers
from recsim_train.placement.plan import Plan
from recsim_train.signals import held

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from recsim_train.executor.process.role import Role


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a process finds the others."""

    rank: int
    labels: Sequence[str]
    """Of each process, as sentences name it."""
    store: Store
    again: Callable[[], Store]
    """The store over a connection of its own: who waits for a key keeps others from theirs."""
    board: Board
    board_over: Callable[[Store], Board]
    """The board, as it is reached by that connection."""
    keeper: int | None = None
    """The rank that keeps the store; None: it outlives all ranks."""


def prepare() -> bool:
    """What a process of a run is like, before anything has threads. Returns whether they will be
    scheduled by SCHED_BATCH."""
    sys.setswitchinterval(0.0005)
    return schedule("SCHED_BATCH")


class Life:
    """Of one process."""

    def __init__(
        self,
        plan: Plan,
        meeting: Meeting,
        keeping: Keeping,
        emulated: EmulatedRoles | None = None,
        *,
        scheduled: bool,
    ) -> None:
        """``emulated``: as of `Role`; ``scheduled``: what `prepare` has returned."""
        self.plan, self.meeting, self.keeping, self.emulated = plan, meeting, keeping, emulated
        self._scheduled = scheduled
        self.peers: Peers | None = None
        self.role: Role | None = None

    @property
    def measures(self) -> bool:
        """Whether it has begun to train."""
        return self.role is not None and self.role.started

    def live(self, left: Callable[[], float], tick: Callable[[Role], None]) -> Peers:
        """To the part that it leaves. ``left``: seconds of those to start in; ``tick``: called a
        few times a second. Returns the others, whose signs of life are still heard."""
        import torch

        from recsim_train.executor.process.role import Role

        meeting = self.meeting
        torch.set_num_threads(1)
        beats = meeting.again()
        peers = self.peers = Peers(
            meeting.labels, meeting.rank, meeting.store, beats, meeting.board_over(beats),
            self.plan.experiment.execution.timeout, keeper=meeting.keeper,
        )  # fmt: skip
        make_group(meeting.again(), meeting.rank, len(meeting.labels), left(), peers.check)
        role = self.role = Role(
            self.plan, self.plan.instances[meeting.rank], meeting.store, peers, self.emulated,
            self.keeping, meeting.again, scheduled=self._scheduled,
        )  # fmt: skip
        role.start(left())
        tick(role)
        role.finish(lambda: tick(role))
        role.read_clock()
        leave(meeting.board, meeting.rank, Ending("", FINISHED, ""), role.part())
        return peers

    def end(self) -> None:
        """After `live`, when nothing more is asked of the others."""
        import torch.distributed as dist

        if self.peers is not None:
            self.peers.end()
        dist.destroy_process_group()

    def break_off(self, error: BaseException) -> str:
        """Tell the others what went wrong, and leave what was measured until then, after a last
        checkpoint where this process was asked to end. Returns the kind of its `Ending`.

        Raises RuntimeError where there is no board any more.
        """
        role = self.role
        if isinstance(error, KeyboardInterrupt) and self.measures and role and role.keeper:
            with suppress(KeyboardInterrupt, RuntimeError):
                role.keeper.last(LAST)
        if role is not None and role.failure is not None:
            error = role.failure
        kind, sentence = describe(error)
        with suppress(KeyboardInterrupt), held():  # asked to end, and about to
            if self.peers is not None:
                self.peers.end()
            waits = [] if role is None else role.waits()
            part = role.part() if role is not None and role.started else None
            ending = Ending("", kind, sentence, waits)
            leave(self.meeting.board, self.meeting.rank, ending, part)
        return kind
