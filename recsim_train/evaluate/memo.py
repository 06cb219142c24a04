"""What was evaluated before, in a file: whatever is interrupted goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recsim_train.evaluate.levels import Level
from recsim_train.results.folder import clean, put, writing
from recsim_train.results.row import FAILED, Row, row_from
from recsim_train.signals import note_finished


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """What a memo's file holds, in the order in which it was found: ``code``, ``case``, ``level``
    and ``row`` of each line; nothing where there is no file. A line that is none is left out: the
    last one of a process that was killed."""
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("row"), dict):
                known = {"code": None, "case": "", "level": "", **entry}
                yield known | {"row": row_from(entry["row"])}


class Memo:
    """Rows by case and level, one on each line of a file; without a file nothing is kept."""

    def __init__(self, path: Path | None = None, code: str = "", *, resume: bool = False) -> None:
        """``resume``: what the file has of this ``code`` is known, but for what failed without
        taking too long, which may be the disk's fault; what it has of other code stays in it.
        Raises RunFailed where it cannot be written."""
        self._path, self._code = path, code
        self._known: dict[tuple[str, str], Row] = {}
        self.others: list[str | None] = []
        """Of each row of other code, which."""
        if path is None:
            return
        kept = list(entries(path)) if resume else []
        for entry in kept:
            row = entry["row"]
            if entry["code"] != code:
                self.others.append(entry["code"])
            elif row.status != FAILED or row.too_long:
                self._known[entry["case"], entry["level"]] = row
        with writing(path):  # so that nothing is added to half a line
            put(path, "".join(map(_line, kept)).encode())

    def __len__(self) -> int:
        return len(self._known)

    def known(self, case: str, level: Level) -> Row | None:
        """A row that was found before. ``case``: its identity."""
        return self._known.get((case, level.name))

    def add(self, case: str, level: Level, row: Row) -> None:
        """Keep a row. Raises RunFailed where the disk does not take it."""
        if self._path is None:
            return
        entry = {"code": self._code, "case": case, "level": level.name, "row": row}
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line(entry))
        note_finished()

    def close(self) -> None:
        """What it was for is done: nothing is left to go on from."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def _line(entry: Mapping[str, Any]) -> str:
    return f"{json.dumps(clean(entry), ensure_ascii=False)}\n"
