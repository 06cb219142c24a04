"""Folders that results go into, and the documents that are read back from them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from recsim_train.config.errors import UserError


def writable(folder: Path) -> None:
    """Make a folder, parents too. Raises UserError where it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be used as a folder: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: no permission to write there")


def put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a reader never meets half of it. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def read_json(path: Path) -> Any:
    """A document that results were written as. Raises OSError, and ValueError, which says what is
    wrong, for anything that is no JSON: NaN and infinity too, which Python would read."""

    def refused(text: str) -> NoReturn:
        raise ValueError(f"{path.name} holds {text}, which is no number")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refused(text)

    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_constant=refused, parse_float=finite)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"{path.name} cannot be read") from None
