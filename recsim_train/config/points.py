"""An experiment as its file has it, or a mapping that is given instead, apart from the sweep in it
and the command line's overrides."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path, PurePath
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Experiment
from recsim_train.config.problems import (
    ConfigErrors,
    KeyPath,
    Mark,
    Marks,
    Mistakes,
    Problem,
    dotted,
)
from recsim_train.config.sets import Assignment, Sets, parse_sets
from recsim_train.config.shipped import find_experiment
from recsim_train.config.sweep import Dimension, Sweep, take_sweep, without, write_out_sweep
from recsim_train.config.validate import Accepts, of_path
from recsim_train.config.yaml_source import LARGEST_INTEGER, YamlDocument, read_document

PROFILE_KEY = "cluster."
"""What overrides of the cluster profile begin with."""
_OWN_KEY = "sweep."
_NO_AXES = (("strategy",), ("data", "path"), ("data", "eval_path"))
"""A list of strategies is what the setting itself takes; several files are meant for parts of one
data set, more often than not."""


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """What all points of a file share."""

    path: Path
    document: YamlDocument
    """Without the sweep."""
    sweep: Sweep | None
    dimensions: tuple[Dimension, ...]
    before: tuple[Assignment, ...]
    """Overrides of sections that the sweep changes a part of: the point's values come after."""
    after: tuple[str | Assignment, ...]
    """All other overrides."""


def read_experiment(
    source: Path | YamlDocument, sets: Sequence[str | Assignment]
) -> ExperimentFile:
    """Read an experiment file, unless it is there already, and take it apart.

    ``sets``: ``key=value``; a list of values for a setting that takes no list makes it an axis. Or
    a setting with its one value.
    Raises UserError if the file cannot be read, ConfigErrors for what is wrong with the sweep.
    """
    document = source
    if isinstance(document, Path):
        document = read_document(find_experiment(document), "an experiment")
    path = Path(document.file)
    mistakes = Mistakes(document.marks, document.file)
    given: list[str | Assignment] = []
    for text in sets:
        # One that cannot be read is kept, to be reported with everything else that is wrong.
        given += parse_sets([text], Mistakes(document.marks, document.file)) or [text]
    read = [item for item in given if isinstance(item, Assignment)]
    axes = [item for item in read if item not in sets and is_axis(item)]
    own = [item for item in read if item.key.startswith(_OWN_KEY)]
    plain = [item for item in given if item not in axes and item not in own]
    if own:
        write_out_sweep(document)
        Sets(document, {}, mistakes).apply(own)
    taken = take_sweep(document, axes, mistakes)
    mistakes.raise_any()
    if taken is None:
        return ExperimentFile(path, document, None, (), (), tuple(plain))
    sweep, all_dimensions = taken
    fixed = [item for item in plain if isinstance(item, Assignment)]
    dimensions = all_dimensions
    for item in fixed:
        dimensions = without(dimensions, item, mistakes)
    mistakes.raise_any()
    varied = [item.path for d in dimensions for entry in d.entries for item in entry]
    swept = bool(dimensions)
    dimensions = tuple(d for d in dimensions if not _strategies(document, d))
    before = tuple(item for item in fixed if any(_inside(item.path, key) for key in varied))
    after = tuple(item for item in plain if item not in before)
    return ExperimentFile(path, document, sweep if swept else None, dimensions, before, after)


def accepted(key: KeyPath) -> Accepts | None:
    """What a setting accepts, by its parts as ``--set`` takes them; None where that is not one
    model's field: of strategies, and of short forms."""
    of_profile = key[0] == "cluster" and len(key) > 1
    path: KeyPath = tuple(int(k) if str(k).isdigit() else k for k in key[of_profile:])
    return of_path(Cluster if of_profile else Experiment, path)


def is_axis(item: Assignment) -> bool:
    """Whether an override gives a setting several values, each of which the setting can take."""
    values = item.value
    key = item.path
    several = isinstance(values, list) and bool(values)
    if not several or key[0] in ("sweep", "validation", "search") or key in _NO_AXES:
        return False
    if key[0] == "strategy":
        return True
    what = accepted(key)
    if what is None:
        return key[0] == "model" and key[1:] in (("preset",), ("max_rows",))
    takes_list = typing.get_origin(what.hint) is tuple
    return not takes_list or all(isinstance(value, list) for value in values)


def _inside(outer: KeyPath, inner: KeyPath) -> bool:
    """Whether one key names a section that holds the other."""
    return len(outer) < len(inner) and inner[: len(outer)] == outer


def _strategies(document: YamlDocument, dimension: Dimension) -> bool:
    """Make a dimension of strategies the experiment's list; whether it was one.

    In a list, an option goes to those strategies that have it.
    """
    if not dimension.replaceable or dimension.keys != ["strategy"]:
        return False
    items = [item for entry in dimension.entries for item in entry]
    document.data["strategy"] = [item.value for item in items]
    for index, item in enumerate(items):
        document.marks.replace(("strategy", index), item.mark)
    document.marks["strategy",] = items[0].mark
    return True


_GIVEN = "the given experiment"
"""What sentences about mistakes call it: it has no lines."""


def document_of(given: Mapping[str, Any]) -> YamlDocument:
    """As if it had been read; tuples are lists, and paths text. Raises ConfigErrors for what no
    YAML file could hold."""
    problems: list[Problem] = []
    data = _plain(given, (), problems)
    if problems:
        raise ConfigErrors(problems, _GIVEN)
    return YamlDocument(_GIVEN, data, Marks({(): Mark(_GIVEN)}))


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
    return Problem(Mark(_GIVEN), dotted(path), message)
