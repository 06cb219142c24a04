"""Costs of the operations of a compression; see `recsim_train.workload.operations`.

A threshold is found by quickselect, which handles two to 3.4 pairs of (value, place) for each
value, depending on how many are kept (Knuth, The Art of Computer Programming 3, 5.2.2): counted as
three. Where the threshold is known, values only stream past it.
"""

from __future__ import annotations

from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.compression import INDEX_BYTES
from recsim_train.workload.divided import streams
from recsim_train.workload.scope import Op, Scope

_SELECT = 3
_NEIGHBOURS = 64
"""Values that are compared together."""
_POSITION = 8
"""Bytes of a place in memory."""


def threshold(s: Scope) -> Work:
    """``elements`` values in ``tables`` tensors: their sum with the residual, then a selection."""
    return {
        "stream_byte": 5 * shape.value_bytes(s.model) * s.elements,
        "index_element": _SELECT * s.elements,
        "call": 4 * s.tables + 4,
        "interpreter": 4 * s.tables + 3,
    }


def _taken(s: Scope) -> float:
    """Values that are looked at one by one: those that are kept, and their neighbours."""
    return 0.5 * min(s.elements, _NEIGHBOURS * s.kept) + 4 * s.kept


def sparsify(s: Scope) -> Work:
    """``elements`` values pass known thresholds, ``kept`` of them are taken out."""
    value = shape.value_bytes(s.model)
    return {
        # the sum with the residual, and the comparison
        "stream_byte": 4 * value * s.elements + 3 * (value + INDEX_BYTES) * s.kept,
        "index_element": _taken(s),
        "call": 38,
        "interpreter": 16,
    }


def threshold_difference(s: Scope) -> Work:
    """As `threshold`, without the sum with a residual."""
    return {
        "stream_byte": 2 * shape.value_bytes(s.model) * s.elements,
        "index_element": _SELECT * s.elements,
        "call": 4 * s.tables + 3,
        "interpreter": 4 * s.tables + 2,
    }


def sparsify_difference(s: Scope) -> Work:
    """As `sparsify`, but nothing is added before and nothing set to zero afterwards."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": value * s.elements + 3 * (value + INDEX_BYTES) * s.kept,
        "index_element": _taken(s),
        "call": 37,
        "interpreter": 15,
    }


def densify(s: Scope) -> Work:
    """``shards`` members' vectors, ``kept`` entries in all, into one of ``elements``."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 3 * value * s.elements + 2 * (value + INDEX_BYTES) * s.kept,
        "index_element": s.kept,
        "call": 24 * s.shards + 6,
        "interpreter": 6 * s.shards + 4,
    }


def sparse_apply(s: Scope) -> Work:
    """Shard: one optimizer step at ``kept`` places."""
    plain = s.training.dense_optimizer == "sgd"
    streams = 3 if plain else 18  # as for a whole vector
    return {
        "stream_byte": streams * shape.value_bytes(s.model) * s.kept,
        "index_element": (2 if plain else 4) * s.kept,
        "call": 4 if plain else 14,
        "interpreter": 5 if plain else 11,
    }


def mask(s: Scope) -> Work:
    """The ``kept`` largest of ``elements`` values, row by row, put together to travel."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 4 * value * s.elements + 2 * (value + _POSITION) * s.kept,
        "index_element": _SELECT * s.elements + s.kept,
        "call": 14,
        "interpreter": 12,
    }


def unmask(s: Scope) -> Work:
    """``kept`` values back into ``elements``."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 3 * value * s.elements + 2 * (value + _POSITION) * s.kept,
        "index_element": s.kept,
        "call": 12,
        "interpreter": 10,
    }


def pick(s: Scope) -> Work:
    """``kept`` of ``elements`` values at known places."""
    return {
        "stream_byte": 2 * shape.value_bytes(s.model) * s.elements,
        "index_element": s.kept,
        "call": 4,
        "interpreter": 4,
    }


COMPRESSION: dict[str, Op] = {
    "threshold": Op(threshold, streams(threshold, 2), fit="dense"),
    "sparsify": Op(sparsify, fit="dense"),
    "threshold_difference": Op(threshold_difference, streams(threshold_difference, 1), fit="dense"),
    "sparsify_difference": Op(sparsify_difference, fit="dense"),
    "densify": Op(densify, streams(densify, 2), fit="dense"),
    "mask": Op(mask, fit="dense"),
    "unmask": Op(unmask, fit="dense"),
    "pick": Op(pick, fit="dense"),
    "unpick": Op(unmask, fit="dense"),
    "sparse_apply": Op(sparse_apply, fit="dense"),
}
