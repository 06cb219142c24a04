"""What lies at the paths of a command line: runs, or one sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from recsim_train.config.errors import UserError
from recsim_train.results.folder import is_sweep, is_validation
from recsim_train.results.rundir import MANIFEST, RunRecord, is_run, read_run


def load_runs(paths: Iterable[Path]) -> list[RunRecord]:
    """Every run directory named, or lying directly in a folder named; each one once.

    Raises UserError for a path that is neither, or a damaged run directory.
    """
    runs: dict[Path, RunRecord] = {}
    for path in paths:
        for folder in _expand(path):
            place = folder.resolve()
            if place not in runs:
                runs[place] = read_run(folder)
    if not runs:
        raise UserError("no run directory was given")
    return list(runs.values())


def find_sweep(paths: Sequence[Path]) -> Path | None:
    """The sweep among the paths, or in the one folder that is named; None: there are only runs.

    Raises UserError where a sweep is named beside something else.
    """
    if named := [path for path in paths if is_sweep(path)]:
        if len(paths) > 1:
            raise UserError(f"{named[0]} is a sweep: it has a report of its own, name it alone")
        return named[0]
    inside = _inside(paths[0]) if len(paths) == 1 and not is_run(paths[0]) else []
    if any(map(is_run, inside)):
        return None  # the runs are compared; a sweep beside them has a report of its own
    sweeps = [path for path in inside if is_sweep(path)]
    if len(sweeps) > 1:
        names = ", ".join(map(str, sweeps))
        raise UserError(f"{paths[0]} holds several sweeps, one a report: {names}")
    return sweeps[0] if sweeps else None


def left_out(paths: Iterable[Path]) -> list[str]:
    """A sentence for each folder beside the runs that could be one but has no manifest."""
    inside = {p for path in paths if not is_run(path) for p in _inside(path)}
    known = (is_run, is_sweep, is_validation)
    strange = sorted(p for p in inside if not any(looks(p) for looks in known))
    return [f"{p} is left out, as it has no {MANIFEST}: it is no run." for p in strange]


def _expand(path: Path) -> list[Path]:
    if not path.is_dir() or is_run(path):
        return [path]  # read_run says what is wrong with it, if anything
    inside = [p for p in _inside(path) if is_run(p)]
    if not inside:
        raise UserError(f"{path} neither is a run directory nor holds any")
    return inside


def _inside(path: Path) -> list[Path]:
    """The folders in a folder, sorted."""
    if not path.is_dir():
        return []
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
