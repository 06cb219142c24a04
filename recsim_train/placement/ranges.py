"""Names that differ by one number each, written as one: "trainer[0..19].worker"."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"(\d+)")


def together(names: Iterable[str]) -> list[str]:
    """The names in their order, with those in a row that count one number up as one name."""
    runs: list[tuple[list[str], list[str]]] = []
    """(the first name, the last one), in words and numbers."""
    for name in names:
        parts = _NUMBER.split(name)
        if runs and _goes_on(*runs[-1], parts):
            runs[-1] = runs[-1][0], parts
        else:
            runs.append((parts, parts))
    return [
        "".join(a if a == b else f"{a}..{b}" for a, b in zip(first, last, strict=True))
        for first, last in runs
    ]


def _goes_on(first: list[str], last: list[str], parts: list[str]) -> bool:
    """Whether a name is the next one of those from ``first`` to ``last``."""
    if len(last) != len(parts):
        return False
    counted = [k for k, (a, b) in enumerate(zip(first, last, strict=True)) if a != b]
    moved = [k for k, (a, b) in enumerate(zip(last, parts, strict=True)) if a != b]
    if len(moved) != 1 or counted not in ([], moved):
        return False
    before, after = last[moved[0]], parts[moved[0]]
    return moved[0] % 2 == 1 and after == str(int(before) + 1)
