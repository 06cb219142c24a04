"""The manual is short, current and whole: no history, no long sentences, no dead links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import manual
from tests.docs.manual import EVERYWHERE, GENERATED, LOG, PAGES, REFERENCE, ROOT

LINES_OF_README = 80
WORDS_OF_A_SENTENCE = 45
MOST_WORDS = 24_000
"""Outside of the reference and the log."""
MOST_WORDS_OF_REFERENCE = 8_000
"""Written by hand."""
HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
CLOCK = re.compile(r"(?<![\d:])(?:[01]?\d|2[0-3]):[0-5]\d(?![\d:])")
PLACES = ("recsim_train", "experiments", "cluster_profiles", "benchmarks", "notebooks", "tests")
"""What names pages of the manual."""


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def history(text: str) -> list[str]:
    """What belongs into the log: commits, times of day, what was so until a commit."""
    text = manual.uncoded(text)
    return [*HASH.findall(text), *CLOCK.findall(text), *re.findall(r"until commit", text)]


def too_long(text: str) -> list[str]:
    found = manual.sentences(manual.prose(text))
    return [said for said in found if len(manual.words(said)) > WORDS_OF_A_SENTENCE]


def dead(page: Path, text: str) -> list[str]:
    """Links that lead nowhere."""

    def there(target: str) -> bool:
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or not anchor:
            return place.exists()
        return anchor in manual.anchors(text if place == page else read(place))

    return [target for target in manual.links(text) if not there(target)]


@pytest.mark.parametrize("page", [p for p in PAGES if p not in GENERATED], ids=manual.name)
def test_no_page_tells_history(page: Path) -> None:
    assert history(read(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=manual.name)
def test_no_sentence_is_long(page: Path) -> None:
    assert too_long(read(page)) == []


@pytest.mark.parametrize("page", EVERYWHERE, ids=manual.name)
def test_no_link_is_dead(page: Path) -> None:
    assert dead(page, read(page)) == []


def test_the_readme_is_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= LINES_OF_README


def counted(pages: list[Path]) -> int:
    return sum(len(manual.words(manual.prose(read(page)))) for page in pages)


def test_the_manual_is_short() -> None:
    assert counted([page for page in PAGES if REFERENCE not in page.parents]) <= MOST_WORDS
    by_hand = [page for page in REFERENCE.glob("*.md") if page not in GENERATED]
    assert counted(by_hand) <= MOST_WORDS_OF_REFERENCE


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "tasks"])
def test_a_page_of_a_task_is_one_that_the_readme_or_the_first_page_leads_to(page: Path) -> None:
    assert f"](tasks/{page.name})" in read(ROOT / "docs" / "index.md")


def test_what_the_program_and_its_files_name_of_the_manual_is_there() -> None:
    named = 0
    for file in (f for place in PLACES for f in (ROOT / place).rglob("*")):
        if file.suffix not in (".py", ".yaml", ".ipynb", ".j2") or file == Path(__file__):
            continue
        for path in re.findall(r"\bdocs/[\w/.-]+\.(?:md|csv|svg|png)\b", read(file)):
            named += 1
            assert (ROOT / path).is_file(), f"{file.relative_to(ROOT)} names {path}"
    assert named > 10


def test_every_page_that_has_moved_is_listed_and_gone() -> None:
    moved = re.findall(r"^\| `(docs/[\w.-]+)` \|", read(ROOT / "docs" / "moved.md"), re.MULTILINE)
    assert len(moved) >= 14
    assert [old for old in moved if (ROOT / old).exists()] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("measured by 9174f9e\n", ["9174f9e"]),
        ("at 14:26 it was\n", ["14:26"]),
        ("so it was until commit x\n", ["until commit"]),
        ("a ratio of 4:1, 2026-11-26, defaced, 1234567\n", []),
        ("```\nat 14:26 by 9174f9e\n```\n", []),
    ],
)
def test_history_is_found(text: str, found: list[str]) -> None:
    assert history(text) == found


def test_long_sentences_are_found_and_tables_are_none() -> None:
    long = " ".join(["word"] * 46)
    assert too_long(f"{long}.\n\nShort.\n") == [f"{long}."]
    assert too_long(f"| {long} |\n\n```\n{long}\n```\n\n{long[:200]}.\n") == []
    assert too_long(f"{' '.join(['word'] * 40)}.\n\n- {' '.join(['word'] * 40)}\n") == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A `title`: here\n\n## Twice\n\n## Twice\n")
    good = "[a](other.md#a-title-here) [b](other.md#twice-1) [c](#own)\n\n## Own\n"
    page.write_text(good)
    assert dead(page, good) == []
    assert dead(page, "[a](other.md#title) [b](gone.md) [c](#own) <https://x.org>\n") == [
        "other.md#title", "gone.md", "#own",
    ]  # fmt: skip


def test_the_log_is_there() -> None:
    assert sorted(LOG.glob("*.md"))
