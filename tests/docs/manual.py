"""The manual as tests see it: its pages, their prose without tables and code, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOG, REFERENCE = DOCS / "log", DOCS / "reference"
GENERATED = [REFERENCE / f"{name}.md" for name in ("commands", "settings", "profile", "words")]
EVERYWHERE = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
"""All pages, the log and the changelog among them."""
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    + [page for page in DOCS.rglob("*.md") if LOG not in page.parents]
)
"""What a user reads."""

_WORD = re.compile(r"\w[\w'’./-]*")
_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)")
_SENTENCE = re.compile(r"(?<=[.!?])[)*\"”]*\s+")


def name(page: Path) -> str:
    """A page as failures name it."""
    return str(page.relative_to(ROOT))


def uncoded(text: str) -> str:
    """A page without blocks of code, comments and addresses."""
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("", text), flags=re.DOTALL)
    text = re.sub(r"(?<=\n\n) {4}\S.*?(?=\n\n|\Z)", "", text, flags=re.DOTALL)
    return re.sub(r"<?https?://\S+", "", text)


def prose(text: str) -> str:
    """A page without code, tables and targets of links; a name in code is one word."""
    text = _LINK.sub(r"\1", uncoded(text))
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("|")]
    return re.sub(r"`[^`]+`", "code", "\n".join(lines))


def words(text: str) -> list[str]:
    """The words of prose."""
    return _WORD.findall(text)


def sentences(text: str) -> Iterator[str]:
    """The sentences of prose; what a list has or a heading says ends with it."""
    for block in _BLOCK.split(text):
        yield from filter(None, map(str.strip, _SENTENCE.split(block)))


def links(text: str) -> list[str]:
    """Where a page leads to, addresses of the web left out."""
    found = [target for _, target in _LINK.findall(_FENCE.sub("", text))]
    return [target for target in found if not re.match(r"\w+:", target)]


def anchors(text: str) -> set[str]:
    """What links can name of a page: its headings, as GitHub writes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE):
        said = re.sub(r"[^\w\- ]", "", _LINK.sub(r"\1", heading).lower()).replace(" ", "-")
        again = (f"{said}-{n}" for n in range(1, 100))
        found.add(said if said not in found else next(a for a in again if a not in found))
    return found
