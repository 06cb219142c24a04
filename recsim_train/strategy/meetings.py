"""Meetings: where replicas that train apart are synchronised, and until when."""

from __future__ import annotations

from dataclasses import dataclass, field

from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import Barrier, Progress, rounds
from recsim_train.strategy.synchronisers import Held, Round, Synchroniser

GAP = (
    "iterations of one worker, in the trainer's mean, from the beginning of one round to that of "
    "the next, at least; 0: no pause"
)
"""Of `Meetings.gap`, as options say it."""


@dataclass
class Meetings:
    """Of one trainer with others: in the background, by a `shadow` loop beside its workers, or in
    the foreground, where workers `stop` or `meet`.

    ``group``: the members, where they meet all together. ``compression``: of differences. ``gap``:
    see `GAP`.
    """

    synchroniser: Synchroniser
    group: str
    held: Held = field(default_factory=Held)
    compression: Compression = field(default_factory=NoCompression)
    gap: int = 0
    ended: list[None] = field(default_factory=list)
    """One entry for each worker that has ended; threads may append at once."""

    def worker_ended(self) -> None:
        """One of this trainer's workers has no more to do."""
        self.ended.append(None)

    async def meet(self, number: int = 0, *, last: bool = False) -> None:
        """One round; ``number``: of this loop before it."""
        await self.synchroniser.meet(self.held, Round(self.group, last, number, self.compression))

    async def shadow(self, workers: int) -> None:
        """Round after round, until all ``workers`` (of all members) have ended and once more."""
        group = None if self.synchroniser.on_servers else self.group
        number = begun = 0
        async for last in rounds(lambda: len(self.ended) == workers, group):
            await self.meet(number, last=last)
            number += 1
            if self.gap:
                begun = await Progress(begun + self.gap * workers)

    async def stop(self, number: int, barrier: str) -> None:
        """A worker's part of a meeting in the foreground: by itself where that is on servers, else
        all of the trainer's workers stand still while its `meeting` synchronises."""
        if self.synchroniser.on_servers:
            await self.meet(number)
        else:
            await Barrier(barrier)
            await Barrier(barrier)

    async def meeting(self, workers: int, barrier: str) -> None:
        """Synchronise whenever all ``workers`` that still run have stopped.

        A trainer whose workers have ended goes on meeting the others, who may have more to do.
        """
        running = workers

        def ended() -> bool:
            return running == 0

        async for last in rounds(ended, self.group):
            running = await Barrier(barrier) - 1
            await self.meet(last=last)
            await Barrier(barrier)
