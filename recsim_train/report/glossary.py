"""The glossary: ``words.md``, of which a report shows what it uses, and the manual all."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from importlib import resources

from recsim_train.report import naming

REPORTS, ITERATION, CODE = (
    "Words of reports", "What an iteration consists of", "Words of the code",
)  # fmt: skip
"""Its sections."""


@functools.cache
def source() -> str:
    """The whole file, Markdown."""
    return (resources.files("recsim_train.report") / "words.md").read_text(encoding="utf-8")


@functools.cache
def section(title: str) -> dict[str, str]:
    """Meanings by word, as plain text."""
    (found,) = (part for part in source().split("## ") if part.startswith(title))
    lines = re.findall(r"^\| (.+?) \| (.+) \|$", found, re.MULTILINE)[1:]
    return {_plain(word): _plain(meaning) for word, meaning in lines}


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")


def glossary(effects: Collection[str]) -> dict[str, str]:
    """The words of reports, and what the iterations consist of that one shows."""
    shown = {naming.effect(name) for name in effects}
    parts = {word.partition(" (")[0]: means for word, means in section(ITERATION).items()}
    return section(REPORTS) | {word: means for word, means in parts.items() if word in shown}
