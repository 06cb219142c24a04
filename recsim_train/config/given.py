"""An experiment that is given as a mapping instead of a file, as notebooks do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from recsim_train.config.problems import ConfigErrors, KeyPath, Mark, Marks, Problem, dotted
from recsim_train.config.yaml_source import LARGEST_INTEGER, YamlDocument

NAME = "the given experiment"
"""What sentences about mistakes call it: it has no lines."""


def document_of(given: Mapping[str, Any]) -> YamlDocument:
    """As if it had been read; tuples are lists, and paths text. Raises ConfigErrors for what no
    YAML file could hold."""
    problems: list[Problem] = []
    data = _plain(given, (), problems)
    if problems:
        raise ConfigErrors(problems, NAME)
    return YamlDocument(NAME, data, Marks({(): Mark(NAME)}))


def _plain(value: object, path: KeyPath, problems: list[Problem]) -> Any:
    match value:
        case None | bool() | str():
            return value
        case Integral() if abs(int(value)) <= LARGEST_INTEGER:
            return int(value)
        case Real() if math.isfinite(value) and not isinstance(value, Integral):
            return float(value)
        case PurePath():
            return str(value)
        case Mapping():
            wrong = [key for key in value if not isinstance(key, str)]
            problems += [_problem(path, f"expected text as a key, got {key!r}") for key in wrong]
            kept = {key: inner for key, inner in value.items() if isinstance(key, str)}
            return {key: _plain(inner, (*path, key), problems) for key, inner in kept.items()}
        case list() | tuple():
            return [_plain(inner, (*path, k), problems) for k, inner in enumerate(value)]
    said = "expected text, a number, true, false, None, a list or a mapping"
    problems.append(_problem(path, f"{said}, got {value!r}"[:200]))
    return None


def _problem(path: KeyPath, message: str) -> Problem:
    return Problem(Mark(NAME), dotted(path), message)
