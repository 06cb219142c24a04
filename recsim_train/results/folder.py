"""Folders that results go into, and the documents that are read back from them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from recsim_train.config.errors import UserError


def writable(folder: Path) -> None:
    """Make a folder, parents too. Raises UserError where it can not be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: can not be used as a folder: {error.strerror}") from None
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
        raise ValueError(f"{path.name} can not be read") from None


def clean(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinity become null, tuples lists."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [clean(v) for v in items]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return clean(dataclasses.asdict(value))
    item = getattr(value, "item", None)  # a numpy scalar
    if callable(item) and getattr(value, "shape", None) == ():
        return clean(item())
    return str(value)
