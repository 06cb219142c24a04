"""Tables as wide as the terminal that lose no digit: what does not fit is a further table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2
_WORDS = 24
"""Width below which text is not folded further."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; its cells are plain text."""

    name: str
    cells: Sequence[str]
    words: bool = False
    """Text that may be folded, to the left; else figures, which never are, to the right."""

    def width(self, most: int = _WORDS) -> int:
        """Characters that it needs at least."""
        from rich.cells import cell_len

        widest = max(cell_len(text) for text in (self.name, *self.cells))
        return min(widest, max(most, cell_len(self.name))) if self.words else widest


def tables(columns: Sequence[Column], width: int, bad: Sequence[int] = ()) -> list[Table]:
    """The columns in as many tables as it takes; each begins with the first column.

    ``bad``: rows in red.
    """
    lead, *others = columns
    first = lead.width(max(8, width // 3))
    blocks: list[list[Column]] = [[]]
    used = first
    for column in others:
        needed = _GAP + column.width()
        if used + needed > width and blocks[-1]:
            blocks.append([])
            used = first
        blocks[-1].append(column)
        used += needed
    return [_table([lead, *block], bad) for block in blocks]


def _table(columns: Sequence[Column], bad: Sequence[int]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify = "left" if column.words else "right"
        table.add_column(
            column.name,
            justify=justify,  # type: ignore[arg-type]
            overflow="fold",
            no_wrap=not column.words,
        )
    for number, row in enumerate(zip(*(c.cells for c in columns), strict=True)):
        table.add_row(*map(escape, row), style="red" if number in bad else None)
    return table
