"""Passes through a cut net, as sizes and counts of work."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.placement.segments import Segment, segment_of
from recsim_train.sim.ghosts import Ghost, GhostBlock, GhostDense, GhostParts, GhostPass, GhostRows
from recsim_train.strategy.values import Batch, NetGradients
from recsim_train.workload import shape


class NetRuntime:
    """What the operations on a cut net do at one host."""

    def __init__(self, plan: Plan, trainer: int) -> None:
        assert plan.net is not None
        self.program = plan.net
        self.host = plan.host(trainer)
        self._batch = plan.experiment.training.batch_size
        self._bytes = shape.value_bytes(plan.experiment.model)
        self._whole = plan.net.graph.elements
        self._shared = plan.net.shared_numbers
        self._known: dict[tuple[str, int], Segment] = {}

    def open(self, _: Batch, rows: GhostRows) -> Ghost:
        return GhostPass(rows.ids), self._work("net_open")

    def forward(self, _: GhostPass, cut: int) -> Ghost:
        return self._crossing("net_forward", cut), self._work("net_forward", cut)

    def receive(self, _: GhostPass, cut: int, __: GhostBlock | GhostParts) -> Ghost:
        return None, self._work("net_receive", cut)

    def backward(self, _: GhostPass, cut: int) -> Ghost:
        return self._crossing("net_backward", cut), self._work("net_backward", cut)

    def take_back(self, _: GhostPass, cut: int, __: GhostBlock | GhostParts) -> Ghost:
        return None, self._work("net_return", cut)

    def gradients(self, tape: GhostPass) -> Ghost:
        shared = self._shared
        if isinstance(self.program, TaggedNet) and self.program.outer:
            shared *= 2  # with the moves that were kept back
        own, common = self._dense(self._elements), self._dense(shared)
        rows = GhostRows(tape.ids, gradient=True)
        return NetGradients(own, common, rows), self._work("net_gradients")

    def apply(self, _: NetGradients, __: GhostDense) -> Ghost:
        return None, {"elements": self._elements}

    def whole(self) -> Ghost:
        return self._dense(self._whole), {"elements": self._elements}

    def answered(self, *_: object) -> Ghost:
        """A vector over the parameters that this host answers for to other groups."""
        elements, start = self._answered
        return self._dense(elements, start), {"elements": elements}

    def move(self, _: GhostDense) -> Ghost:
        return None, {"elements": self._answered[0]}

    def _dense(self, elements: int, start: int = 0) -> GhostDense:
        return GhostDense(elements, elements * self._bytes, start)

    @cached_property
    def _elements(self) -> int:
        """Parameters that this host holds."""
        if isinstance(self.program, TaggedNet):
            return self.program.elements(self.host)
        return self._whole

    @cached_property
    def _answered(self) -> tuple[int, int]:
        """How many elements this host answers for, and where they start in a central copy."""
        assert isinstance(self.program, TaggedNet)
        return self.program.answered_elements(self.host), self.program.answered_start(self.host)

    def _segment(self, name: str, cut: int) -> Segment:
        known = self._known.get((name, cut))
        if known is None:
            known = segment_of(self.program, self.host, name, cut, self._batch, self._bytes)
            self._known[name, cut] = known
        return known

    def _work(self, name: str, cut: int = 0) -> dict[str, Any]:
        segment = self._segment(name, cut)
        return {"pieces": segment.pieces, "numbers": segment.numbers}

    def _crossing(self, name: str, cut: int) -> GhostBlock | GhostParts:
        out = self._segment(name, cut).out
        return GhostBlock(out) if isinstance(out, int) else GhostParts(out)
