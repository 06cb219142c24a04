"""Settings that take several values: a sweep with the points that follow from them, and the designs
that `recommend` chooses among."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

from pydantic import Field

from recsim_train.config.problems import KeyPath, Mistakes, shown
from recsim_train.config.sets import Assignment
from recsim_train.config.units import Count, Positive, Section
from recsim_train.config.validate import check
from recsim_train.config.yaml_source import YamlDocument, one_line

MOST_POINTS = 100_000
"""A sweep of more points is taken for a mistake."""


Values = Annotated[tuple[Any, ...], Field(min_length=1)]


class Sweep(Section):
    """Values of settings by their dotted names, as ``--set`` takes them.

    All parts are combined with each other. Written without ``grid``, ``together`` and ``points``, a
    mapping is the grid and a list is the points. A list of strategies is one more axis.
    """

    grid: dict[str, Values] = Field(default_factory=dict)
    """Values by setting: every combination is a point."""
    together: dict[str, Values] = Field(default_factory=dict)
    """Values by setting that go together: the first of each, the second of each ..."""
    points: tuple[Annotated[dict[str, Any], Field(min_length=1)], ...] = ()
    """Points one by one, each a mapping of settings to their value."""
    keep_runs: bool = False
    """Whether each point leaves a run directory too; without, it leaves one row of the table."""


Entry = tuple[Assignment, ...]
"""Settings that change together."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What one part of a sweep varies."""

    entries: tuple[Entry, ...]
    replaceable: bool
    """Whether an override of its only key takes its place."""

    @property
    def keys(self) -> list[str]:
        """Every key that it sets."""
        return list(dict.fromkeys(item.key for entry in self.entries for item in entry))


@dataclass(frozen=True, slots=True)
class Point:
    """One combination."""

    items: Entry = ()

    @property
    def values(self) -> dict[str, Any]:
        """Values by setting, as they are written."""
        return {item.key: item.value for item in self.items}

    def __str__(self) -> str:
        return ", ".join(f"{item.key}={written(item.value)}" for item in self.items)


def written(value: Any) -> str:
    """A value in one line, as YAML takes it."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{one_line(k)}: {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return one_line(value) if isinstance(value, str) else str(value)


def take_sweep(
    document: YamlDocument, axes: Sequence[Assignment], mistakes: Mistakes
) -> tuple[Sweep, tuple[Dimension, ...]] | None:
    """Take the sweep out of a document: its settings and what it varies; None: there is none.

    ``axes``: settings that the command line gives a list of values. What is wrong goes to the
    mistakes.
    """
    write_out_sweep(document)
    raw = document.data.pop("sweep", None)
    if raw is None and not axes:
        return None
    path: KeyPath = ("sweep",)
    if not isinstance(raw, dict | None):
        mistakes.add(
            path, f"expected a mapping of settings to lists, or a list of points, got {shown(raw)}"
        )
        return Sweep(), ()
    before = len(mistakes.problems)
    full = {key: value for key, value in (raw or {}).items() if value is not None}
    sweep = check(Sweep, full, mistakes, prefix=path)
    dimensions: list[Dimension] = []
    if sweep is not None:
        dimensions += grid_of(document, ("sweep", "grid"), sweep.grid, mistakes)
        dimensions += _together(document, sweep, mistakes)
        dimensions += _points(document, sweep, mistakes)
    for axis in axes:
        entries = tuple((Assignment(axis.key, v, axis.mark),) for v in axis.value)
        dimensions = [*without(dimensions, axis, mistakes), Dimension(entries, True)]
    if not dimensions and len(mistakes.problems) == before:
        mistakes.add(
            path, "expected values of some setting: grid, together and points are all empty"
        )
    check_keys(dimensions, mistakes)
    return sweep or Sweep(), tuple(dimensions)


def expand(dimensions: Sequence[Dimension]) -> Iterator[Point]:
    """Every point, the last dimension's values following each other."""
    for chosen in itertools.product(*(d.entries for d in dimensions)):
        yield Point(tuple(item for entry in chosen for item in entry))


def write_out_sweep(document: YamlDocument) -> None:
    """Give the section its full form, if it has one; values that move keep their marks."""
    raw = document.data.get("sweep")
    full = isinstance(raw, dict) and raw.keys() & Sweep.model_fields.keys()
    if full or not isinstance(raw, dict | list):
        return
    name = "points" if isinstance(raw, list) else "grid"
    moved = {p: mark for p, mark in document.marks.items() if p[0:1] == ("sweep",)}
    document.marks.update({("sweep", name, *p[1:]): mark for p, mark in moved.items()})
    document.data["sweep"] = {name: raw}


