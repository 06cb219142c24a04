"""What is reported, whatever it is of: numbers, figures, words and tables, laid out for a notebook,
the terminal, Markdown and a page; and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recsim_train.report import document as doc
from recsim_train.report.document import Document, Picture, Where, visible
from recsim_train.report.html import fragment, page
from recsim_train.results.folder import json_bytes, put, writing
from recsim_train.signals import held

if TYPE_CHECKING:
    import pandas as pd

REPORT = "the report "
"""What could not be written, as `writing` says it."""


R = TypeVar("R", bound="Reported")
Figures = Iterable[Picture | None]
"""What matters most first; None: there is nothing to show in one."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Reported:
    """What was found, of runs, a sweep, a validation or designs."""

    compose: Callable[[Mapping[str, Picture]], Document] = lambda pictures: Document()
    """Lays out all of it, with those of its figures that are given by name."""
    draw: Callable[[], Figures] = tuple
    """Draws its figures."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """All of it as numbers, as ``--json`` prints them."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Figures of each comparison, point, configuration or design."""
    out: Path | None = None
    """The folder that it was written to; None: nowhere."""

    def __repr__(self) -> str:
        """On one line: the first finding."""
        return f"<{type(self).__name__}: {next(iter(self.report.headlines), 'nothing')}>"

    def _repr_html_(self) -> str:
        """In notebooks: what was found, the first table of the page, and the first figure."""
        chapters = [item for item in self.report.items if isinstance(item, doc.Chapter)]
        tables = (item for c in chapters for item in c.items if isinstance(item, doc.TextTable))
        first = next((table for table in tables if Where.PAGE in table.where), None)
        shown = [item for item in (first, self.plot()) if item is not None]
        return fragment(shown, self.report.headlines)

    def plot(self) -> Picture | None:
        """The first figure, which notebooks show; None where there is nothing to show in one."""
        return first_of(self.draw())

    @cached_property
    def report(self) -> Document:
        """All of it in words and tables."""
        said = self.compose({})
        if self.page is None:
            return said
        place = doc.Lines([str(self.page)], Where.TERMINAL, lead="page")
        return replace(said, items=[*said.items, place])

    @property
    def page(self) -> Path | None:
        """The HTML page; None: nothing was written."""
        return None if self.out is None else self.out / "report.html"

    def to_frame(self) -> pd.DataFrame:
        """One row for each of `rows`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def written(
        self: R,
        out: Path | None,
        short: str = "summary.md",
        numbers: Mapping[str, bytes] | None = None,
    ) -> R:
        """The same with its files in a folder that exists: its page, the Markdown file ``short``,
        figures/ and ``numbers`` by the files' names, or all of them in summary.json; None: nowhere.
        Raises RunFailed if the disk does not take them."""
        if out is None:
            return self
        pictures = by_name(self.draw())
        if numbers is None:
            numbers = {"summary.json": json_bytes(self.document)}
        publish(out, self.compose(pictures), pictures, short, numbers)
        return replace(self, out=out)


def by_name(drawn: Figures) -> dict[str, Picture]:
    """Every figure that there is something to show in."""
    return {picture.name: picture for picture in drawn if picture is not None}


def first_of(drawn: Figures) -> Picture | None:
    """The first of them, as wide as a notebook."""
    first = next((picture for picture in drawn if picture is not None), None)
    return None if first is None else replace(first, narrow="")


@held()
def publish(
    out: Path,
    report: Document,
    pictures: Mapping[str, Picture],
    short: str,
    numbers: Mapping[str, bytes],
) -> None:
    """Write figures/, the Markdown file ``short``, report.html and the files of ``numbers`` into an
    existing folder. Raises RunFailed if the disk does not take them."""
    with writing(out, REPORT):
        for name, content in numbers.items():
            put(out / name, content)
        (out / "figures").mkdir(exist_ok=True)
        for picture in pictures.values():
            put(out / "figures" / f"{picture.name}.svg", picture.svg.encode("utf-8"))
            put(out / "figures" / f"{picture.name}.png", picture.png)
        put(out / short, markdown(report).encode("utf-8"))
        put(out / "report.html", page(report).encode("utf-8"))


def markdown(document: Document) -> str:
    """The file; figures are linked relative to it."""
    lines = [f"# {plain(document.heading)}", ""]
    lines += [*(f"- {plain(headline)}." for headline in document.headlines), ""]
    return "\n".join([*lines, *render(document.items)])


def render(items: Iterable[doc.Item], level: int = 2) -> Iterator[str]:
    """The lines of items, under titles of a level; each item ends with an empty line."""
    for item in visible(items, Where.MARKDOWN):
        match item:
            case doc.Chapter():
                yield from [f"{'#' * level} {plain(item.title)}", ""] if item.title else []
                yield from render(item.items, level + bool(item.title))
            case doc.TextTable():
                yield from [*_table(item.shown(Where.MARKDOWN).columns), ""]
                yield from [plain(item.ordered), ""] if item.ordered else []
            case Picture():
                yield from [f"![{plain(item.title)}](figures/{item.name}.svg)", ""]
            case doc.Lines():
                yield from _lines(item, level)


def _lines(item: doc.Lines, level: int) -> list[str]:
    title = plain(item.title)
    heading = f"**{title}:**" if item.mark == "fault" else f"{'#' * level} {title}"
    sentences = [plain(sentence) for sentence in item.sentences]
    said = [f"- {s}" for s in sentences] if item.listed else [" ".join(sentences)]
    return [*([heading, ""] if title else []), *said, ""]


def _table(columns: Sequence[doc.Column]) -> list[str]:
    rows = zip(
        *([column.name, *(cell.text for cell in column.marked)] for column in columns), strict=True
    )
    head, *body = ["| " + " | ".join(map(plain, row)) + " |" for row in rows]
    left = [column.words or column is columns[0] for column in columns]
    return [head, "|" + "".join("---|" if words else "---:|" for words in left), *body]


def plain(value: str) -> str:
    """Text that Markdown takes as text: no markup, no new cell."""
    for mark in ("\\", "|", "<", "*", "`", "[", "]"):
        value = value.replace(mark, f"\\{mark}")
    return value.replace("\n", " ")
