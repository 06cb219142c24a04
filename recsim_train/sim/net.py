"""Passes through a cut net, as sizes and prices."""

from __future__ import annotations

from functools import cached_property

from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.placement.segments import Segment, segment_of
from recsim_train.sim.ghosts import GhostBlock, GhostDense, GhostIds, GhostParts, GhostRows
from recsim_train.strategy.values import NetGradients, Tape
from recsim_train.workload import shape


class GhostPass(Tape):
    """One batch on its way through one host's part of the net."""

    __slots__ = ("ids",)

    def __init__(self, ids: GhostIds) -> None:
        self.ids = ids


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

    def elements_of(self, name: str) -> int:
        """Parameters that an operation touches."""
        if name in ("net_answered", "net_towards", "net_move"):
            return self._answered[0]
        return self.elements

    @cached_property
    def elements(self) -> int:
        """Parameters that this host holds."""
        if isinstance(self.program, TaggedNet):
            return self.program.elements(self.host)
        return self._whole

    @cached_property
    def _answered(self) -> tuple[int, int]:
        """How many elements this host answers for, and where they start in a central copy."""
        assert isinstance(self.program, TaggedNet)
        return self.program.answered_elements(self.host), self.program.answered_start(self.host)

    def segment(self, name: str, cut: int) -> Segment:
        """Work and sizes of an operation."""
        known = self._known.get((name, cut))
        if known is None:
            known = segment_of(self.program, self.host, name, cut, self._batch, self._bytes)
            self._known[name, cut] = known
        return known

    def result(self, name: str, arguments: tuple[object, ...]) -> object:
        """What an operation returns."""
        if name == "net_open":
            rows = arguments[1]
            assert isinstance(rows, GhostRows)
            return GhostPass(rows.ids)
        if name in ("net_answered", "net_towards"):
            elements, start = self._answered
            return GhostDense(elements, elements * self._bytes, start)
        if name == "net_whole":
            return GhostDense(self._whole, self._whole * self._bytes)
        if name in ("net_forward", "net_backward"):
            cut = arguments[1]
            assert isinstance(cut, int)
            out = self.segment(name, cut).out
            if isinstance(out, int):
                return GhostBlock(out)
            return GhostParts(out)
        if name == "net_gradients":
            tape = arguments[0]
            assert isinstance(tape, GhostPass)
            shared = self._shared
            if isinstance(self.program, TaggedNet) and self.program.outer:
                shared *= 2  # with the moves that were kept back
            return NetGradients(
                GhostDense(self.elements, self.elements * self._bytes),
                GhostDense(shared, shared * self._bytes),
                GhostRows(tape.ids, gradient=True),
            )
        return None
