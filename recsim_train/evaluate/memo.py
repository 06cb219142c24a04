"""What was evaluated before, in a file: whatever is interrupted goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recsim_train.evaluate.levels import Level
from recsim_train.results.folder import put, writing
from recsim_train.signals import note_finished


class Memo:
    """Rows by case and level, one on each line of a file; without a file nothing is kept."""

    def __init__(self, path: Path | None = None, code: str = "", *, resume: bool = False) -> None:
        """``resume``: what the file has of this ``code`` is known, and that of other code stays in
        it. Raises RunFailed where it cannot be written."""
        self._path, self._code = path, code
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.others: list[str | None] = []
        """Of each row of other code, which."""
        if path is None:
            return
        good = []
        for line in self._lines(path) if resume else ():
            with suppress(
                ValueError, KeyError, TypeError
            ):  # the last one of a process that was killed
                kept = json.loads(line)
                found, made_by = {(kept["case"], kept["level"]): kept["row"]}, kept.get("code")
                if made_by == code:
                    self._known |= found
                else:
                    self.others.append(made_by)
                good.append(line)
        with writing(path):  # so that nothing is added to half a line
            put(path, "".join(f"{line}\n" for line in good).encode())

    @staticmethod
    def _lines(path: Path) -> list[str]:
        with suppress(OSError, UnicodeDecodeError):
            return path.read_text(encoding="utf-8").splitlines()
        return []

    def __len__(self) -> int:
        return len(self._known)

    def known(self, case: str, level: Level) -> Mapping[str, Any] | None:
        """A row that was found before. ``case``: its identity."""
        return self._known.get((case, level.name))

    def add(self, case: str, level: Level, row: Mapping[str, Any]) -> None:
        """Keep a row. Raises RunFailed where the disk does not take it."""
        if self._path is None:
            return
        kept = {"code": self._code, "case": case, "level": level.name, "row": row}
        line = json.dumps(kept, ensure_ascii=False)
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        note_finished()

    def close(self) -> None:
        """What it was for is done: nothing is left to go on from."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
