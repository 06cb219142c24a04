"""Synchronisers: how replicas that train apart meet. Parts that several strategies compose.

EASGD: Zhang, Choromanska and LeCun 2015. Model averaging towards the mean: ShadowSync (arXiv
2003.03477). BMUF: Chen and Huo 2016. What a last round does is our reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from recsim_train.strategy.base import DENSE, option
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import (
    AllReduce,
    Barrier,
    Compute,
    Exchange,
    Progress,
    Pull,
    Synced,
    rounds,
)
from recsim_train.strategy.operations import (
    BLOCK_STEP,
    INTERPOLATE,
    NET_ANSWERED,
    NET_MOVE,
    NET_TOWARDS,
    SNAPSHOT,
    SUBTRACT,
    TOWARDS,
    Operation,
)
from recsim_train.strategy.parts import Part
from recsim_train.strategy.values import Dense


class Held:
    """What is synchronised: this trainer's replica w. Concurrent steps of others survive."""

    read: ClassVar[Operation[[], Dense]] = SNAPSHOT
    """w, a copy."""
    towards: ClassVar[Operation[[Dense, float], Dense]] = TOWARDS
    """share * (w - value)."""
    subtract: ClassVar[Operation[[Dense], None]] = SUBTRACT
    """w -= difference."""

    async def approach(self, value: Dense, share: float) -> None:
        """w += share * (value - w)."""
        await Compute(INTERPOLATE, value, share)


class HeldPart(Held):
    """Of a net that is cut: the parameters that this host answers for to other groups."""

    read = NET_ANSWERED
    towards = NET_TOWARDS
    subtract = NET_MOVE

    async def approach(self, value: Dense, share: float) -> None:
        await Compute(self.subtract, await Compute(self.towards, value, share))


@dataclass(frozen=True, slots=True)
class Round:
    """One meeting, as the loop that takes part in it sees it.

    ``last``: it leaves every replica that meets in a ``group`` at the common weights. ``number``:
    rounds of this loop before this one. ``compression``: of differences.
    """

    group: str
    last: bool = False
    number: int = 0
    compression: Compression = field(default_factory=NoCompression)


class Synchroniser(Part):
    """What a strategy asks of a synchroniser."""

    family: ClassVar[str] = "synchroniser"
    summary: ClassVar[str] = "how replicas that train apart meet"
    on_servers: ClassVar[bool] = False
    """Whether they meet in a central copy on dense servers, each by itself; else in a group, all
    together."""
    meets: ClassVar[bool] = True
    """Whether they meet at all."""

    def problems(self, compression: Compression) -> list[str]:
        """What does not fit this compression of the strategy, one sentence each."""
        return []

    async def meet(self, held: Held, of: Round) -> None:
        """Take part in one round."""
        raise NotImplementedError


@dataclass
class Easgd(Synchroniser):
    """d = alpha (w - c); w -= d, c += d, with a central copy c: nobody waits for others.

    Only differences have small entries to leave out. With a sparse ``compression`` the loop
    therefore fetches c, and both sides move by those entries of d that are sent; the others stay
    apart and are in the next difference.
    """

    kind: ClassVar[str] = "easgd"
    summary: ClassVar[str] = "elastic averaging with a central copy"
    on_servers: ClassVar[bool] = True

    alpha: float = option(
        0.5, help="share of the way towards the central copy", minimum=0.0, maximum=1.0
    )
    central: Literal["old", "new"] = option(
        "old", help="the central value that the replica's step uses, before or after its own move"
    )

    def problems(self, compression: Compression) -> list[str]:
        if compression.sparse and self.central == "new":
            return ["central new is unknown to a worker that sends parts of a difference"]
        return []

    async def meet(self, held: Held, of: Round) -> None:
        if of.compression.sparse:
            difference = await Compute(held.towards, await Pull(DENSE), self.alpha)
            moved = await of.compression.add(DENSE, difference, of.number)
        else:
            own = await Compute(held.read)
            moved = await Exchange(DENSE, own, self.alpha, self.central)
        await Compute(held.subtract, moved)
        await Synced()


@dataclass
class ModelAveraging(Synchroniser):
    """w += alpha (mean - w), with the mean of all members' w."""

    kind: ClassVar[str] = "ma"
    summary: ClassVar[str] = "model averaging"

    alpha: float = option(0.5, help="share of the way towards the mean", minimum=0.0, maximum=1.0)

    def problems(self, compression: Compression) -> list[str]:
        if compression.sparse:
            return [
                f"{self.kind} averages the parameters themselves, which have no small entries to "
                "leave out: use algorithm easgd, or compression.mode mp"
            ]
        return []

    async def meet(self, held: Held, of: Round) -> None:
        common = await self.common(await AllReduce(await Compute(held.read), of.group))
        await held.approach(common, 1.0 if of.last else self.alpha)
        await Synced()

    async def common(self, mean: Dense) -> Dense:
        """The weights that all members approach."""
        return mean


@dataclass
class Bmuf(ModelAveraging):
    """The mean moves a global model g by a step with momentum: D = mu D + eta (mean - g), g += D.

    Replicas approach g. Every member holds the same g and D.
    """

    kind: ClassVar[str] = "bmuf"
    summary: ClassVar[str] = "blockwise model update with momentum"

    block_lr: float = option(1.0, help="step of the global model (eta)", minimum=0.0)
    block_momentum: float = option(
        0.875, help="momentum of that step (mu), 0: none", minimum=0.0, maximum=1.0
    )

    async def common(self, mean: Dense) -> Dense:
        answer: Dense = await Compute(BLOCK_STEP, mean, self.block_lr, self.block_momentum)
        return answer


@dataclass
class Never(Synchroniser):
    """They do not meet."""

    kind: ClassVar[str] = "none"
    summary: ClassVar[str] = "no synchronisation"
    meets: ClassVar[bool] = False


@dataclass
class Auto(Never):
    """Chosen by the strategy from the job's size."""

    kind: ClassVar[str] = "auto"
    summary: ClassVar[str] = "chosen from the job's size"


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
