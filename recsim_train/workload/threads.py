"""Operations on several threads: which operators they share, what that takes, and what the cores
spend on it. No torch.

An operator is divided where it is large enough, whatever the number of threads: torch's
element-wise work and copies of more than `GRAIN` numbers (`at::internal::GRAIN_SIZE`), sums of as
many; our interaction from twice `CREW` examples on. Its matrix products (MKL's) are, unless one
side is a vector, and so are sums of bags of ids, and the log loss. All other compiled loops of
our own run on the calling thread. Seen by counting the parallel regions that torch 2 begins; it is
MKL that decides whether such a region of a product uses more than one thread, and on some
processors a small one's does not (docs/explain/cores.md).

An operation's seconds on one thread are those of its priced work. Of the operators that are
divided, what took P seconds of one of the classes in `CLASSES` takes
P (s + (1 - s) / k) on k threads, s being the class's serial share (Amdahl 1967). All else stays on
the calling thread: small operators, calls, the interpreter, other compiled loops. Threads that wait
sleep, so that the CPU seconds are P still, besides an overhead of P o (k - 1): threads that stall
because memory is shared, or work that is done twice. They cannot be busy for longer than k times
the wall time, P (1 + s (k - 1)): so o is at most s.

Each such operator wakes the pool and waits for it, once or, as some products do, twice. That takes
the same wall time each time, whatever its work and however many threads there are, and CPU time of
the caller and of every further thread.
Where operators are small it decides: more threads can be slower than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from recsim_train.config.cluster import USUAL, ThreadClass, Threads
from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Piece, Work, add, operator_work
from recsim_train.workload.graph import FEATURES, POOLED, Graph, Operator, graph_of
from recsim_train.workload.scope import NOTHING, Divided, Scope

GRAIN = 1 << 15
"""Numbers; an operator on more of them is divided, and each thread gets as many at least."""
CREW = 64
"""Examples that are worth waking a thread of a crew for (`recsim_train.executor.pools`)."""

_LOSS = 1
_ELEMENTWISE = {"fm": (3, 5), "sum": (1, 0), "cross": (3, 7), "add": (1, 0)}
"""Of the operators of a net: torch's on all numbers that are read, forward and backward."""
_WIDE = 4
"""Those that put the gradients of vectors and of linear weights into the gradient of rows."""


def wakes(graph: Graph, piece: Piece) -> dict[str, int]:
    """How often one operator of a net wakes the pool, by class of the work that is divided."""
    operator = graph.operator(piece.operator)
    found = _linear(graph, operator, piece) if operator.kind == "linear" else _other(graph, piece)
    return {group: count for group, count in found.items() if count}


def _linear(graph: Graph, operator: Operator, piece: Piece) -> dict[str, int]:
    """Products, and the bias and the ReLU with their gradients, and the weights' gradient put
    among the others."""
    inputs, out = graph.inputs(operator) * piece.share, operator.width
    forward, backward = piece.phase != "backward", piece.phase != "forward"
    # of products with a bias MKL makes one region, of others two; of those with a vector none
    products = forward + 2 * backward * (1 if operator.inputs[0] == FEATURES else 2)
    numbers = piece.examples * out
    copies = forward * (1 + operator.relu) + backward * operator.relu
    streams = copies * (numbers > GRAIN) + backward * (numbers >= GRAIN)
    return {
        "products": products * (out > 1 and piece.examples > 1),
        "streams": streams + backward * (inputs * out > GRAIN),
    }


def _other(graph: Graph, piece: Piece) -> dict[str, int]:
    operator = graph.operator(piece.operator)
    forward, backward = piece.phase != "backward", piece.phase != "forward"
    if operator.kind == "dot":
        return {"pairs": (forward + backward) * (piece.examples >= 2 * CREW)}
    if operator.kind == "concat":  # where they lie table by table, vectors are copied first
        large = [n for n in operator.inputs if piece.examples * graph.width(n) > GRAIN]
        return {"streams": forward * (len(large) + (POOLED in large))}
    if operator.kind == "module":
        assert graph.counted is not None
        passes = zip((forward, backward), graph.counted, strict=True)
        return {"products": sum(counts.products for done, counts in passes if done)}
    counts = _ELEMENTWISE[operator.kind]
    numbers = piece.examples * graph.inputs(operator) * piece.share
    return {"streams": (forward * counts[0] + backward * counts[1]) * (numbers > GRAIN)}


def _piece(s: Scope, piece: Piece) -> Divided:
    """Of an operator's work what belongs to those that are divided."""
    graph = graph_of(s.model)
    operator, found = graph.operator(piece.operator), wakes(graph, piece)
    work = dict(operator_work(s.model, piece))
    if operator.kind == "linear":
        # the weights' bytes are the products', the others those of vectors as wide as the output
        out, inputs = operator.width, graph.inputs(operator) * piece.share
        vectors = 6 * piece.examples * out * (piece.examples * out > GRAIN)
        weights = 3 * inputs * out * ("products" in found)
        whole = 6 * piece.examples * out + 3 * inputs * out
        work["stream_byte"] *= (vectors + weights) / whole
        if "products" not in found:
            del work["gemm_flop"]
    elif operator.kind == "module":  # of which sizes its other operators are is not known
        work = {"gemm_flop": work["gemm_flop"]} if found else {}
    elif not found:
        work = {}
    return Divided(work, sum(found.values()))


