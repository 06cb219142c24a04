"""A net cut over the hosts of one group: what each host runs, and what crosses each cut.

Two ways lead here: tags and substitution (`placement.cutting`). Both worlds run the result; sizes
are computed here, once, and what each operation does at one host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from recsim_train.strategy.net import Cut, Net
from recsim_train.workload.arithmetic import Piece
from recsim_train.workload.compression import MaskOver, kept, position_bytes
from recsim_train.workload.graph import FEATURES, POOLED, Graph, Operator

ALL = -1
"""As a message's rows: the examples of every host."""
DATA_PARALLEL = -1
"""As a tag: each host runs the operator on its own examples."""
LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Message:
    """One value that one host of the group sends to another (or keeps, where they are one)."""

    value: str
    source: int
    target: int
    rows: int
    """The host whose examples these are, or ALL."""
    spread: bool
    """Whether the source holds its own examples only (else those of all hosts)."""
    gathered: bool
    """Whether the target collects the examples of all hosts (else only its own)."""


@dataclass(frozen=True, slots=True)
class TagCost:
    """Modelled seconds of one iteration of a group, part by part; see `placement.cutting.cost`."""

    arithmetic: float
    cuts: float
    """Activations and their gradients."""
    gradients: float
    """The sum of shared gradients within the group."""
    outer: float
    """Synchronisation with other groups."""

    @property
    def total(self) -> float:
        return self.arithmetic + self.cuts + self.gradients + self.outer


@dataclass(frozen=True, slots=True)
class TagChoice:
    """What the tagger compared."""

    data_parallel: TagCost
    """All operators data-parallel."""
    cut: TagCost | None
    """With model-parallel operators: as tagged, or the cheapest such tags that were tried. None:
    there were none to try."""
    pinned: int
    """Operators whose tag was given."""


