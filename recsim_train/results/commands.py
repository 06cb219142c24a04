"""The command line that made a run, as somebody else may repeat it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_WITH_VALUE = ("--out",)
_ALONE = ("--json", "--resume", "--dry-run")


def repeatable(command: Sequence[str]) -> list[str]:
    """``command`` without where its output goes, and with paths as seen from here.

    A simulated run's directory must not depend on the folder it was made in, and a reader of a
    report does not share that folder either.
    """
    found: list[str] = []
    skip = False
    for argument in command:
        if skip:
            skip = False
        elif argument in _WITH_VALUE:
            skip = True
        elif argument not in _ALONE and not argument.startswith(
            tuple(f"{w}=" for w in _WITH_VALUE)
        ):
            found.append(_near(argument))
    return found


def _near(argument: str) -> str:
    key, equals, value = argument.partition("=")
    text = value if equals else key
    if not os.path.isabs(text):
        return argument
    path = Path(text)
    with_cwd = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return f"{key}={with_cwd}" if equals else os.fspath(with_cwd)
