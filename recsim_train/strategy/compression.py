"""Compression that any strategy composes: nothing, or Dynamic Communication Thresholding (DCT).

DCT: Gupta et al., arXiv 2010.08899 (KDD 2021). The abstract's claims and the use of a hard
threshold that is refreshed rarely are found there; the rules below are a reconstruction where the
options say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import EmbeddingService, option
from recsim_train.strategy.effects import AllGather, AllReduce, Compute, Push
from recsim_train.strategy.operations import (
    DENSIFY,
    SPARSIFY,
    SPARSIFY_DIFFERENCE,
    THRESHOLD,
    THRESHOLD_DIFFERENCE,
)
from recsim_train.strategy.parts import Part
from recsim_train.strategy.values import Dense


class Compression(Part):
    """What a strategy asks of a compression.

    ``number``: how many values this loop has sent before this one. A strategy that composes one
    has its `embedding` service, passes ``sparse`` on to ``Topology.thresholded``, and returns
    `problems` among its own.
    """

    family: ClassVar[str] = "compression"
    summary: ClassVar[str] = "what is left out of dense gradients and pooled embeddings"

    @property
    def sparse(self) -> bool:
        """Whether dense values travel as entries above a threshold."""
        return False

    @property
    def keep(self) -> float | None:
        """Share of each example's pooled values at a shard that travels; None: all."""
        return None

    @property
    def over(self) -> Literal["table", "sample"]:
        """Whether that share is of each table's values, or of all tables' together."""
        return "table"

    def embedding(
        self,
        pooling: Literal["server", "worker"] = "server",
        apply: Literal["on_arrival", "together"] = "on_arrival",
        group: int = 0,
    ) -> EmbeddingService:
        """The tables, with what this leaves out of pooled vectors."""
        return EmbeddingService(
            pooling=pooling, apply=apply, group=group, keep=self.keep, mask=self.over
        )

    def problems(self, pooling: Literal["server", "worker"]) -> list[str]:
        """What does not fit the strategy that composes it, one sentence each."""
        return []

    async def push(self, service: str, value: Dense, number: int) -> None:
        """Send a gradient to the dense service: what is not sent now is sent later."""
        await Push(service, value)

    async def add(self, service: str, value: Dense, number: int) -> Dense:
        """Add a difference of states to the dense service's copy; the answer is what was sent.

        What is not sent stays in the states, and so in their next difference.
        """
        await Push(service, value, add=True)
        return value

    async def all_reduce(self, value: Dense, group: str, number: int) -> Dense:
        """The mean of the members' gradients; what is not sent now is sent later."""
        mean: Dense = await AllReduce(value, group)
        return mean


@dataclass
class NoCompression(Compression):
    """Everything travels as it is."""

    kind: ClassVar[str] = "none"


@dataclass
class DCT(Compression):
    """Hard thresholds: of dense gradients or differences (dp), pooled embeddings (mp), or both.

    dp, gradients: every loop keeps a residual E per tensor. G = E + gradient; entries of size tau
    or more are sent with their places, and E is what is left. tau is the k-th largest size in G,
    with k = floor(elements * density), taken anew at every ``refresh``-th exchange. Tensors of
    fewer than 256 elements travel whole.
    dp, differences of states (elastic averaging): the same with E = 0 always. What is not sent
    stays in the difference by itself; a residual would count it again at each exchange.
    mp: of each example, a shard sends the largest ``mp_density`` of its pooled values with their
    places, of each table by itself (at least one) or of all its tables together (``mask``);
    gradients come back at those places only. That is the exact gradient of the net with this mask,
    so there is no residual.
    """

    kind: ClassVar[str] = "dct"
    source: ClassVar[str] = "DCT (arXiv 2010.08899); details are a reconstruction"

    mode: Literal["dp", "mp", "both"] = option(
        "dp", help="what is thresholded: dense gradients or differences, pooled embeddings, or both"
    )
    density: float = option(
        0.01, help="dp: share of a tensor's entries to send", minimum=1e-5, maximum=1.0, share=True
    )
    refresh: int = option(1000, help="dp: exchanges of a loop between thresholds", minimum=1)
    ramp: bool = option(
        True,
        help="dp: take thresholds also at exchanges 1, 2, 4, 8 ... before the first refresh, while "
        "the residual still fills (reconstruction: ours)",
    )
    mp_density: float = option(
        0.05,
        help="mp: share of an example's pooled values at a shard to send (reconstruction)",
        minimum=1e-5,
        maximum=1.0,
        share=True,
    )
    mask: Literal["table", "sample"] = option(
        "table",
        help="mp: the largest of each table's values, at least one, or of all tables' together "
        "(reconstruction: both are ours)",
    )

    @property
    def sparse(self) -> bool:
        return self.mode != "mp"

    @property
    def keep(self) -> float | None:
        return None if self.mode == "dp" else self.mp_density

    @property
    def over(self) -> Literal["table", "sample"]:
        return self.mask

    def problems(self, pooling: Literal["server", "worker"]) -> list[str]:
        if self.keep is not None and pooling == "worker":
            return [
                f"compression.mode {self.mode} masks pooled embeddings, and with pooling worker "
                "none travel: use pooling server, or compression.mode dp"
            ]
        return []

    async def push(self, service: str, value: Dense, number: int) -> None:
        if not self.sparse:
            await super().push(service, value, number)
            return
        await self._threshold(value, number)
        await Push(service, await Compute(SPARSIFY, value))

    async def add(self, service: str, value: Dense, number: int) -> Dense:
        if not self.sparse:
            return await super().add(service, value, number)
        if self.refreshes(number):
            await Compute(THRESHOLD_DIFFERENCE, value, self.density)
        sent = await Compute(SPARSIFY_DIFFERENCE, value)
        await Push(service, sent, add=True)
        whole: Dense = await Compute(DENSIFY, sent)
        return whole

    async def all_reduce(self, value: Dense, group: str, number: int) -> Dense:
        if not self.sparse:
            return await super().all_reduce(value, group, number)
        await self._threshold(value, number)
        sent = await Compute(SPARSIFY, value)
        mean: Dense = await Compute(DENSIFY, await AllGather(sent, group))
        return mean

    async def _threshold(self, value: Dense, number: int) -> None:
        if self.refreshes(number):
            await Compute(THRESHOLD, value, self.density)

    def refreshes(self, number: int) -> bool:
        """Whether exchange ``number`` of a loop, counted from 0, takes a new threshold."""
        early = self.ramp and number < self.refresh and number & (number - 1) == 0
        return number % self.refresh == 0 or early