def grid_of(
    document: YamlDocument,
    at: KeyPath,
    grid: Mapping[str, Sequence[Any]],
    mistakes: Mistakes,
) -> Iterator[Dimension]:
    """What a mapping of settings to their values varies. ``at``: where it stands."""
    for key, values in grid.items():
        path = (*at, key)
        items = [_item(document, key, value, (*path, i)) for i, value in enumerate(values)]
        yield Dimension(tuple((item,) for item in items), True)


def _together(document: YamlDocument, sweep: Sweep, mistakes: Mistakes) -> Iterator[Dimension]:
    at: KeyPath = ("sweep", "together")
    lengths = {key: len(values) for key, values in sweep.together.items()}
    if not lengths:
        return
    first, length = next(iter(lengths.items()))
    for key, other in lengths.items():
        if other != length:
            mistakes.add(
                (*at, key), f"expected {length} values, as many as {first} has, got {other}"
            )
            return
    entries = (
        tuple(_item(document, key, v[i], (*at, key, i)) for key, v in sweep.together.items())
        for i in range(length)
    )
    yield Dimension(tuple(entries), False)


def _points(document: YamlDocument, sweep: Sweep, mistakes: Mistakes) -> Iterator[Dimension]:
    at: KeyPath = ("sweep", "points")
    entries = []
    for index, point in enumerate(sweep.points):
        items = (_item(document, key, v, (*at, index, key)) for key, v in point.items())
        entries.append(tuple(items))
    if entries:
        yield Dimension(tuple(entries), False)


def _item(document: YamlDocument, key: str, value: Any, path: KeyPath) -> Assignment:
    return Assignment(key, _listed(value), document.marks.locate(path))


def _listed(value: Any) -> Any:
    """Plain data again: the section holds tuples where the YAML has lists."""
    return [_listed(v) for v in value] if isinstance(value, list | tuple) else value


def without(
    dimensions: Sequence[Dimension], item: Assignment, mistakes: Mistakes
) -> tuple[Dimension, ...]:
    """The dimensions without those whose key is set otherwise, which not every one lets be done."""
    for dimension in dimensions:
        if item.key in dimension.keys and not dimension.replaceable:
            where = dimension.entries[0][0].mark
            mistakes.add_at(
                item.mark,
                item.key,
                f"the sweep's points or together set it too: change its values there ({where})",
            )
    return tuple(dimension for dimension in dimensions if item.key not in dimension.keys)


def check_keys(dimensions: Sequence[Dimension], mistakes: Mistakes) -> None:
    """Each key in one dimension only, and none that cannot be a point's own."""
    seen: set[str] = set()
    for dimension in dimensions:
        for key in dimension.keys:
            first = next(i for e in dimension.entries for i in e if i.key == key)
            if not all(part.strip() for part in key.split(".")):
                mistakes.add_at(
                    first.mark,
                    "sweep",
                    f"expected a setting's dotted name, such as roles.trainers, got {key!r}",
                )
            elif key.split(".")[0] in ("sweep", "name", "validation", "search"):
                mistakes.add_at(first.mark, key, f"{key.split('.')[0]} cannot be swept")
            elif key in seen:
                mistakes.add_at(first.mark, key, "swept twice")
            seen.add(key)
    if (points := prod(len(d.entries) for d in dimensions)) > MOST_POINTS:
        mistakes.add(("sweep",), f"{points:,} points; expected at most {MOST_POINTS:,}")


class Search(Section):
    """Designs of a job: `recsim-train recommend` takes each combination. What is left out has
    values that follow from the cluster; strategies are those of ``strategy``, and every known one
    where that names a single one."""

    strategies: bool = True
    """Whether every known strategy is tried where ``strategy`` names a single one."""
    hosts: tuple[Positive, ...] | None = None
    """Hosts of all roles together. Left out: the most that there may be, and some fewer."""
    embedding_hosts: tuple[Count, ...] | None = None
    """Of these, hosts of embedding servers; 0: the trainers hold the tables."""
    dense_hosts: tuple[Count, ...] | None = None
    """Of these, hosts of dense servers, one server each."""
    trainers_per_host: tuple[Positive, ...] | None = None
    """Trainer processes on each host that has any."""
    servers_per_host: tuple[Positive, ...] | None = None
    """Embedding servers on each host that has any."""
    threads: tuple[Positive, ...] | None = None
    """Of each trainer. Left out: as many as its host has cores, over the trainers there."""
    any_step: bool = False
    """Whether designs are tried, too, in which a step of the job has other examples. Else it has
    those of the experiment as written, by its first strategy: each training loop gets the batch
    that is its part of them, and designs are left out where no whole batch comes within 2 %."""
    settings: dict[str, Values] = Field(default_factory=dict)
    """Values of further settings by their dotted names, as ``--set`` takes them, such as
    execution.wire; ``cluster.KEY`` is of the profile."""
