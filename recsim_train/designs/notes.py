"""What a search has found so far, in a file: an interrupted one goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recsim_train.results.environment import versions
from recsim_train.results.folder import put, writing
from recsim_train.signals import note_finished

Stage = int | None
"""A round of simulations; None: a look."""


class Notes:
    """Rows by design and round, one on each line of a file; without a file nothing is kept."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        """``resume``: what the file has is known, if this version of the tool wrote it. Raises
        RunFailed where it cannot be written."""
        self._path = path
        self._known: dict[tuple[str, Stage], Mapping[str, Any]] = {}
        if path is None:
            return
        head = json.dumps({"versions": versions()}, sort_keys=True)
        lines = self._lines(path) if resume else []
        if not lines or lines[0] != head:
            with writing(path):
                path.write_text(f"{head}\n", encoding="utf-8")
            return
        good = [head]
        for line in lines[1:]:
            with suppress(ValueError, KeyError):  # the last one of a process that was killed
                kept = json.loads(line)
                self._known[kept["design"], kept["stage"]] = kept["row"]
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

    def known(self, design: str, stage: Stage) -> Mapping[str, Any] | None:
        """A row that was found before. ``design``: by the identity of its job."""
        return self._known.get((design, stage))

    def add(self, design: str, stage: Stage, row: Mapping[str, Any]) -> None:
        """Keep a row. Raises RunFailed where the disk does not take it."""
        if self._path is None:
            return
        line = json.dumps({"design": design, "stage": stage, "row": row}, ensure_ascii=False)
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        note_finished()

    def close(self) -> None:
        """The search is done: nothing is left to go on from."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