def _pieces(s: Scope, pieces: tuple[Piece, ...]) -> Divided:
    found = [_piece(s, piece) for piece in pieces]
    return Divided(add(*(part.work for part in found)), sum(part.wakes for part in found))


def forward_backward(s: Scope) -> Divided:
    """The net's operators, and of rows that come one by one the sums of their bags."""
    found = _pieces(s, tuple(Piece(o.name, s.batch) for o in graph_of(s.model).operators))
    numbers = len(s.model.tables) * s.batch * s.model.row_width
    apart = _WIDE * (s.model.has_wide and numbers > GRAIN)
    found = found._replace(wakes=found.wakes + _LOSS * (s.batch > 1) + apart)
    if s.pooling == "server" or not shape.many(s.model):
        return found
    row, bags = shape.row_bytes(s.model), s.tables * s.batch
    summed = {"index_element": s.ids, "stream_byte": row * (s.ids + bags)}
    return Divided(add(found.work, summed), found.wakes + 1)


def segment(s: Scope) -> Divided:
    """Operators, and what is put together for a cut."""
    found = _pieces(s, s.pieces)
    if s.numbers <= GRAIN:
        return found
    return Divided(
        add(found.work, {"stream_byte": 4 * s.numbers * shape.value_bytes(s.model)}),
        found.wakes + 2,
    )


def last_segment(s: Scope) -> Divided:
    """`segment`, with the loss."""
    found = segment(s)
    return found._replace(wakes=found.wakes + _LOSS * (s.batch > 1))


def lookup_pooled(s: Scope) -> Divided:
    """Bags of several ids are torch's work, single rows our own."""
    if not shape.many(s.model):
        return NOTHING
    row, read = shape.row_bytes(s.model), s.ids + s.tables * s.batch
    far = {"gather_row": s.unique, "gather_byte": row * s.unique}
    return Divided({**far, "stream_byte": row * read}, 1)


def route_gradient(s: Scope) -> Divided:
    """Vectors of bags are picked by torch, table by table where these are large, rows by our
    own."""
    table = s.batch * s.model.row_width
    if s.pooling == "worker" or s.tables * table <= GRAIN:
        return NOTHING
    moved = {"stream_byte": 2 * s.tables * table * shape.value_bytes(s.model)}
    return Divided(moved, s.tables if table > GRAIN else 1)


def streams(cost: Callable[[Scope], Work], operators: int) -> Callable[[Scope], Divided]:
    """All bytes of an operation that is so many operators on ``elements`` numbers."""

    def divided_of(s: Scope) -> Divided:
        work = {"stream_byte": cost(s)["stream_byte"]}
        return Divided(work, operators) if s.elements > GRAIN else NOTHING

    return divided_of


CLASSES: Mapping[str, ThreadClass] = {
    name: usual.shared for name, usual in USUAL.items() if usual.shared is not None
}
"""The class of every price whose work operators share among threads: a field of `Threads`."""


class Gains(NamedTuple):
    """What several threads change, in seconds."""

    saved: float
    """Taken off the wall time of one thread; negative where waking takes longer."""
    added: float
    """CPU seconds besides those of one thread."""
    pool: float
    """Of all CPU seconds, those of the further threads."""


NONE = Gains(0.0, 0.0, 0.0)


def by_class(work: Work, prices: Mapping[str, float]) -> dict[str, float]:
    """Seconds on one thread by class; what only one thread can do is left out."""
    found: dict[str, float] = {}
    for name, units in work.items():
        if name in CLASSES:
            group = CLASSES[name]
            found[group] = found.get(group, 0.0) + units * prices[name]
    return found


def shared(
    work: Work, prices: Mapping[str, float], law: Threads, threads: int
) -> tuple[float, float]:
    """(seconds that ``threads`` threads take off the time of one, CPU seconds that they add)."""
    saved = added = 0.0
    for group, seconds in by_class(work, prices).items():
        scaling = law.of(group)
        saved += seconds * (1.0 - scaling.serial) * (1.0 - 1.0 / threads)
        added += seconds * min(scaling.overhead, scaling.serial) * (threads - 1)
    return saved, added


def gains(
    divided: Divided, prices: Mapping[str, float], law: Threads, threads: int, ratio: float = 1.0
) -> Gains:
    """What ``threads`` threads change; ``ratio``: of the work's seconds to those of its prices."""
    if threads == 1:
        return NONE
    saved, added = (ratio * part for part in shared(divided.work, prices, law, threads))
    wake, wakes = law.wake, divided.wakes
    further = wakes * wake.pool * (threads - 1)
    return Gains(
        saved - wakes * wake.wall, added + wakes * wake.caller + further, saved + added + further
    )
