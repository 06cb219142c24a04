"""From paths on the command line to run records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from recsim_train.config.errors import UserError
from recsim_train.results.rundir import MANIFEST, RunRecord, is_run, read_run
from recsim_train.results.sweep import is_sweep


def load_runs(paths: Iterable[Path]) -> list[RunRecord]:
    """Every run directory named, or lying directly in a folder named; each one once.

    Raises UserError for a path that is neither, or a damaged run directory.
    """
    found: dict[Path, RunRecord] = {}
    for path in paths:
        for folder in _expand(path):
            place = folder.resolve()
            if place not in found:
                found[place] = read_run(folder)
    if not found:
        raise UserError("no run directory was given")
    return list(found.values())


def left_out(paths: Iterable[Path]) -> list[str]:
    """A sentence for each folder beside the runs that could be one but has no manifest."""
    inside = (p for path in paths if path.is_dir() and not is_run(path) for p in path.iterdir())
    found = (p for p in inside if p.is_dir() and not p.name.startswith("."))
    strange = sorted({p for p in found if not is_run(p) and not is_sweep(p)})
    return [f"{p} is left out, as it has no {MANIFEST}: it is no run." for p in strange]


def _expand(path: Path) -> list[Path]:
    if not path.is_dir() or is_run(path):
        return [path]  # read_run says what is wrong with it, if anything
    inside = sorted(p for p in path.iterdir() if not p.name.startswith(".") and is_run(p))
    if not inside:
        raise UserError(f"{path} neither is a run directory nor holds any")
    return inside
