"""Synchronisers: how replicas that train apart meet. Parts that several strategies compose.

EASGD: Zhang, Choromanska and LeCun 2015. Model averaging towards the mean: ShadowSync (arXiv
2003.03477). BMUF: Chen and Huo 2016. What a last round does is our reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import DENSE, option
from recsim_train.strategy.compression import Compression
from recsim_train.strategy.effects import AllReduce, Compute, Exchange, Pull, Synced
from recsim_train.strategy.operations import (
    BLOCK_STEP,
    INTERPOLATE,
    NET_ANSWERED,
    NET_MOVE,
    NET_TOWARDS,
    SNAPSHOT,
    SUBTRACT,
    TOWARDS,
)
from recsim_train.strategy.parts import Part
from recsim_train.strategy.values import Dense


class Held:
    """What is synchronised: this trainer's replica. Concurrent steps of others survive."""

    async def read(self) -> Dense:
        """w, a copy."""
        answer: Dense = await Compute(SNAPSHOT)
        return answer

    async def difference(self, value: Dense, share: float) -> Dense:
        """share * (w - value)."""
        answer: Dense = await Compute(TOWARDS, value, share)
        return answer

    async def subtract(self, difference: Dense) -> None:
        """w -= difference."""
        await Compute(SUBTRACT, difference)

    async def approach(self, value: Dense, share: float) -> None:
        """w += share * (value - w)."""
        await Compute(INTERPOLATE, value, share)


class HeldPart(Held):
    """Of a net that is cut: the parameters that this host answers for to other groups."""

    async def read(self) -> Dense:
        answer: Dense = await Compute(NET_ANSWERED)
        return answer

    async def difference(self, value: Dense, share: float) -> Dense:
        answer: Dense = await Compute(NET_TOWARDS, value, share)
        return answer

    async def subtract(self, difference: Dense) -> None:
        await Compute(NET_MOVE, difference)

    async def approach(self, value: Dense, share: float) -> None:
        await self.subtract(await self.difference(value, share))


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

    async def meet(
        self,
        held: Held,
        group: str,
        *,
        last: bool = False,
        number: int = 0,
        compression: Compression | None = None,
    ) -> None:
        """One round. ``last``: it leaves every replica that meets in a group at the common weights.

        ``number``: rounds of this loop before this one. ``compression``: of differences.
        """
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

    async def meet(
        self,
        held: Held,
        group: str,
        *,
        last: bool = False,
        number: int = 0,
        compression: Compression | None = None,
    ) -> None:
        if compression is not None and compression.sparse:
            difference = await held.difference(await Pull(DENSE), self.alpha)
            moved = await compression.add(DENSE, difference, number)
        else:
            moved = await Exchange(DENSE, await held.read(), self.alpha, self.central)
        await held.subtract(moved)
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

    async def meet(
        self,
        held: Held,
        group: str,
        *,
        last: bool = False,
        number: int = 0,
        compression: Compression | None = None,
    ) -> None:
        common = await self.common(await AllReduce(await held.read(), group))
        await held.approach(common, 1.0 if last else self.alpha)
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