@dataclass(frozen=True, slots=True)
class TaggedNet:
    """Operators by host, in levels; between two levels lies a cut."""

    graph: Graph
    hosts: int
    tags: Mapping[str, int]
    """By operator, the loss included: DATA_PARALLEL or the one host that runs it."""
    levels: Mapping[str, int]
    """By source and operator: the segment that has it."""
    messages: tuple[tuple[Message, ...], ...]
    """By cut, in the order in which their content lies in a host's message."""
    precision: Literal["full", "float16", "bfloat16"] = "full"
    keep: float | None = None
    """Share of each example's values that crosses a cut (DCT); None: all."""
    mask: MaskOver = "table"
    """Of pooled embeddings: of each table's values, or of all of an example's."""
    outer: bool = False
    """Whether groups are synchronised with each other."""
    choice: TagChoice | None = None
    """Why the tags are these; None: they were not chosen."""

    @property
    def model_parallel(self) -> tuple[str, ...]:
        """Operators that one host runs for its group."""
        return tuple(o.name for o in self.graph.operators if self.tags[o.name] != DATA_PARALLEL)

    @property
    def cut_edges(self) -> int:
        """Values that an operator (or the loss) reads from where its tag is another."""
        readers = [(o.name, o.inputs) for o in self.graph.operators]
        readers.append((LOSS, (self.graph.logit,)))
        return sum(
            self.tags[value] != self.tags[name] for name, inputs in readers for value in inputs
        )

    @property
    def net(self) -> Net:
        """What the strategy sees."""
        cuts = tuple(Cut(index, "move", "move") for index in range(len(self.messages)))
        return Net(cuts, shares=any(self.shared(o) for o in self.graph.operators))

    def shared(self, operator: Operator) -> bool:
        """Whether an operator has parameters at every host."""
        return bool(operator.parameters) and self.tags[operator.name] == DATA_PARALLEL

    def operators(self, host: int, level: int) -> tuple[Operator, ...]:
        """What a host runs between two cuts, in order."""
        return tuple(
            operator
            for operator in self.graph.operators
            if self.levels[operator.name] == level and self.tags[operator.name] in (-1, host)
        )

    def held(self, host: int) -> tuple[str, ...]:
        """Operators whose parameters a host holds: the shared ones, then its own."""
        shared = [o.name for o in self.graph.operators if self.shared(o)]
        own = [o.name for o in self.graph.operators if self.tags[o.name] == host]
        return (*shared, *own)

    @property
    def shared_numbers(self) -> int:
        """Parameters that every host holds."""
        return sum(o.elements for o in self.graph.operators if self.shared(o))

    def elements(self, host: int) -> int:
        """Parameters that a host holds."""
        return sum(self.graph.operator(name).elements for name in self.held(host))

    def answered(self, host: int) -> list[tuple[int, int]]:
        """Ranges of the flat parameters that a host answers for towards other groups.

        Its share of what all hosts hold, then its own; see `shared_slice`.
        """
        offsets = self.graph.offsets()
        first, last = self.shared_slice(host)
        ranges, position = [], 0
        for name in self.held(host):
            operator = self.graph.operator(name)
            size = operator.elements
            low, high = 0, size
            if self.shared(operator):
                low, high = max(0, first - position), min(size, last - position)
            if high > low:
                ranges.append((offsets[name] + low, offsets[name] + high))
            position += size
        return ranges

    def shared_slice(self, host: int) -> tuple[int, int]:
        """The part of the shared parameters (which lie first at every host) of one host."""
        whole = self.shared_numbers
        return whole * host // self.hosts, whole * (host + 1) // self.hosts

    def answered_start(self, host: int) -> int:
        """Where a host's elements start when those of all hosts lie side by side.

        In this order a central copy holds them.
        """
        return sum(stop - start for h in range(host) for start, stop in self.answered(h))

    def answered_elements(self, host: int) -> int:
        """How many elements a host answers for."""
        return sum(stop - start for start, stop in self.answered(host))

    def numbers(self, message: Message, batch: int) -> int:
        """Numbers in a message, ``batch`` examples per host."""
        examples = batch * self.hosts if message.rows == ALL else batch
        return examples * self.graph.width(message.value)

    def mask_width(self, value: str) -> int:
        """Values that compete for their places: all of an example's, or, of pooled embeddings, one
        table's."""
        by_table = value == POOLED and self.mask == "table"
        return self.graph.dim if by_table else self.graph.width(value)

    def masked(self, message: Message, value_bytes: int) -> bool:
        """Whether only the largest entries of each example cross: where that is less."""
        if self.keep is None or message.value == FEATURES:
            return False
        width = self.mask_width(message.value)
        return kept(width, self.keep) * (value_bytes + position_bytes(width)) < width * value_bytes

    def bytes_of(self, message: Message, batch: int, value_bytes: int, *, backward: bool) -> int:
        """Bytes of a message, ``batch`` examples per host."""
        numbers, width = self.numbers(message, batch), self.mask_width(message.value)
        if not self.masked(message, value_bytes):
            return numbers * (value_bytes if self.precision == "full" else 2)
        assert self.keep is not None
        each = value_bytes + (0 if backward else position_bytes(width))
        return numbers // width * kept(width, self.keep) * each

    def sent(
        self, cut: int, host: int, batch: int, value_bytes: int, *, backward: bool
    ) -> tuple[int, ...]:
        """Bytes that a host has for each host at a cut."""
        totals = [0] * self.hosts
        for m in self.messages[cut]:
            source, target = (m.target, m.source) if backward else (m.source, m.target)
            if source == host:
                totals[target] += self.bytes_of(m, batch, value_bytes, backward=backward)
        return tuple(totals)


Rule = Literal["linear", "fm_vectors", "fm_columns", "sum", "cross", "gather", "pairs"]


@dataclass(frozen=True, slots=True)
class Partial:
    """One substituted operator's place in the fused buffer.

    linear: x0[k] W[k]^T; fm_vectors: sum of vectors and of their squares' sums; fm_columns: the
    whole operator over own columns; sum: own linear weights; cross: x0[k] w[k] and (biases)[k] w[k]
    of every cross layer and of the logit's weights on their result; gather: the vectors themselves,
    zero elsewhere; pairs: dot products over own columns.
    """

    operator: str
    rule: Rule
    width: int


