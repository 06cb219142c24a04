"""The page on the architecture names files that exist, each once on a way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain" / "architecture.md").read_text(encoding="utf-8")
WAYS = {
    title: re.findall(r"^\d+\. `(\S+)`:", body, re.MULTILINE)
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def test_every_file_of_the_page_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert len(named) > 50
    assert [path for path in named if not (ROOT / "recsim_train" / path).is_file()] == []


def test_every_room_of_the_page_exists_and_none_is_left_out() -> None:
    rooms = {path.parent.name for path in (ROOT / "recsim_train").glob("*/__init__.py")}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", PAGE)} == set()
    for room in re.findall(r"`(\w+)/`", PAGE):
        assert room in {*rooms, "recsim_train"}


@pytest.mark.parametrize("way", [title for title, steps in WAYS.items() if steps])
def test_no_file_is_visited_twice(way: str) -> None:
    assert len(WAYS[way]) == len(set(WAYS[way])) >= 10


def test_there_are_three_ways() -> None:
    assert sum(bool(steps) for steps in WAYS.values()) == 3
