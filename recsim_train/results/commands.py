"""The command line that made a run, as somebody else may repeat it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from recsim_train.results.folder import numbered

_CLUSTER = "--cluster"
_MAKING = ("simulate", "run")
_ALONE = ("--json", "--resume", "--dry-run")


def repeatable(command: Sequence[str]) -> list[str]:
    """``command`` without where its output goes, and with paths as seen from here.

    A simulated run's directory must not depend on the folder it was made in, and a reader of a
    report does not share that folder either.
    """
    return [_near(word) for word in _without(command, "--out") if word not in _ALONE]


def reproducing(runs: Iterable[tuple[Sequence[str], bool]], result: str = "") -> list[str]:
    """Command lines that make runs and their report anew: measure this machine where a profile was
    its own, predict, run, report.

    They write to a folder that does not exist here yet, so that nothing old is taken for new and
    nothing is overwritten. ``runs``: the `repeatable` commands that made them, and whether
    their profile was this machine's. ``result``: what lies in the folder afterwards and is
    reported; the folder itself where it is empty.
    """
    folder, profile = _free("again"), ""
    lines = []
    for command, local in runs:
        if len(command) < 2 or command[1] not in _MAKING:
            continue  # it was made from Python
        words = list(map(str, command))
        if local:
            profile = f"{folder}/local.yaml"
            words = [*_without(words, _CLUSTER), _CLUSTER, profile]
        lines.append(shlex.join([*words, "--out", folder]))
    if profile:
        lines.insert(0, shlex.join(["recsim-train", "calibrate", "--output", profile]))
    reported = f"{folder}/{result}" if result else folder
    lines.append(shlex.join(["recsim-train", "report", reported, "--out", f"{folder}-report"]))
    return list(dict.fromkeys(lines))


def local_profile(command: Sequence[str], otherwise: object) -> bool:
    """Whether a command predicts with this machine's own profile.

    ``otherwise``: the profile of the experiment, where the command names none.
    """
    given = [value for word, value in zip(command, command[1:], strict=False) if word == _CLUSTER]
    given += [word.partition("=")[2] for word in command if word.startswith(f"{_CLUSTER}=")]
    return (given[-1] if given else otherwise) == "local"


def _without(command: Sequence[str], option: str) -> Iterator[str]:
    skip = False
    for word in command:
        if not skip and word != option and not word.startswith(f"{option}="):
            yield word
        skip = not skip and word == option


def _free(name: str) -> str:
    """The first of name, name-2 ... that is not taken in the current folder."""
    return next(
        free
        for free in numbered(name)
        if not Path(free).exists() and not Path(f"{free}-report").exists()
    )


def _near(argument: str) -> str:
    key, equals, value = argument.partition("=")
    text = value if equals else key
    if not os.path.isabs(text):
        return argument
    path = Path(text)
    with_cwd = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return f"{key}={with_cwd}" if equals else os.fspath(with_cwd)
