"""A report in short, for a README or a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recsim_train.report import document as doc
from recsim_train.report.document import Where, visible


def markdown(document: doc.Document) -> str:
    """The file; figures are linked relative to it."""
    lines = [f"# {plain(document.heading)}", ""]
    lines += [*(f"- {plain(headline)}." for headline in document.headlines), ""]
    return "\n".join([*lines, *render(document.items)])


def render(items: Iterable[doc.Item], level: int = 2) -> list[str]:
    """The lines of items, under titles of a level; each item ends with an empty line."""
    lines: list[str] = []
    for item in visible(items, Where.MARKDOWN):
        match item:
            case doc.Section():
                lines += [f"{'#' * level} {plain(item.title)}", ""] if item.title else []
                lines += render(item.items, level + bool(item.title))
            case doc.Table():
                lines += [*_table(item.shown(Where.MARKDOWN).columns), ""]
            case doc.Picture():
                lines += [f"![{plain(item.title)}](figures/{item.name}.svg)", ""]
            case doc.Lines():
                lines += _lines(item, level)
    return lines


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
