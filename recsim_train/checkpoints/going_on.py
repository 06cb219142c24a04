"""Where a run's checkpoints go, and from which of earlier ones it goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from recsim_train.checkpoints.manifest import (
    MANIFEST,
    WholeCheckpoint,
    carried,
    check,
    folder_name,
    read_manifest,
    remove,
    steps_of,
    table_names,
    usable,
)
from recsim_train.config.dump import resolved
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import Plan
from recsim_train.results.folder import free_path, hash_of, newest_first, writable
from recsim_train.results.rundir import is_run, read_run
from recsim_train.workload.graph import graph_of

_DIGITS = 12
LAST = 25.0
"""Seconds that a run which is asked to end gives its last checkpoint: schedulers kill after 30."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where a run's checkpoints go, and the one that it goes on from."""

    folder: Path | None
    """None: none are made."""
    begin: Path | None = None
    """None: from the beginning."""
    first: int = 0
    """The iteration that its loops begin with."""
    init: Path | None = None
    """The checkpoint of another run whose weights it begins with; None: with those drawn."""

    def terms(self) -> dict[str, str]:
        """What all ranks of a run have to take for the same."""
        begin = "the beginning"
        if self.begin is not None:
            own = hashlib.sha256((self.begin / MANIFEST).read_bytes()).hexdigest()[:_DIGITS]
            begin = f"{self.begin.name} ({own})"
        made = "nowhere" if self.folder is None else self.folder.name
        init = "" if self.init is None else self.init.name
        return {
            "where the run goes on": begin,
            "where its checkpoints go": made,
            "the weights that it begins with": init,
        }

    def seen_from(self, out: Path) -> str | None:
        """The folder, relative to where results go if it lies there."""
        if self.folder is None:
            return None
        inside = self.folder.is_relative_to(out.absolute())
        return str(self.folder.relative_to(out.absolute()) if inside else self.folder)


NONE_KEPT = Keeping(None)
"""A run that keeps nothing, and begins at its beginning."""


def keeping_of(
    plan: Plan,
    out: Path,
    *,
    resume: bool,
    say: Callable[[str], object] = lambda _: None,
    name: str | None = None,
) -> Keeping:
    """Of a run whose results go to ``out``. ``resume``: from the last checkpoint of a run of these
    settings, whatever number of processes that had; ``say``: hears which one that is; ``name``: of
    its folder, None: that of all runs of these settings.

    Raises UserError where the folder cannot be used, or the checkpoint lies beyond the run's end.
    """
    rules = plan.experiment.checkpoint
    base = Path(rules.path or out).absolute() / (name or folder_name(plan))
    begin = _last(plan, base, say) if resume else None
    made = rules.every is not None
    if resume and (made or newest_first(base)):
        where = "no checkpoint to go on from: beginning at the beginning"
        say(where if begin is None else _going_on(plan, begin))
    if begin is not None:
        folder = begin.path.parent if made else None
        return Keeping(folder, begin.path, _first(plan, begin))
    init = None
    if rules.init_from is not None:
        found = newest(Path(rules.init_from).absolute())
        say(_fitting(plan, found))
        init = found.path
    if made:
        writable(base.parent)
    return Keeping(free_path(base) if made else None, init=init)


def _last(plan: Plan, base: Path, say: Callable[[str], object]) -> WholeCheckpoint | None:
    own = hash_of(carried(plan.experiment, plan.strategy))
    rules, roles = plan.experiment.training, resolved(plan.experiment)["roles"]
    ended: set[Path] = set()
    for found in usable(newest_first(base)):
        if isinstance(found, UserError):
            say(f"note: {found}; the one before it is looked for")
            continue
        if found.manifest.ended:
            ended.add(found.path.parent)
        # of a run that is over only one of as many processes is left to be made longer
        other = found.path.parent in ended and found.manifest.configuration["roles"] != roles
        if found.manifest.ended or other or found.manifest.carried != own:
            continue
        if _first(plan, found) >= (total := rules.warmup_steps + rules.steps):
            raise UserError(
                f"{found.path} goes on with iteration {_first(plan, found):,}, and training ends "
                f"with {total:,}: more training.steps are needed, or no --resume"
            )
        return found
    return None


def newest(path: Path) -> WholeCheckpoint:
    """The newest whole one. ``path``: a run's directory, a folder of checkpoints, or one.

    Raises UserError where there is none.
    """
    if is_run(path):
        known = read_run(path).facts.checkpoints_in
        if known is None:
            raise UserError(f"{path} made no checkpoints: set checkpoint.every for its run")
        return newest(path.parent / known)
    if (path / MANIFEST).exists():
        found = WholeCheckpoint(path, read_manifest(path))
        check(path, found.manifest)
        return found
    problems = []
    for one in usable([path]):
        if isinstance(one, WholeCheckpoint):
            return one
        problems.append(str(one))
    raise UserError(
        "; ".join(problems)
        or f"{path}: it holds no checkpoint; expected a run directory, a folder of checkpoints, or "
        "a checkpoint"
    )


def _fitting(plan: Plan, found: WholeCheckpoint) -> str:
    """What a run takes of another one's weights, as a sentence."""
    model, tensors = plan.experiment.model, found.manifest.tensors
    names = table_names(model, plan.experiment.data)
    taken: list[str] = []
    anew: list[str] = []
    for name, table in zip(names, model.tables, strict=True):
        known = tensors.get(f"tables.{name}.rows")
        fits = known is not None and known.shape == (table.rows, model.row_width)
        (taken if fits else anew).append(f"table {name}")
    elements = sum(prod(shape) for _, shape in found.manifest.parameters.values())
    (taken if elements == graph_of(model).elements else anew).append("the dense net")
    said = f"beginning with the weights of {found.path}: {', '.join(taken) or 'nothing'}"
    return said + (f"; drawn anew, because it has none that fit: {', '.join(anew)}" if anew else "")


def _first(plan: Plan, found: WholeCheckpoint) -> int:
    """The iteration with which loops go on: as many examples as were trained on lie before it."""
    return found.manifest.examples // (plan.streams * plan.examples)


def _going_on(plan: Plan, found: WholeCheckpoint) -> str:
    known, now = found.manifest, plan.experiment.roles.trainers
    said = f"going on from {found.path}, with iteration {_first(plan, found):,} of each loop"
    if known.trainers != now:
        said += (
            f"; {known.trainers} trainers made it and {now} go on: each begins with the mean of "
            "their own parameters, and what they had not sent is summed up"
        )
    return said


def clear_after(keeping: Keeping) -> None:
    """Remove what lies in the folder beyond the checkpoint that is gone on from: it is not
    complete, or is made again."""
    if keeping.folder is None:
        return
    for path in steps_of(keeping.folder):
        if keeping.begin is not None and path <= keeping.begin:
            return
        remove(path)
