"""The operation ``reading``: what a reader makes at a time, as counts of priced work.

A reader thread beside a loop makes several small batches together, and the generator does so for
whoever asks it; a reader process makes a file's batch by batch.
"""

from __future__ import annotations

from recsim_train.config.experiment import Model
from recsim_train.config.formats import GENERATED
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.scope import Scope

ROWS_TOGETHER = 1024
"""Rows that are made at a time: small batches alone are dear."""

_CALLS, _LIST_CALLS = 9.0, 7.0
"""Calls of compiled code that making a batch of a file takes, and each of its columns of lists: 15
and 12 microseconds, by batches of 96 rows against those of 1,024."""
_LIST_IDS = 7.0
"""A list takes what so many ids do, beside its own: 0.10 microseconds where an id takes 0.015, by
logs of six such columns."""

_DECODING = 0.4
"""Share of decoding in what a row takes: 0.24 of 0.66 microseconds of Criteo's columns, 0.07 of 0.2
of a list of four ids."""


def together(examples: int) -> int:
    """How many batches of so many examples are made at a time."""
    return max(1, ROWS_TOGETHER // examples)


def list_calls(model: Model) -> float:
    """Calls that a batch's columns of lists take, at whichever end they are taken apart."""
    return _LIST_CALLS * sum(table.variable for table in model.tables)


def reading(s: Scope) -> Work:
    """A reader: make ``batches`` batches, from a file or by the generator."""
    rows = s.batch * s.batches
    if s.source != GENERATED:
        again = 1.0 + _DECODING * (s.decoded - 1.0)
        lists = sum(table.variable for table in s.model.tables)
        calls = (_CALLS + list_calls(s.model)) * s.batches
        return {
            "read_row": rows * again,
            "read_number": rows * s.model.dense_features * again,
            "read_id": (s.ids - s.texts + _LIST_IDS * lists * rows) * again,
            "read_text": s.texts * again,
            "call": calls,
            "interpreter": calls,
        }
    tables = len(s.model.tables)
    calls = (4 + tables / 2) * s.batches + 75 + 23 * tables
    return {
        "synthesize_row": rows,
        "synthesize_id": _drawn(s, rows),
        "call": calls,
        "interpreter": calls,
    }


_EFFECT, _MEAN = 1 / 8, 1 / 2
"""What a hidden value of an id takes, and the mean of such over a bag, if drawing an id takes 1."""


def _drawn(s: Scope, rows: float) -> float:
    """Ids that are drawn for ``rows`` rows, and their part in the labels.

    That is of each id a hidden effect, of those in four tables a hidden vector of four values more.
    Bags of varying length are drawn as if each were the longest.
    """
    tables = s.model.tables
    values = 1 + 4 * (min(4, len(tables)) / len(tables) if len(tables) > 1 else 0)
    bags = rows * sum(table.ids > 1 for table in tables)
    drawn = rows * sum(table.ids for table in tables)
    return drawn + values * (_EFFECT * s.ids + _MEAN * bags)
