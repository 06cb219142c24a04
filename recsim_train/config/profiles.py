"""The reader of cluster profiles, which may be made of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsim_train.config.checks import check_cluster
from recsim_train.config.cluster import FORMAT, Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.points import PROFILE_KEY
from recsim_train.config.problems import Marks, Mistakes, shown, suggest
from recsim_train.config.sets import Assignment, Sets, read_with
from recsim_train.config.validate import check
from recsim_train.config.yaml_source import YamlDocument, parse_document, read_document

PROFILES = "cluster_profiles"
NO_PROFILE_NAME = "expected the name or the file of a cluster profile, got empty text"
_SUFFIXES = (".yaml", ".yml")
_KIND = "a cluster profile"
EXTENDS = "extends"
WHOLE = ("costs", "threads")
"""Sections whose entries are taken whole: a value's uncertainty is that of no other value."""


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
    return _checked(_composed(read_document(path, _KIND), path), sets)


def check_profile(text: str, path: Path) -> None:
    """Whether a profile of this text can be read at ``path``. Raises as `load_cluster` does."""
    _checked(_composed(parse_document(text, str(path), _KIND), path))


def _checked(document: YamlDocument, sets: Sequence[str | Assignment] = ()) -> Cluster:
    mistakes = Mistakes(document.marks, document.file)
    own = [
        s.strip().removeprefix(PROFILE_KEY)
        if isinstance(s, str)
        else replace(s, key=s.key.removeprefix(PROFILE_KEY))
        for s in sets
    ]
    sets_of = Sets(document, {}, mistakes)
    return read_with(sets_of, own, Cluster, lambda: _read(document, mistakes))


def _read(document: YamlDocument, mistakes: Mistakes) -> Cluster:
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


def _composed(document: YamlDocument, path: Path, above: Sequence[Path] = ()) -> YamlDocument:
    """A profile's document, over the one that it extends. ``above``: those that extend it."""
    if (version := document.data.get("format")) != FORMAT:
        says = "has no format" if version is None else f"has the format {shown(version)}"
        raise UserError(
            f"{path}: the profile was made by another version of recsim-train: it {says}, and this "
            f"one reads format {FORMAT}; calibrate again (one written by hand is to be completed, "
            f"with a line `format: {FORMAT}`)"
        )
    name = document.data.pop(EXTENDS, None)
    if name is None:
        return document
    mistakes = Mistakes(document.marks, document.file)
    if not isinstance(name, str) or not name.strip():
        mistakes.add((EXTENDS,), f"{NO_PROFILE_NAME.partition(',')[0]}, got {shown(name)}")
        mistakes.raise_any()
    beside = [path.parent / f"{name}{suffix}" for suffix in ("", *_SUFFIXES)]
    found = next(filter(Path.is_file, beside), None) or find_cluster(str(name), path)
    if found is None:
        mistakes.add((EXTENDS,), _no_profile(str(name), path))
    elif found.resolve() in [other.resolve() for other in (path, *above)]:
        mistakes.add((EXTENDS,), f"{name!r} extends this profile itself")
    mistakes.raise_any()
    assert found is not None
    under = _composed(read_document(found, _KIND), found, (path, *above))
    marks = Marks(
        {**under.marks.values, **document.marks.values}, {**under.marks.keys, **document.marks.keys}
    )
    return YamlDocument(document.file, _over(under.data, document.data), marks)


def _over(under: Mapping[str, Any], own: Mapping[str, Any], *, whole: bool = False) -> Any:
    """Sections of both, where ``own`` says what both say; of ``whole`` ones entry by entry."""
    merged = dict(under)
    for key, value in own.items():
        known = merged.get(key)
        both = isinstance(known, dict) and isinstance(value, dict) and not whole
        merged[key] = _over(known, value, whole=key in WHOLE) if both else value  # type: ignore[arg-type]
    return merged
