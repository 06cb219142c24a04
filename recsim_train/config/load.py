"""The reader of experiments and cluster profiles, which names all their mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from recsim_train.config.checks import (
    check_data,
    check_fed,
    check_gates,
    check_model,
    check_recovery,
    check_size,
    write_out_data,
    write_out_retired,
)
from recsim_train.config.experiment import Data, Experiment, Model, Validation
from recsim_train.config.options import Schemas, write_out_strategies
from recsim_train.config.points import PROFILE_KEY, ExperimentFile, read_experiment
from recsim_train.config.presets import MODEL_KEYS, PRESETS, write_out_model
from recsim_train.config.problems import ConfigErrors, KeyPath, Mistakes, Problem, dotted
from recsim_train.config.profiles import EXTENDS, NO_PROFILE_NAME, WHOLE
from recsim_train.config.sets import Assignment, Sets, read_with
from recsim_train.config.sweep import (
    Dimension,
    Point,
    Search,
    Sweep,
    check_keys,
    expand,
    grid_of,
    take_sweep,
)
from recsim_train.config.validate import check, of_field, parse
from recsim_train.config.yaml_source import YamlDocument

_MOST_PROBLEMS = 20
"""Problems of a sweep's points that are shown; one mistake may spoil all points."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked experiment and where it came from."""

    experiment: Experiment
    path: Path
    raw: dict[str, Any]
    """The YAML as plain data, after ``--set``."""
    profile_sets: tuple[str | Assignment, ...] = ()
    """Overrides ``cluster.KEY=VALUE``, for the cluster profile."""
    sweep: Sweep | None = None
    """The sweep that the file or the command line asks for; the experiment is its first point."""
    point: Point = field(default_factory=Point)
    """Which point of a sweep it is."""
    validation: Validation | None = None
    """How `validate` judges it; the experiment itself holds none."""
    search: Search = field(default_factory=Search)
    """What `recommend` chooses among; nor does it hold this."""
    varied: tuple[Dimension, ...] = ()
    """The further settings of the search, each with its values."""


def load_points(
    source: Path | YamlDocument, sets: Sequence[str | Assignment], schemas: Schemas
) -> list[Loaded]:
    """Read an experiment, change it as ``sets`` (``key=value``) say, check it: every point of a
    sweep, or the one that it is.

    ``schemas``: the known strategies and their options. Raises UserError if the file cannot be
    read, ConfigErrors with every problem that it has; those of all points at once, each with the
    first point that has it.
    """
    file = read_experiment(source, sets)
    points = list(expand(file.dimensions))
    if len(points) == 1:
        return [_load_point(file, points[0], schemas)]
    loaded = []
    first_met: dict[Problem, tuple[Point, int]] = {}
    for point in points:
        try:
            loaded.append(_load_point(file, point, schemas))
        except ConfigErrors as error:
            for problem in error.problems:
                first, times = first_met.get(problem, (point, 0))
                first_met[problem] = (first, times + 1)
    if not first_met:
        return loaded
    problems = []
    for problem, (point, times) in list(first_met.items())[:_MOST_PROBLEMS]:
        own = {item.mark for item in point.items}
        of = "" if problem.mark in own or times == len(points) else f" (where {point})"
        problems.append(replace(problem, message=problem.message + of))
    if (more := len(first_met) - _MOST_PROBLEMS) > 0:
        last = problems[-1]
        problems[-1] = replace(last, message=f"{last.message}; {more} more problems like these")
    raise ConfigErrors(problems, str(file.path))


def _load_point(source: ExperimentFile, point: Point, schemas: Schemas) -> Loaded:
    document = source.document.copy()
    mistakes = Mistakes(document.marks, document.file)
    own: list[str | Assignment] = []
    of_profile: list[str | Assignment] = []
    for item in (*source.before, *point.items, *source.after):
        key = item.strip() if isinstance(item, str) else item.key
        (of_profile if key.startswith(PROFILE_KEY) else own).append(item)
    written: list[Assignment] = []

    def read() -> Experiment:
        written.extend(_take_profile(document))  # none the second time
        return check_experiment(document, schemas, mistakes)

    experiment = read_with(Sets(document, schemas, mistakes), own, Experiment, read)
    search = experiment.search or Search()
    varied = tuple(grid_of(document, ("search", "settings"), search.settings, mistakes))
    check_keys(varied, mistakes)
    mistakes.raise_any()
    return Loaded(
        experiment.with_({"validation": None, "search": None}),
        source.path,
        document.data,
        (*written, *of_profile),
        source.sweep,
        point,
        experiment.validation,
        search,
        varied,
    )


