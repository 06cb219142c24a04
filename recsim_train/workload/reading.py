"""The operation ``reading``: what a reader makes at a time, as counts of priced work.

A reader thread beside a loop makes several small batches together, and the generator does so for
whoever asks it; a reader process parses text batch by batch. In text, rows of other readers' loops
lie between a loop's own: they are passed over, which takes time, too.
"""

from __future__ import annotations

from recsim_train.workload.arithmetic import Work
from recsim_train.workload.scope import Scope

ROWS_TOGETHER = 1024
"""Rows that are made at a time: small batches alone are dear."""


def together(examples: int) -> int:
    """How many batches of so many examples are made at a time."""
    return max(1, ROWS_TOGETHER // examples)


def reading(s: Scope) -> Work:
    """A reader: make ``batches`` batches, from Criteo text or by the generator."""
    rows = s.batch * s.batches
    if s.text:
        calls = 30.0 * s.batches
        work = {"parse_row": rows, "call": calls, "interpreter": calls}
        return {**work, "skip_row": s.skipped} if s.skipped else work
    # tables of several ids are drawn one by one, all others side by side
    tables = len(s.model.tables)
    several = sum(table.ids > 1 for table in s.model.tables)
    calls = (30 + 2 * tables) * s.batches + 100 + 20 * tables + 20 * several
    return {"synthesize_row": rows, "synthesize_id": s.ids, "call": calls, "interpreter": calls}
