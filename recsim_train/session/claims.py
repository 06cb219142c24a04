"""The runs of a claim: every variant, those of its sensitivities, and the points of its grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.config.load import Loaded
from recsim_train.results.claims import Change, ClaimRuns, GridPoint, write_claim_runs
from recsim_train.session.job import Job, Step
from recsim_train.session.results import Run

if TYPE_CHECKING:
    from recsim_train.report.claims import Judged


def steps(loaded: Loaded) -> Iterator[Step]:
    """All runs of a claim."""
    claim = loaded.claim
    assert claim is not None

    def step(name: str, *more: str, **where: Any) -> Step:
        return Step(name, (*claim.common, *claim.variants[name], *more), **where)

    for name in claim.variants:
        yield step(name)
    first = claim.checks[0]
    for varied in claim.sensitivity:
        for change, more in varied.changes.items():
            for name in dict.fromkeys((*first.of, *first.over)):
                yield step(name, *more, change=(varied.input, change))
    if claim.grid:
        judged = (c for c in claim.checks if c.up_to is not None)
        names = dict.fromkeys(name for c in judged for name in (*c.of, *c.over))
        axes = ([(axis, *item) for item in values.items()] for axis, values in claim.grid.items())
        for point in itertools.product(*axes):
            more = tuple(override for _, _, overrides in point for override in overrides)
            for name in names:
                yield step(name, *more, point=tuple((axis, value) for axis, value, _ in point))


def judged(loaded: Loaded, jobs: Sequence[Job], done: Iterable[Run], out: Path) -> Judged:
    """Write down which runs belong to the claim, and judge it by them."""
    from recsim_train.report.claims import judge

    claim = loaded.claim
    assert claim is not None
    runs: dict[str, str] = {}
    changed: dict[tuple[str, str], dict[str, str]] = {}
    points: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for job, run in zip(jobs, done, strict=True):
        step = job.step
        assert step is not None
        own = runs
        if step.change is not None:
            own = changed.setdefault(step.change, {})
        elif step.point:
            own = points.setdefault(step.point, {})
        own[step.variant] = run.figures["run_id"]
    claimed = ClaimRuns(
        loaded.experiment.name,
        loaded.path.as_posix(),
        claim,
        runs,
        tuple(Change(*change, ids) for change, ids in changed.items()),
        tuple(GridPoint(dict(point), ids) for point, ids in points.items()),
        out,
    )
    write_claim_runs(out, claimed)
    return judge(claimed)
