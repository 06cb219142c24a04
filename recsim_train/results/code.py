"""The code that decides a result, as a digest: this package's sources, the versions of libraries
that figures depend on, and the sources of strategies and parts that come from elsewhere."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from recsim_train.results.environment import versions
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.parts import Part
from recsim_train.strategy.registry import NamedStrategy, create

_PACKAGE = Path(__file__).resolve().parent.parent
_PROCESS = os.urandom(8).hex()


def code_of(choices: Iterable[NamedStrategy] = ()) -> str:
    """Of all that predicts and measures with these strategies: 12 hexadecimal digits. A commit that
    leaves the sources as they are does not count, a change that is not committed does."""
    owners = {o for c in choices for piece in _pieces(create(c)) for o in type(piece).__mro__}
    whole = [_own(), *sorted(set(filter(None, map(_elsewhere, owners))))]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:12]


def made_anew(what: object, was: str | None, now: str) -> str:
    """The sentence for what ``--resume`` does not take: which code it is of, and which runs now."""
    return f"note: {what}: made by other code ({was or 'not known which'}; now {now}), so made anew"


def _pieces(made: Strategy | Part) -> Iterator[Strategy | Part]:
    yield made
    for field in dataclasses.fields(made):  # type: ignore[arg-type]  # every one is a dataclass
        value = getattr(made, field.name)
        if isinstance(value, Part):
            yield from _pieces(value)


@cache
def _own() -> str:
    """This package's and its libraries', as they were when this was first asked. What is no Python
    counts, too: templates and words of pages."""
    return f"{versions()} {_digest(_PACKAGE, _PACKAGE.rglob('*'))}"


@cache
def _elsewhere(owner: type) -> str:
    """Of a class's package, or of its file where that is in none; empty where it is ours or
    Python's. A class of a notebook has no file: nobody can say that it is the one of before."""
    name = owner.__module__
    top = name.partition(".")[0]
    if top == "recsim_train" or top in sys.stdlib_module_names:
        return ""
    file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
    if not file.is_file():
        return f"{_PROCESS} {id(owner)}"
    if "." not in name and file.name != "__init__.py":
        return _digest(file.parent, [file])
    folder = Path(getattr(sys.modules.get(top), "__file__", None) or file).parent
    return _digest(folder, folder.rglob("*.py"))


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    """Of names and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file() and "__pycache__" not in path.parts:
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
