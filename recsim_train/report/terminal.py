"""A report on the terminal: tables as wide as it is that lose no digit, and sentences."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from recsim_train.config.errors import harmless
from recsim_train.report import document as doc
from recsim_train.report.document import Where, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_STYLES: dict[str, str] = {
    "good": "green", "off": "yellow", "fault": "red", "note": "dim", "strong": "bold",
}  # fmt: skip
_GAP = 2
_WORDS = 24
"""Width below which text is not folded further."""
_BLOCK = 156
"""Characters in a line of an indented block."""


def show(document: doc.Document, console: Console | None = None) -> None:
    """Print a report, on standard output if no console is given."""
    out = console or _console()
    for headline in document.headlines:
        out.print(f"{headline}.", style="bold", markup=False, soft_wrap=True)
    for number, item in enumerate(visible(document.items, Where.TERMINAL)):
        if number or document.headlines:
            out.print()
        _show(item, out)


def _console() -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Harmless(Console):
        def render(self, *asked: Any) -> Iterator[Segment]:
            for part in super().render(*asked):
                yield part if part.control else part._replace(text=harmless(part.text))

    made = Harmless(highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made = Harmless(highlight=False, width=140)  # a file or a pipe has no width to keep to
    return made


def _show(item: doc.Item, out: Console) -> None:
    match item:
        case doc.Chapter():
            for number, inner in enumerate(visible(item.items, Where.TERMINAL)):
                if isinstance(inner, doc.Chapter):
                    if number:
                        out.print()
                    out.print(inner.title, style="bold", markup=False)
                _show(inner, out)
        case doc.TextTable():
            for number, table in enumerate(tables(item.shown(Where.TERMINAL), out.width)):
                if number:
                    out.print()
                out.print(table)
            if item.ordered:
                out.print(item.ordered, style=_STYLES["note"], markup=False, soft_wrap=True)
        case doc.Lines():
            _lines(item, out)


def _lines(item: doc.Lines, out: Console) -> None:
    from rich.text import Text

    if item.lead or item.mark == "note":
        for sentence in item.sentences:
            style = _STYLES.get(item.mark, "")
            lead = Text(f"{item.lead}: " if item.lead else "", style)
            out.print(lead.append(sentence, "" if item.lead else style), soft_wrap=True)
        return
    if item.title:
        title = item.title[0].lower() + item.title[1:]
        out.print(title, style="bold", markup=False, soft_wrap=True)
    for sentence in item.sentences:
        for line in textwrap.wrap(sentence, _BLOCK):
            out.print(f"  {line}", markup=False, soft_wrap=True)


def tables(table: doc.TextTable, width: int) -> Iterator[RichTable]:
    """The columns in as many tables as it takes; each begins with the first column."""
    lead, *others = table.columns
    first = _width(lead, max(8, width // 3))
    blocks: list[list[doc.TableColumn]] = [[]]
    used = first
    for column in others:
        needed = _GAP + _width(column)
        if used + needed > width and blocks[-1]:
            blocks.append([])
            used = first
        blocks[-1].append(column)
        used += needed
    for block in blocks:
        yield _table(doc.TextTable([lead, *block], marks=table.marks))


def _name(column: doc.TableColumn) -> str:
    return column.brief or column.name


def _width(column: doc.TableColumn, most: int = _WORDS) -> int:
    from rich.cells import cell_len

    widest = max(cell_len(text) for text in (_name(column), *(cell.text for cell in column.marked)))
    return min(widest, max(most, cell_len(_name(column)))) if column.words else widest


def _table(table: doc.TextTable) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        made.add_column(
            _name(column),
            justify="left" if column.words else "right",
            overflow="fold",
            no_wrap=not column.words,
        )
    for mark, cells in table.rows:
        texts: Sequence[Text] = [Text(cell.text, _STYLES.get(cell.mark, "")) for cell in cells]
        made.add_row(*texts, style=_STYLES.get(mark))
    return made
