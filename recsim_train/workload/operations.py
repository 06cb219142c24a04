"""Costs of all named operations, as counts of priced work.

A cost is a mapping from a price's name in the cluster profile (`config.cluster.Costs`) to how many
units of it one invocation needs. Calibration fits the prices from micro-workloads with the same
counts, so the two cannot drift apart. No torch here: the kernels live in the executor under the
same names.

The counts describe our own kernels. They follow the algebra (flops of matrix products, bytes that
stream through memory, rows touched at random); constants that the algebra leaves open are absorbed
by the fitted prices. What one unit is: `recsim_train.workload.arithmetic` for a net's passes; of
element-wise work each vector that a kernel reads and each that it writes counts once, also where
both are one, so that `x += y` moves three; of a gather a row is counted once, of an update too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recsim_train.trace.ledger import READING
from recsim_train.workload import rows, shape, threads
from recsim_train.workload.arithmetic import LOSS, Piece, Work, add, operator_work
from recsim_train.workload.compression import COMPRESSION
from recsim_train.workload.graph import graph_of
from recsim_train.workload.reading import reading
from recsim_train.workload.scope import Op, Scope


def forward_backward(s: Scope) -> Work:
    """Forward and backward of the whole net with log loss: [batch] examples, one thread."""
    pieces = [Piece(operator.name, s.batch) for operator in graph_of(s.model).operators]
    work = add(LOSS, *(operator_work(s.model, piece) for piece in pieces))
    if s.pooling == "server":
        return work
    # the rows have just arrived, so that picking them is cheap: summed per bag, and their gradient
    # out of the bags' again; of each id its place is read, and its bag where that holds several
    row, bags = shape.row_bytes(s.model), s.tables * s.batch
    places = 2 * shape.ID_BYTES * s.ids * (3 if shape.many(s.model) else 1)
    picked = {
        "index_element": 2 * s.ids,
        "stream_byte": row * (4 * s.ids + bags + s.unique) + places,
        "call": 30,
        "interpreter": 14,
    }
    return add(work, picked)


def _vectors(vectors: float, interpreter: int, calls: int, operators: int) -> Op:
    """Element-wise work over ``elements`` values, done by so many operators of torch: ``vectors``
    read or written per element."""

    def work(s: Scope) -> Work:
        moved = vectors * s.elements * shape.value_bytes(s.model)
        return {"stream_byte": moved, "call": calls, "interpreter": interpreter}

    return Op(work, threads.streams(work, operators), fit="dense")


# square roots and divisions take the time of several more values
_SGD, _ADAGRAD = _vectors(3, 2, 1, operators=1), _vectors(18, 5, 8, operators=4)


def _step_rule(s: Scope) -> Op:
    return _SGD if s.training.dense_optimizer == "sgd" else _ADAGRAD


_STEP = Op(lambda s: _step_rule(s).cost(s), lambda s: _step_rule(s).divided(s), fit="dense")
"""One optimizer step over ``elements`` dense parameters."""


def _segment(s: Scope) -> Work:
    """Some operators of a net, and what they leave for a cut or take from one."""
    packing = {
        "stream_byte": 4 * s.numbers * shape.value_bytes(s.model),
        "call": 12,
        "interpreter": 6 + 2 * len(s.pieces),
    }
    return add(packing, *(operator_work(s.model, piece) for piece in s.pieces))


MESSAGES, ROUND_TRIPS = "messages in runs", "round trips"
MEETINGS = "collectives in runs"
"""Groups of what is fitted to runs of calibration's own programs, and to bare messages."""
CUT_NETS = "cut nets"
"""Group of the segments of nets that are cut."""
MODULES = "modules"
"""Group of passes of modules that were not timed: no profile knows its errors."""
_ENTRY: Work = {"interpreter": 5}
"""Every operation comes after another one, whose code is in the caches instead of its own."""


