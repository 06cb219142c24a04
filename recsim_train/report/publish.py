"""The files of a report: its page, which needs nothing else, Markdown for a README or a pull
request, and figures; or a part of a page for a notebook.

In HTML everything is escaped but our own drawings. The page forbids the browser to fetch anything,
and to run any script but the one it holds, which sorts tables and shows what is pointed at: without
it, everything can be read.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from recsim_train import __version__
from recsim_train.report import document as doc
from recsim_train.report.document import Document, Picture, Where, visible
from recsim_train.report.drawing import svg_for_page
from recsim_train.results.folder import put, writing

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_HEADLINES = 6
MOST_SENTENCES = 4
"""Of a box; the others are opened on demand."""


def page(document: Document) -> str:
    """The whole page."""
    script = (resources.files("recsim_train.report") / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = _environment(document.words).get_template("page.html.j2")
    return template.render(
        document=document, most=MOST_HEADLINES, version=__version__, script=script, digest=digest
    )


def fragment(items: Sequence[doc.Item], headlines: Sequence[str] = ()) -> str:
    """Items for a notebook's output, which has styles of its own."""
    environment = _environment({})
    environment.globals["sorts"] = False
    template = environment.get_template("page.html.j2").module
    said = "".join(f"<p><b>{html.escape(headline)}.</b></p>" for headline in headlines)
    return said + str(template.show(items))  # type: ignore[attr-defined]


def _environment(words: Mapping[str, str]) -> Environment:
    """Jinja's, with what the template asks for. ``words``: the glossary."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("recsim_train.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known = {form.lower(): meaning for word, meaning in words.items() for form in forms(word)}
    environment.filters |= {
        "unbroken": unbroken,
        "kind": lambda item: type(item).__name__,
        "visible": lambda items: visible(items, Where.PAGE),
        "svg": lambda picture: Markup(svg_for_page(picture)),
        "meaning": lambda name: known.get(str(name).lower(), ""),
        "explained": lambda shown: explained(str(shown), words),
    }
    environment.globals |= {"PAGE": Where.PAGE, "most_sentences": MOST_SENTENCES, "sorts": True}
    return environment


def explained(shown: str, words: Mapping[str, str]) -> dict[str, str]:
    """Those of the words that a piece of HTML shows, with their meanings."""
    text = html.unescape(re.sub(r"<(style|svg).*?</\1>|<[^>]*>", " ", shown, flags=re.DOTALL))
    text = re.sub(r"\s+", " ", text)

    def said(form: str) -> bool:
        case = 0 if form.isupper() else re.IGNORECASE
        return bool(re.search(rf"(?<![\w-]){re.escape(form)}s?(?![\w-])", text, case))

    return {word: means for word, means in words.items() if any(map(said, forms(word)))}


def forms(word: str) -> list[str]:
    """What a word of the glossary is also called: it names those in brackets."""
    first, _, others = word.partition(" (")
    return [first, *filter(None, others.rstrip(")").split(", "))]


def unbroken(sentence: str) -> str:
    """Keep numbers with their units and signs on one line."""
    kept = re.sub(
        r"(\d) (%|[kMG]?examples/s|ms|s|µs|ns|[KMGT]iB|B)(?!\w)", "\\1\u00a0\\2", sentence
    )
    return kept.replace("± ", "±\u00a0")


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
