"""Where a run's checkpoints go, and from which of earlier ones it goes on."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recsim_train.checkpoints.manifest import (
    MANIFEST,
    WholeCheckpoint,
    carried,
    earlier,
    folder_name,
    steps_of,
    usable,
)
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import Plan
from recsim_train.results.folder import free_path, hash_of, writable

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

    def terms(self) -> dict[str, str]:
        """What all ranks of a run have to take for the same."""
        begin = "the beginning"
        if self.begin is not None:
            own = hashlib.sha256((self.begin / MANIFEST).read_bytes()).hexdigest()[:_DIGITS]
            begin = f"{self.begin.name} ({own})"
        made = "nowhere" if self.folder is None else self.folder.name
        return {"where the run goes on": begin, "where its checkpoints go": made}

    def seen_from(self, out: Path) -> str | None:
        """The folder, relative to where results go if it lies there."""
        if self.folder is None:
            return None
        inside = self.folder.is_relative_to(out.absolute())
        return str(self.folder.relative_to(out.absolute()) if inside else self.folder)


NONE_KEPT = Keeping(None)
"""A run that keeps nothing, and begins at its beginning."""


def keeping_of(
    plan: Plan, out: Path, *, resume: bool, say: Callable[[str], object] = lambda _: None
) -> Keeping:
    """Of a run whose results go to ``out``. ``resume``: from the last checkpoint of a run of these
    settings, whatever number of processes that had; ``say``: hears which one that is.

    Raises UserError where the folder cannot be used, or the checkpoint lies beyond the run's end.
    """
    rules = plan.experiment.checkpoint
    base = Path(rules.path or out).absolute() / folder_name(plan)
    begin = _last(plan, base, say) if resume else None
    made = rules.every is not None
    if resume and (made or earlier(base)):
        where = "no checkpoint to go on from: beginning at the beginning"
        say(where if begin is None else _going_on(plan, begin))
    if not made:
        return Keeping(None) if begin is None else Keeping(None, begin.path, _first(plan, begin))
    if begin is None:
        folder = free_path(base)
        writable(folder.parent)
        return Keeping(folder)
    return Keeping(begin.path.parent, begin.path, _first(plan, begin))


def _last(plan: Plan, base: Path, say: Callable[[str], object]) -> WholeCheckpoint | None:
    own = hash_of(carried(plan.experiment, plan.strategy))
    rules = plan.experiment.training
    for found in usable(earlier(base)):
        if isinstance(found, UserError):
            say(f"note: {found}; the one before it is looked for")
            continue
        if found.manifest.ended or found.manifest.carried != own:
            continue
        if _first(plan, found) >= (total := rules.warmup_steps + rules.steps):
            raise UserError(
                f"{found.path} goes on with iteration {_first(plan, found):,}, and training ends "
                f"with {total:,}: more training.steps are needed, or no --resume"
            )
        return found
    return None


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
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
