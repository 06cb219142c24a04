"""Points of a sweep as contenders for the fastest: repeats together, with interval and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recsim_train.report.winner import Entry, choose, hull
from recsim_train.results.statistics import median

Row = dict[str, Any]
REPEATS = "seed"
"""Points that differ only here are repeats: their median counts."""
_ROLES = ("trainers", "embedding_servers", "dense_servers", "readers")


def best_row(rows: Sequence[Row]) -> Row:
    """The fastest row, of those that tie the cheapest; of repeats the middle one counts."""
    return choose(contenders(rows)).preferred.item


def contenders(rows: Sequence[Row]) -> list[Entry[Row]]:
    """Rows with a throughput; of repeats the middle one, with the range of all of them."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(_without_repeats(row)), []).append(row)
    return [_contender(group) for group in groups.values()]


def _contender(group: Sequence[Row]) -> Entry[Row]:
    row = _middle(group)
    found = [float(r["examples_per_second"]) for r in group]
    intervals = [
        (row["eps_low"], row["eps_high"]),
        (row["calibration_low"], row["calibration_high"]),
    ]
    repeats = [(min(found), max(found))] if len(found) > 1 else []
    cost = (
        sum(int(row[role] or 0) for role in _ROLES),
        float(row.get("cores") or 0.0),
        int(row["trainers"] or 0) * int(row["threads"] or 0),
    )
    return Entry(row, float(row["examples_per_second"]), hull(*intervals, *repeats), cost)


def _without_repeats(row: Row) -> list[Any]:
    values = [row["strategy"], row["options"], row["profile"]]
    figures = list(row)[1 : list(row).index("strategy")]
    return values + [row[key] for key in figures if key != REPEATS]


def _middle(rows: Sequence[Row]) -> Row:
    middle = median([float(r["examples_per_second"]) for r in rows])
    return min(rows, key=lambda r: abs(float(r["examples_per_second"]) - middle))
