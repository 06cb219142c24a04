"""Problems in what a user wrote: where, what, and the text that shows it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from recsim_train.config.errors import UserError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of a document: ("model", "tables", 3, "rows")."""

_SHOWN = 120


def dotted(path: KeyPath) -> str:
    """The name of a place as users write it: model.tables[3].rows."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def suggest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known word that is nearest, or nothing."""
    by_lower = {k.lower().replace("-", "_"): k for k in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


def shown(value: object) -> str:
    """A short picture of a wrong value, as YAML shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, or a ``--set`` argument (then ``line`` is 0)."""

    where: str
    """File as the user named it, or ``--set key=value``."""
    line: int = 0
    """From 1."""
    column: int = 0
    """From 1."""
    text: str = ""
    """The source line."""

    def __str__(self) -> str:
        return f"{self.where}:{self.line}:{self.column}" if self.line else self.where

    def excerpt(self) -> str:
        """The source line with a caret under the column; empty for a ``--set`` argument."""
        if not self.line or not self.text.strip():
            return ""
        start = max(0, self.column - 1 - _SHOWN // 2) if len(self.text) > _SHOWN else 0
        line = self.text[start : start + _SHOWN]
        lead = self.text[start : self.column - 1]
        pad = "".join(c if c == "\t" else " " for c in lead)
        return f"    {line}\n    {pad}^"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    mark: Mark
    key: str
    """Dotted name of the setting; empty for the document as a whole."""
    message: str

    def __str__(self) -> str:
        head = f"{self.mark}: {self.key}: " if self.key else f"{self.mark}: "
        lines = [head + self.message]
        if picture := self.mark.excerpt():
            lines.append(picture)
        return "\n".join(lines)


class ConfigErrors(UserError):  # noqa: N818 - several
    """Everything that is wrong with one document."""

    def __init__(self, problems: Iterable[Problem], file: str) -> None:
        # Command-line settings come after the file they were applied to.
        self.problems = sorted(
            problems, key=lambda p: (p.mark.line == 0, p.mark.line, p.mark.column)
        )
        self.file = file
        count = len(self.problems)
        typed = all(problem.mark.where.startswith("--set ") for problem in self.problems)
        closing = f"{count} problem{'' if count == 1 else 's'} in {'--set' if typed else file}"
        super().__init__("\n".join([*map(str, self.problems), closing]))


KEY: Final = -1
"""Behind the path of a value: where its key stands."""


class Marks(dict[KeyPath, Mark]):
    """Where each value of a document stands, and each key, which is below its value."""

    def locate(self, path: KeyPath, *, at_key: bool = False) -> Mark:
        """The mark of a value (or of its key), or of the nearest thing around it."""
        if at_key and (*path, KEY) in self:
            return self[*path, KEY]
        if path in self:
            return self[path]
        # A key that is missing from a section is shown at the section's own key.
        around = (path[:length] for length in range(len(path) - 1, 0, -1))
        found = (self.get((*above, KEY)) or self.get(above) for above in around)
        return next(filter(None, found), self[()])

    def replace(self, path: KeyPath, mark: Mark) -> None:
        """Everything at ``path`` and below now comes from ``mark``."""
        for old in [p for p in self if p[: len(path)] == path]:
            del self[old]
        self[path] = self[*path, KEY] = mark


@dataclass(slots=True)
class Mistakes:
    """Collects the problems of one document, so that all are shown at once."""

    marks: Marks
    file: str
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: KeyPath, message: str, *, at_key: bool = False) -> None:
        """Record a problem of the value at ``path``, or of the key itself."""
        self.add_at(self.marks.locate(path, at_key=at_key), dotted(path), message)

    def add_at(self, mark: Mark, key: str, message: str) -> None:
        """Record a problem of what is written at ``mark``."""
        problem = Problem(mark, key, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def raise_any(self) -> None:
        """Raise ConfigErrors if anything was found."""
        if self.problems:
            raise ConfigErrors(self.problems, self.file)
