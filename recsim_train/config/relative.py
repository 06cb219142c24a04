"""Overrides of what settings are otherwise, such as ``cluster.hosts.*.nic=x1.25``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from recsim_train.config.overrides import EVERY
from recsim_train.config.problems import KeyPath, Mistakes
from recsim_train.config.sets import Assignment, Sets, parse_sets
from recsim_train.config.validate import of_path
from recsim_train.config.yaml_source import YamlDocument

_TIMES = re.compile(r"x(\d+(?:\.\d+)?)")


M = TypeVar("M", bound=BaseModel)


def read_with(
    sets: Sets, given: Sequence[str | Assignment], model: type[M], read: Callable[[], M]
) -> M:
    """What ``read`` makes of a document of this model once the overrides are in it, of which those
    that say how many times follow the others."""
    items = parse_sets(given, sets.mistakes)
    relative = [item for item in items if _is_relative(item, model)]
    sets.apply([item for item in items if item not in relative])
    settings = read()
    if relative:
        sets.apply(_absolute(relative, settings, sets.document, sets.mistakes))
        settings = read()
    return settings


def _is_relative(item: Assignment, model: type[BaseModel]) -> bool:
    """Whether it multiplies a number, or is of each entry of a mapping or list."""
    if EVERY in item.path:
        return True
    what = of_path(model, item.path) if _times(item.value) is not None else None
    return what is not None and (what.quantity is not None or what.hint in (int, float))


def _times(value: Any) -> float | None:
    found = _TIMES.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1])


def _absolute(
    items: Sequence[Assignment], settings: BaseModel, document: YamlDocument, mistakes: Mistakes
) -> list[Assignment]:
    """The same overrides with the keys and values that they come to; of what is not given none.
    Those that name nothing that is go to the mistakes. ``document``: what ``settings`` are read
    from, whose lists have entries of their own."""
    found = []
    for item in items:
        times, places = _times(item.value), list(_places(settings, document.data, item.path))
        for path, known in places:
            value = item.value
            if times is not None:
                what = of_path(type(settings), path)
                value = times * known
                if what is not None and what.quantity is not None:
                    value = what.quantity.format_exact(value)
                elif isinstance(known, int) and value.is_integer():
                    value = int(value)
            found.append(Assignment(".".join(map(str, path)), value, item.mark))
        if not places:
            mistakes.add_at(item.mark, item.key, "expected the name of settings that have a value")
    return found


def _places(
    at: Any, written: Any, path: KeyPath, above: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any]]:
    """Where settings are that a key names, and what they are."""
    if not path:
        if at is not None:
            yield above, at
        return
    part, rest = path[0], path[1:]
    entries: dict[Any, Any] = at if isinstance(at, dict) else {}
    if isinstance(at, BaseModel):
        entries = dict(at)
    elif isinstance(at, tuple) and isinstance(written, list) and len(written) == len(at):
        entries = dict(enumerate(at))
        part = int(part) if str(part).isdigit() else part
    known = dict(enumerate(written)) if isinstance(written, list) else written
    for key in entries if part == EVERY else [part]:
        if key in entries:
            inner = known.get(key) if isinstance(known, dict) else None
            yield from _places(entries[key], inner, rest, (*above, key))
