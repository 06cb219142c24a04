"""The reader of experiments and cluster profiles, which names all their mistakes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from recsim_train.config.checks import (
    check_cluster,
    check_data,
    check_fed,
    check_gates,
    check_model,
    check_recovery,
    check_size,
    take_lists_of_files,
)
from recsim_train.config.cluster import FORMAT, Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Experiment, Model
from recsim_train.config.fields import of_field
from recsim_train.config.forms import MODEL_KEYS, write_out_model, write_out_strategies
from recsim_train.config.options import Schemas
from recsim_train.config.points import PROFILE_KEY, ExperimentFile, read_experiment
from recsim_train.config.presets import PRESETS
from recsim_train.config.problems import ConfigErrors, KeyPath, Mistakes, Problem, shown, suggest
from recsim_train.config.sets import Assignment, Sets
from recsim_train.config.sweep import Point, Sweep, expand, take_sweep
from recsim_train.config.validate import check, parse
from recsim_train.config.validation import Validation
from recsim_train.config.yaml_source import YamlDocument, read_document

PROFILES = "cluster_profiles"
NO_PROFILE_NAME = "expected the name or the file of a cluster profile, got empty text"
_SUFFIXES = (".yaml", ".yml")
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


def load_experiment(path: Path, sets: Sequence[str], schemas: Schemas) -> Loaded:
    """Read an experiment, change it as ``sets`` (``key=value``) say, check it.

    ``schemas``: the known strategies and their options. Of a sweep: its first point. Raises
    UserError if the file cannot be read, ConfigErrors with every problem that it has.
    """
    source = read_experiment(path, sets)
    return _load_point(source, next(expand(source.dimensions)), schemas)


def load_points(path: Path, sets: Sequence[str], schemas: Schemas) -> list[Loaded]:
    """As `load_experiment`, for every point of a sweep. Problems of all points are raised at once,
    each with the first point that has it."""
    source = read_experiment(path, sets)
    points = list(expand(source.dimensions))
    if len(points) == 1:
        return [_load_point(source, points[0], schemas)]
    loaded = []
    first_met: dict[Problem, tuple[Point, int]] = {}
    for point in points:
        try:
            loaded.append(_load_point(source, point, schemas))
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
    raise ConfigErrors(problems, str(path))


def _load_point(source: ExperimentFile, point: Point, schemas: Schemas) -> Loaded:
    document = source.document.copy()
    mistakes = Mistakes(document.marks, document.file)
    own: list[str | Assignment] = []
    of_profile: list[str | Assignment] = []
    for item in (*source.before, *point.items, *source.after):
        key = item.strip() if isinstance(item, str) else item.key
        (of_profile if key.startswith(PROFILE_KEY) else own).append(item)
    Sets(document, schemas, mistakes).apply(own)
    experiment = check_experiment(document, schemas, mistakes)
    return Loaded(
        experiment.model_copy(update={"validation": None}),
        source.path,
        document.data,
        tuple(of_profile),
        source.sweep,
        point,
        experiment.validation,
    )


def check_experiment(document: YamlDocument, schemas: Schemas, mistakes: Mistakes) -> Experiment:
    """The experiment of a document; ConfigErrors with these and all earlier mistakes."""
    take_sweep(document, (), mistakes)
    data = _without_empty_sections(Experiment, document.data)
    model = write_out_model(data.pop("model", None), mistakes)
    strategies = write_out_strategies(data.pop("strategy", None), schemas, mistakes)
    if "data" in data:
        data["data"] = take_lists_of_files(data["data"], mistakes)
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
        check_recovery(experiment.recovery, mistakes)
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


def find_cluster(name_or_path: str, near: Path | None = None) -> Path | None:
    """The file of a cluster profile, or None.

    A path, or a name that is looked for under ``cluster_profiles`` here and beside the folder of
    the experiment file ``near``.
    """
    if not name_or_path:
        return None
    if _is_path(name_or_path):
        path = Path(name_or_path)
        return path if path.exists() else None
    folders = _profile_folders(near)
    named = (folder / (name_or_path + suffix) for folder in folders for suffix in _SUFFIXES)
    return next(filter(Path.is_file, named), None)


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith(_SUFFIXES)


def _profile_folders(near: Path | None) -> list[Path]:
    beside = [] if near is None else [near.parent / ".." / PROFILES]
    return [Path(PROFILES), *beside]


def load_cluster(
    name_or_path: str, near: Path | None = None, sets: Sequence[str | Assignment] = ()
) -> Cluster:
    """Read a cluster profile, see `find_cluster`. ``sets``: changes, as ``cluster.KEY=VALUE``.

    Raises UserError if there is none or it cannot be read, ConfigErrors for what it says.
    """
    path = find_cluster(name_or_path, near)
    if path is None:
        raise UserError(_no_profile(name_or_path, near))
    document = read_document(path, "a cluster profile")
    if (version := document.data.get("format")) != FORMAT:
        says = "has no format" if version is None else f"has the format {shown(version)}"
        raise UserError(
            f"{path}: the profile was made by another version of recsim-train: it {says}, and this "
            f"one reads format {FORMAT}; calibrate again (one written by hand is to be completed, "
            f"with a line `format: {FORMAT}`)"
        )
    mistakes = Mistakes(document.marks, document.file)
    own = [
        s.strip().removeprefix(PROFILE_KEY)
        if isinstance(s, str)
        else replace(s, key=s.key.removeprefix(PROFILE_KEY))
        for s in sets
    ]
    Sets(document, {}, mistakes).apply(own)
    data = dict(document.data)
    if isinstance(costs := data.get("costs"), dict):
        # A price without its uncertainty may be written as the value alone.
        data["costs"] = {k: {"value": v} if isinstance(v, str) else v for k, v in costs.items()}
    cluster = check(Cluster, data, mistakes)
    if cluster is not None:
        check_cluster(cluster, mistakes)
    mistakes.raise_any()
    assert cluster is not None
    return cluster


def _no_profile(name: str, near: Path | None) -> str:
    files = (p for f in _profile_folders(near) for p in f.glob("*") if p.suffix in _SUFFIXES)
    available = sorted({path.stem for path in files})
    names = f"available: {', '.join(available)}" if available else f"none is in {PROFILES}/"
    if _is_path(name):
        return f"cluster profile {name}: no such file; profiles by name, {names}"
    if name == "local":
        return (
            "there is no cluster profile 'local' (this machine's) yet; make it with "
            f"`recsim-train calibrate -o {PROFILES}/local.yaml` ({names})"
        )
    hint = suggest(name, available)
    names = names[0].upper() + names[1:] if hint else f"; {names}"
    return f"there is no cluster profile {name!r}{hint}{' ' if hint else ''}{names}"
