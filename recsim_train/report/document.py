"""What a report says, whatever it is about: composed once, and rendered for the terminal, as
Markdown and as a page by code that knows of nothing but these classes. Nothing in it is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Any, TypeVar

from recsim_train.report.text import NONE


class Where(Flag):
    """Who shows an item."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()
    SHORT = TERMINAL | MARKDOWN
    WRITTEN = MARKDOWN | PAGE
    ALL = SHORT | PAGE


class Item:
    """What a report is made of."""

    __slots__ = ()
    where: Where


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with what a renderer may emphasise it by."""

    text: str
    mark: str = ""
    """good, off (doubtful), fault, note (beside the matter) or strong; the page frames a chip."""
    swatch: str = ""
    """A colour that the figures use for it."""
    hover: str = ""
    """What the page says of it to who points at it, such as our own name of it."""


@dataclass(frozen=True, slots=True)
class TableColumn(Item):
    """One column of a table."""

    name: str
    cells: Sequence[str | Cell]
    words: bool = False
    """Text that may be folded, to the left; else figures, which never are, to the right."""
    where: Where = Where.ALL
    brief: str = ""
    """Its name on the terminal, if it has a shorter one."""

    @property
    def marked(self) -> list[Cell]:
        """The cells, all of one type."""
        return [Cell(cell) if isinstance(cell, str) else cell for cell in self.cells]


@dataclass(frozen=True, slots=True)
class TextTable(Item):
    """Columns side by side, the first of which names the rows."""

    columns: Sequence[TableColumn]
    where: Where = Where.ALL
    marks: Mapping[int, str] = field(default_factory=dict)
    """Of rows, by their number from 0."""
    foot: Sequence[str] = ()
    """The page's last row: the whole."""
    folded: str = ""
    """A title: the page opens the table on demand."""
    order: str = ""
    """Of its rows, in words; said of two or more."""

    @classmethod
    def of(
        cls,
        heads: Sequence[str],
        rows: Iterable[Sequence[str | Cell]],
        words: Sequence[str] = (),
        **more: Any,
    ) -> TextTable:
        """From rows, with the names of the columns, and those of them that hold words."""
        cells = list(zip(*rows, strict=True)) or [()] * len(heads)
        named = zip(heads, cells, strict=True)
        return cls([TableColumn(head, column, head in words) for head, column in named], **more)

    @classmethod
    def filled(
        cls,
        columns: Mapping[str, Sequence[str | Cell]],
        words: Sequence[str] = (),
        within: Mapping[str, Where] | None = None,
        **more: Any,
    ) -> TextTable:
        """From columns by their names, without those that have nothing to show. ``words``: the
        names of those that hold words; ``within``: of those that not all show, who does."""
        shown = [
            TableColumn(name, cells, name in words, (within or {}).get(name, Where.ALL))
            for name, cells in columns.items()
            if any(cell != NONE for cell in cells)
        ]
        return cls(shown, **more)

    def shown(self, where: Where) -> TextTable:
        """The table with the columns that are shown there."""
        return replace(self, columns=visible(self.columns, where))

    @property
    def ordered(self) -> str:
        """A sentence about the order of its rows; empty where none is to be said."""
        several = self.order and len(self.columns[0].cells) > 1
        return f"Order: {self.order}." if several else ""

    @property
    def rows(self) -> Iterator[tuple[str, Sequence[Cell]]]:
        """Rows with their marks."""
        for number, cells in enumerate(zip(*(c.marked for c in self.columns), strict=True)):
            yield self.marks.get(number, ""), cells


@dataclass(frozen=True, slots=True)
class Lines(Item):
    """Sentences that belong together."""

    sentences: Sequence[str]
    where: Where = Where.ALL
    title: str = ""
    lead: str = ""
    """What each of them begins with on the terminal, in place of the title above them."""
    mark: str = ""
    """As of cells; the page puts off and fault into a box. Or "code": lines to copy."""
    listed: bool = True
    """Else they are one paragraph."""


@dataclass(frozen=True, slots=True)
class Picture(Item):
    """One finished figure; Markdown links its file."""

    name: str
    title: str
    """What it shows, in words: the page's caption and the text for those who cannot see it."""
    svg: str = field(repr=False)
    png: bytes = field(repr=False)
    where: Where = Where.PAGE
    narrow: str = field(default="", repr=False)
    """The page's for narrow windows."""

    def _repr_svg_(self) -> str:
        """In notebooks."""
        return self.svg


@dataclass(frozen=True, slots=True)
class Timeline(Item):
    """A file beside the page for ui.perfetto.dev, and what it leaves out."""

    file: str
    notes: Sequence[str]
    where: Where = Where.PAGE


@dataclass(frozen=True, slots=True)
class Cards(Item):
    """(title, (term, meaning) pairs) side by side."""

    cards: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    where: Where = Where.PAGE


@dataclass(frozen=True, slots=True)
class Chapter(Item):
    """Items under a title. The terminal leaves the titles of sections out and shows those of
    sections within sections."""

    title: str
    items: Sequence[Item]
    where: Where = Where.ALL
    name: str = ""
    """Its address on the page."""
    folded: bool = False
    """The page opens it on demand."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A card at the top of the page: what, how much, and what follows."""

    title: str
    figure: Cell
    """In large type."""
    said: str = ""
    """In small type: its interval, or what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    subject: str = ""
    kind: str = ""
    """What is done with the subject: "predicted against measured"."""
    heading: str = ""
    """Of the Markdown file."""
    headlines: Sequence[str] = ()
    """The findings, without full stops."""
    tiles: Sequence[Tile] = ()
    items: Sequence[Item] = ()
    footer: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    """A glossary, of which the page explains the words that it shows."""


T = TypeVar("T", bound=Item)


def visible(items: Iterable[T], where: Where) -> list[T]:
    """Those of the items that are shown there and have something to show."""
    return [item for item in items if where in item.where and _filled(item, where)]


def _filled(item: Item, where: Where) -> bool:
    match item:
        case Chapter(items=items):
            return bool(visible(items, where))
        case TextTable(columns=columns):
            return bool(columns and columns[0].cells)
        case Lines(sentences=content) | Cards(cards=content):
            return bool(content)
    return True


def stopped(sentences: Iterable[str]) -> list[str]:
    """Sentences with their full stops."""
    return [f"{sentence}." for sentence in sentences]
