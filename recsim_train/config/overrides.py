"""Overrides: dotted keys and their values, which change checked settings a little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

EVERY = "*"
"""As a part of a key: each entry of a mapping or list that is there."""


class Times(NamedTuple):
    """So many times what a setting is; of one that is not given nothing."""

    factor: float


def times(factor: float) -> Times:
    """As a value of an override: "twice the network card" is ``{"hosts.*.nic": times(2)}``."""
    return Times(factor)


def overridden(settings: Any, changes: Mapping[str, Any]) -> Any:
    """Settings with others at these keys, one after the other. Nothing is checked; a key that
    names no field is an error of ours."""
    for key, value in changes.items():
        settings = _changed(settings, key.split("."), value)
    return settings


def _changed(at: Any, path: list[str], value: Any) -> Any:
    if not path:
        relative = isinstance(value, Times) and at is not None
        return at * value.factor if relative else None if isinstance(value, Times) else value
    part, rest = path[0], path[1:]
    if isinstance(at, BaseModel):
        assert part in type(at).model_fields, f"{type(at).__name__} has no {part}"
        return at.model_copy(update={part: _changed(getattr(at, part), rest, value)})
    if isinstance(at, tuple):
        chosen: Iterable[int] = range(len(at)) if part == EVERY else (int(part),)
        changed = {index: _changed(at[index], rest, value) for index in chosen}
        return tuple(changed.get(index, entry) for index, entry in enumerate(at))
    if at is None and (part == EVERY or isinstance(value, Times)):
        return None
    known = at or {}
    keys = list(known) if part == EVERY else [part]
    return {**known, **{key: _changed(known.get(key), rest, value) for key in keys}}
