"""The three renderers, on a document that is about nothing."""

from __future__ import annotations

import ast
import inspect
import io

import pytest
from rich.console import Console

from recsim_train.report.document import (
    Cards,
    Cell,
    Chapter,
    Document,
    Lines,
    Picture,
    TableColumn,
    TextTable,
    Tile,
    Timeline,
    Where,
)
from recsim_train.report.publish import markdown, page
from recsim_train.report.terminal import show

EVIL = "[bold]<b>|`*"
TABLE = TextTable(
    [
        TableColumn("name", [EVIL, "two"], words=True),
        TableColumn("a long name", ["1", Cell("2", "good")], brief="short"),
        TableColumn("on paper", ["3", "4"], where=Where.PAGE),
    ],
    marks={1: "fault"},
)
DOCUMENT = Document(
    subject=EVIL,
    kind="looked at",
    heading=f"Looked at {EVIL}",
    headlines=[f"headline {EVIL}"],
    tiles=[Tile(EVIL, Cell(EVIL, "good", hover=EVIL), EVIL)],
    words={f"word {EVIL}": EVIL, "sum": EVIL},
    items=[
        Lines([f"mind {EVIL}."], title=f"Mind {EVIL}", lead=EVIL, mark="off"),
        Chapter(
            EVIL,
            [
                TABLE,
                TextTable(TABLE.columns, Where.PAGE, folded=EVIL, foot=[EVIL, "sum", ""]),
                Chapter(f"part {EVIL}", [Lines([f"said {EVIL}."]), Lines([])]),
                Chapter("nothing", [Lines([]), Chapter("within", [])]),
                Picture("p", EVIL, "<svg></svg>", b"", Where.WRITTEN),
                Timeline(EVIL, [EVIL]),
                Cards([(EVIL, [(EVIL, EVIL)])]),
                Lines([EVIL], Where.PAGE, mark="code"),
            ],
        ),
    ],
)


def shown(document: Document, width: int = 200) -> str:
    out = io.StringIO()
    show(document, Console(file=out, width=width))
    return out.getvalue()


def test_the_page_escapes_everything() -> None:
    text = page(DOCUMENT)
    assert "<b>|" not in text
    assert text.count("&lt;b&gt;|") >= 20
    for words in ("a long name", "on paper", '<tr class="fault">', '<span class="good">2</span>'):
        assert words in text
    assert "nothing" not in text


def test_markdown_takes_text_as_text() -> None:
    text = markdown(DOCUMENT)
    assert EVIL not in text
    assert "| two | 2 |" in text
    assert "on paper" not in text
    assert text.startswith("# Looked at \\[bold\\]\\<b>\\|\\`\\*\n\n- headline ")
    assert "## Mind" in text
    assert "### part" in text  # a section within a section
    assert "nothing" not in text


def test_the_terminal_prints_what_is_there() -> None:
    text = shown(DOCUMENT)
    assert text.splitlines()[0] == f"headline {EVIL}."
    for words in (f"{EVIL}: mind {EVIL}.", f"part {EVIL}", f"  said {EVIL}.", "short"):
        assert words in text
    assert "a long name" not in text
    assert "on paper" not in text
    assert "nothing" not in text


@pytest.mark.parametrize("width", [20, 200])
def test_what_does_not_fit_is_a_further_table(width: int) -> None:
    columns = [
        TableColumn("n", ["x"], words=True),
        *(TableColumn(f"c{k}", ["1" * 9]) for k in range(3)),
    ]
    text = shown(Document(items=[TextTable(columns)]), width)
    assert text.count("1" * 9) == 3
    assert text.count("n ") == (3 if width == 20 else 1)


def test_a_table_of_several_rows_says_their_order() -> None:
    many = TextTable.filled({"n": ["1", "2"], "empty": ["–", "–"]}, order="as they came")
    assert [column.name for column in many.columns] == ["n"]
    document = Document(items=[Chapter("", [many])])
    for text in (shown(document, 80), markdown(document), page(document)):
        assert text.count("Order: as they came.") == 1
    one = TextTable.filled({"n": ["1"]}, order="as they came")
    assert "Order" not in shown(Document(items=[one]), 80)


@pytest.mark.parametrize("renderer", [page, markdown, show])
def test_a_renderer_knows_of_documents_only(renderer: object) -> None:
    """What a report is about is the business of who composes it."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(renderer)))  # type: ignore[arg-type]
    known = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("recsim_train.")
        for alias in node.names
    }
    files = ("recsim_train.results.folder.put", "recsim_train.results.folder.writing")
    shown = "recsim_train.config.errors.harmless"
    drawn = ("recsim_train.report.drawing.svg_for_page", "recsim_train.report.publish.page")
    allowed = ("recsim_train.report.document", "recsim_train.__version__", *drawn, *files, shown)
    assert all(name.startswith(allowed) for name in known), known