def _take_profile(document: YamlDocument) -> list[Assignment]:
    """Of a cluster that is written out in the experiment: what it changes of the profile that it
    extends, whose name is left in its place."""
    own = document.data.get("cluster")
    if not isinstance(own, dict):
        return []
    marks = document.marks
    rest = {key: value for key, value in own.items() if key != EXTENDS}
    found = [
        Assignment(PROFILE_KEY + dotted(path), value, marks.locate(("cluster", *path)))
        for path, value in _leaves(rest)
    ]
    marks.replace(("cluster",), marks.locate(("cluster", EXTENDS)))
    document.data["cluster"] = own.get(EXTENDS, Experiment.model_fields["cluster"].default)
    return found


def _leaves(section: dict[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in section.items():
        entry = above[:1] in [(name,) for name in WHOLE]
        if isinstance(value, dict) and value and not entry:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def check_experiment(document: YamlDocument, schemas: Schemas, mistakes: Mistakes) -> Experiment:
    """The experiment of a document; ConfigErrors with these and all earlier mistakes."""
    take_sweep(document, (), mistakes)
    data = _without_empty_sections(Experiment, document.data)
    if "data" in data:
        data["data"] = write_out_data(data["data"], mistakes)
    write_out_retired(data, mistakes)
    model = write_out_model(data.pop("model", None), data.get("data"), mistakes)
    strategies = write_out_strategies(data.pop("strategy", None), schemas, mistakes)
    if "strategies" in data:
        mistakes.add(("strategies",), "unknown key; did you mean 'strategy'?", at_key=True)
    # Where a part is beyond checking, a sound one takes its place: the rest is still checked.
    data["model"] = model or PRESETS["tiny"].model("tiny")
    data["strategies"] = strategies or [{"kind": "unknown"}]
    extra: dict[KeyPath, tuple[str, ...]] = {("model",): MODEL_KEYS}
    experiment = check(
        Experiment, data, mistakes, extra_keys=extra, renamed={"strategies": "strategy"}
    )
    shape = _alone(Model, model)
    source = _alone(Data, data.get("data", {}))
    if shape is not None:
        check_model(shape, mistakes)
    if source is not None:
        check_data(source, mistakes)
    if shape is not None and source is not None:
        check_fed(shape, source, mistakes)
    if experiment is not None:
        if not experiment.name.strip():
            mistakes.add(("name",), "expected a name, got empty text")
        if not experiment.cluster.strip():
            mistakes.add(("cluster",), NO_PROFILE_NAME)
        if experiment.simulation.precision >= 1.0:
            mistakes.add(("simulation", "precision"), "expected a share below 100 %")
        check_size(experiment, mistakes)
        check_recovery(experiment, mistakes)
        if experiment.validation is not None:
            check_gates(experiment.validation.gates, mistakes)
    mistakes.raise_any()
    assert experiment is not None
    return experiment


def _without_empty_sections(model: type[BaseModel], data: dict[str, Any]) -> dict[str, Any]:
    """A section whose lines are all commented out is a section left out."""
    result = {}
    for key, value in data.items():
        field = model.model_fields.get(key)
        section = of_field(field).section if field else None
        if section is not None and isinstance(value, dict):
            result[key] = _without_empty_sections(section, value)
        elif section is None or value is not None:
            result[key] = value
    return result


def _alone(model: type[M], data: object) -> M | None:
    """One section by itself, if it is sound: its own checks need no other."""
    if not isinstance(data, dict):
        return None
    try:
        return parse(model, data)
    except ValidationError:
        return None
