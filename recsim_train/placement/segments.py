"""Segments of a cut net: what each operation does at one host, for prices and sizes."""

from __future__ import annotations

from typing import Literal, NamedTuple

from recsim_train.placement.program import NetProgram, SubstitutedNet, TaggedNet
from recsim_train.workload.arithmetic import Piece
from recsim_train.workload.graph import POOLED

Phase = Literal["both", "forward", "backward"]


class Segment(NamedTuple):
    """One operation's work, and what it hands over."""

    pieces: tuple[Piece, ...] = ()
    numbers: float = 0.0
    """Numbers put together or taken apart."""
    out: int | tuple[int, ...] = 0
    """Bytes that cross: in one block, or for each host."""


def segment_of(
    program: NetProgram, host: int, name: str, cut: int, batch: int, value_bytes: int
) -> Segment:
    """``name``: of the operation; ``batch``: examples of one host."""
    if isinstance(program, TaggedNet):
        return _tagged(program, host, name, cut, batch, value_bytes)
    return _substituted(program, host, name, cut, batch, value_bytes)


def _tagged(
    program: TaggedNet, host: int, name: str, cut: int, batch: int, value_bytes: int
) -> Segment:
    last = len(program.messages)

    def pieces(level: int, phase: Phase) -> tuple[Piece, ...]:
        return tuple(
            Piece(o.name, batch * (program.hosts if program.tags[o.name] == host else 1), phase)
            for o in program.operators(host, level)
        )

    match name:
        case "net_open":
            return Segment(numbers=batch * program.graph.width(POOLED))
        case "net_forward":
            out = program.sent(cut, host, batch, value_bytes, backward=False)
            return Segment(pieces(cut, "forward"), sum(out) / value_bytes, out)
        case "net_backward":
            done = pieces(cut + 1, "both" if cut == last - 1 else "backward")
            out = program.sent(cut, host, batch, value_bytes, backward=True)
            return Segment(done, sum(out) / value_bytes, out)
        case "net_receive" | "net_return":
            came = [
                program.sent(cut, h, batch, value_bytes, backward=name == "net_return")[host]
                for h in range(program.hosts)
            ]
            return Segment(numbers=sum(came) / value_bytes)
        case _:
            done = pieces(0, "backward" if last else "both")
            return Segment(done, batch * program.graph.width(POOLED))


def _substituted(
    program: SubstitutedNet, host: int, name: str, cut: int, batch: int, value_bytes: int
) -> Segment:
    graph, everyone = program.graph, batch * program.hosts
    split = program.top == "split"
    mine = batch if split else everyone
    share = len(program.owned(host)) / max(1, program.sparse_columns)
    bottom = graph.width(program.before[-1]) if program.before else 0
    buffer = everyone * program.width

    def before(phase: Phase) -> tuple[Piece, ...]:
        return tuple(Piece(operator, everyone, phase) for operator in program.before)

    def partial(phase: Phase) -> tuple[Piece, ...]:
        pieces = []
        for part in program.partials:
            if part.rule == "cross":
                crossing = [o.name for o in graph.operators if o.kind == "cross"]
                pieces += [Piece(operator, everyone, phase, share / 2) for operator in crossing]
            elif part.rule != "gather":
                pieces.append(Piece(part.operator, everyone, phase, share))
        return tuple(pieces)

    def rest() -> tuple[Piece, ...]:
        replaced = {part.operator for part in program.partials} | program.skipped
        return tuple(Piece(name, mine) for name in program.rest if name not in replaced)

    at_sum = cut == program.sum_cut
    match name:
        case "net_forward":
            if not at_sum:
                return Segment(before("forward"), 0, everyone * bottom * value_bytes)
            part = batch * program.width * value_bytes
            out = (part,) * program.hosts if split else buffer * value_bytes
            return Segment(partial("forward"), buffer, out)
        case "net_receive":
            return Segment(numbers=buffer if split and at_sum else 0)
        case "net_backward":
            if not at_sum:
                return Segment(out=everyone * bottom * value_bytes)
            sums = mine * program.width
            return Segment(rest(), sums, sums * value_bytes)
        case "net_return":
            return Segment(partial("backward") if at_sum else before("backward"), buffer)
        case _:
            return Segment(numbers=program.shared_numbers)
