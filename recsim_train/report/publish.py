"""The files of a report: Markdown for a README or a pull request, its page, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from recsim_train.report import document as doc
from recsim_train.report.document import Document, Picture, Where, visible
from recsim_train.report.html import page
from recsim_train.results.folder import put, writing

REPORT = "the report "
"""What could not be written, as `writing` says it."""


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


def _table(columns: Sequence[doc.TableColumn]) -> list[str]:
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