@dataclass(frozen=True, slots=True)
class SubstitutedNet:
    """The net after equivalent substitution; all workers alike but for the slice they own."""

    graph: Graph
    hosts: int
    partition: Literal["field", "hash", "column"]
    top: Literal["replicated", "split"]
    partials: tuple[Partial, ...]
    before: tuple[str, ...]
    """Operators that run everywhere before the partial results (a DLRM's bottom)."""
    rest: tuple[str, ...]
    """Operators that follow the sum."""
    fields: tuple[tuple[int, ...], ...]
    """By worker, the tables that it owns; partition field only."""
    split: tuple[tuple[str, int], ...]
    """(operator, parameter) whose first tables * dim columns are used by partial results."""

    @property
    def width(self) -> int:
        """Numbers per example in the fused buffer (n_out)."""
        return sum(partial.width for partial in self.partials)

    @property
    def skipped(self) -> frozenset[str]:
        """Operators that never run: partial results and what follows their sum do their work."""
        rules = {partial.rule for partial in self.partials}
        names = {"input"} if "linear" in rules else set()
        if "cross" in rules:
            names |= {"towers", *(o.name for o in self.graph.operators if o.kind == "cross")}
        return frozenset(names)

    @property
    def sum_cut(self) -> int:
        """Index of the cut at which partial results are summed."""
        return 1 if self.before else 0

    @property
    def net(self) -> Net:
        """What the strategy sees."""
        combine = (
            Cut(self.sum_cut, "sum", "none")
            if self.top == "replicated"
            else Cut(self.sum_cut, "scatter", "gather")
        )
        first = (Cut(0, "none", "sum"),) if self.before else ()
        return Net((*first, combine), shares=bool(self.shared_numbers))

    @property
    def sparse_columns(self) -> int:
        """Columns of a split parameter that belong to embeddings; those of features follow."""
        return self.graph.tables * self.graph.dim

    @property
    def shared_columns(self) -> tuple[tuple[str, int, int, int], ...]:
        """(operator, parameter, first, last column + 1) whose gradients are summed over workers.

        By id every worker has a part of each embedding column's gradient; with a split top each
        worker has its examples' part of all the others.
        """
        columns = []
        cut = self.sparse_columns
        for operator in self.graph.operators:
            if operator.name in self.before:
                continue
            for index, shape in enumerate(operator.parameters):
                is_split = (operator.name, index) in self.split
                first, last = (cut, shape[-1]) if is_split else (0, shape[-1])
                if is_split and self.partition == "hash":
                    first = 0
                    last = shape[-1] if self.top == "split" else cut
                elif self.top == "replicated":
                    continue
                if last > first:
                    columns.append((operator.name, index, first, last))
        return tuple(columns)

    @property
    def shared_numbers(self) -> int:
        """Numbers in the gradient that is summed over the workers."""
        return sum(
            (last - first) * prod(self.graph.operator(name).parameters[index][:-1])
            for name, index, first, last in self.shared_columns
        )

    def owned(self, host: int) -> tuple[int, ...]:
        """Embedding columns (table * dim + column) that a worker's slice fills."""
        tables, dim = self.graph.tables, self.graph.dim
        if self.partition == "hash":
            return tuple(range(tables * dim))
        if self.partition == "field":
            return tuple(t * dim + c for t in self.fields[host] for c in range(dim))
        first, last = column_range(dim, self.hosts, host)
        return tuple(t * dim + c for t in range(tables) for c in range(first, last))


def column_range(dim: int, hosts: int, host: int) -> tuple[int, int]:
    """Columns (first, last + 1) of every row that a worker owns."""
    return dim * host // hosts, dim * (host + 1) // hosts


NetProgram = TaggedNet | SubstitutedNet


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