_SEGMENT = Op(_segment, threads.segment, fit=CUT_NETS, net_pass=True)
OPS: dict[str, Op] = {
    # of readers, ahead of loops
    READING: Op(reading, fit=READING),
    # local, asked for by strategies
    "deduplicate": Op(rows.deduplicate, fit="deduplicate"),
    "forward_backward": Op(
        forward_backward, threads.forward_backward, fit="forward_backward", net_pass=True
    ),
    "apply": _STEP,
    "load": _vectors(2, 2, 1, operators=1),
    "snapshot": _vectors(2, 2, 3, operators=1),
    "subtract": _vectors(3, 2, 1, operators=1),
    "towards": _vectors(5, 4, 5, operators=2),
    "interpolate": _vectors(3, 2, 1, operators=1),
    "block_step": _vectors(13, 7, 10, operators=5),
    "accumulate": _vectors(3, 2, 1, operators=1),
    "drain": _vectors(3, 3, 4, operators=2),
    # on a net that is cut over hosts
    "net_open": _SEGMENT,
    "net_forward": _SEGMENT,
    "net_receive": _SEGMENT,
    "net_backward": Op(
        lambda s: add(LOSS, _segment(s)),  # of the last operators, which leave the loss
        threads.last_segment,
        fit=CUT_NETS,
        net_pass=True,
    ),
    "net_return": _SEGMENT,
    "net_gradients": _SEGMENT,
    "net_apply": _STEP,
    "net_whole": _vectors(3, 6, 8, operators=3),
    # as if all of it were shared by the group, so that kept-back moves are subtracted from it
    "net_answered": _vectors(5, 5, 6, operators=2),
    "net_towards": _vectors(10, 8, 9, operators=4),
    "net_move": _vectors(3, 5, 5, operators=2),
    "row_numbers": Op(rows.row_numbers, fit="lookup"),
    "virtual_ids": Op(rows.virtual_ids, fit="deduplicate"),
    "probe": Op(rows.probe, fit="lookup"),
    "fill": Op(rows.fill, fit="update"),
    "cached_rows": Op(rows.cached_rows, fit="lookup"),
    "update_cached": Op(rows.update_cached, fit="update"),
    "flush": Op(rows.fetch_rows, fit="lookup"),
    # the client's side of Lookup and Update
    "route_ids": Op(rows.route_ids, fit="client"),
    "assemble_rows": Op(rows.assemble_rows, fit="client"),
    "route_gradient": Op(rows.route_gradient, threads.route_gradient, fit="client"),
    # on both sides of requests that are rounded: as dear as a copy of the wide numbers
    "narrow": _vectors(2, 2, 4, operators=1),
    "widen": _vectors(2, 2, 4, operators=1),
    # served by shards
    "lookup_pooled": Op(rows.lookup_pooled, threads.lookup_pooled, fit="lookup"),
    "lookup_rows": Op(rows.lookup_rows, fit="lookup"),
    "update_pooled": Op(rows.update_pooled, fit="update"),
    "update_rows": Op(rows.update_rows, fit="update"),
    "fetch_rows": Op(rows.fetch_rows, fit="lookup"),
    "store_rows": Op(rows.store_rows, fit="update"),
    "dense_read": _vectors(2, 2, 1, operators=1),
    "dense_apply": _STEP,
    "dense_elastic": _vectors(8, 4, 7, operators=3),
    "dense_elastic_new": _vectors(10, 5, 8, operators=4),
    # what a compression does on either side
    **COMPRESSION,
}
"""Every operation by name: those that strategies ask for, those of services and of readers. The
executor has one kernel for each."""


def cost(name: str, scope: Scope) -> Work:
    """Counts of priced work for one invocation of the operation ``name``.

    Raises KeyError for an unknown operation.
    """
    return add(OPS[name].cost(scope), _ENTRY)


def seconds(
    work: Work, prices: Mapping[str, float], *, queued: bool = False
) -> tuple[float, float]:
    """(all seconds, those that hold the interpreter lock) of some work on one idle core.

    ``prices``: seconds per unit, by cost name. ``queued``: whether threads queue for the lock. A
    call out of Python gives it up, and has it back at once where it ends before a thread that waits
    has woken, ``handover`` seconds later on the mean. Both times vary: exponentially distributed
    ones of means c and h give the shorter of the two a mean of c h / (c + h), for which the lock is
    as good as held.
    """
    total = sum(units * prices[name] for name, units in work.items())
    held = sum(work[name] * prices[name] for name in LOCK_HELD if name in work)
    calls = work.get("interpreter", 0.0)
    if calls:
        held += calls * prices["interpreter"]
        outside = max(0.0, total - held)
        if queued and outside > 0.0:
            waking = calls * prices["handover"]
            held += outside * waking / (outside + waking)
    return total, min(total, held)


class OperationTime(NamedTuple):
    """Of one call on a modelled host, as a prediction says it: the mean over a process's calls."""

    seconds: float
    locked: float
    """Of these, seconds that hold the interpreter lock."""


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """What operations take in one process on a modelled host."""

    cores: int
    operations: dict[str, OperationTime]
    """By name."""


COOLED = (
    "effect", "asking", "request", "row_request", "message", "gloo_message", "collective_message",
)  # fmt: skip
"""Prices of what the work between two of them makes dearer
(`recsim_train.config.cluster.Cooling`)."""
LOCK_HELD = ("effect", "asking", "request", "row_request", "feed_batch")
"""Prices whose seconds hold the process's interpreter lock, besides calls out of Python."""
