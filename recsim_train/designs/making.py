"""A recommendation from a study: its designs, the search through them, and what is left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.config.load import Loaded
from recsim_train.config.sweep import written
from recsim_train.designs import measured, next_steps
from recsim_train.designs.answer import Recommended, answer_document, answer_of, barriers
from recsim_train.designs.changes import changes
from recsim_train.designs.measured import MeasuredDesign
from recsim_train.designs.notes import Notes
from recsim_train.designs.picture import draw
from recsim_train.designs.searching import Searcher
from recsim_train.designs.shown import document
from recsim_train.designs.space import (
    Candidate,
    Origin,
    Space,
    space_of,
    training_loops,
    tried,
)
from recsim_train.designs.wanted import By, Demand
from recsim_train.report.document import Document
from recsim_train.report.html import fragment
from recsim_train.report.publish import publish
from recsim_train.results.folder import RUNS, free_path, json_bytes, slug, writable
from recsim_train.session import prepare
from recsim_train.session.caller import Caller
from recsim_train.session.study import Study, read

MOST_KEPT = 5
"""Designs that leave a folder."""


@dataclass(frozen=True, slots=True, repr=False)
class Recommendation:
    """Which design to take, and why."""

    answer: Recommended
    report: Document
    """All of it in words and tables."""
    out: Path | None = None
    """The folder with its page and the first designs; None: nothing was written."""
    runs: tuple[MeasuredDesign, ...] = ()
    """The first designs, where they were measured."""

    def __repr__(self) -> str:
        """On one line."""
        return f"<Recommendation: {next(iter(self.report.headlines))}>"

    def _repr_html_(self) -> str:
        """In notebooks."""
        return fragment([], self.report.headlines)

    @property
    def met(self) -> bool | None:
        """Whether a design meets the target; None: there is none."""
        return self.answer.met

    @property
    def document(self) -> dict[str, Any]:
        """The document of ``recommend --json``."""
        return {**answer_document(self.answer), "measured": measured.document(self.runs)}


def space(study: Study, hosts: int | None, caller: Caller, *, dry: bool = False) -> Space:
    """All designs of a study. Raises UserError."""
    if study.swept:
        raise UserError(
            f"{study.path}: is a sweep: `recommend` chooses among the values of `search`, and "
            "takes no `sweep`"
        )
    profiles = prepare.Profiles(study.cluster, "simulated", dry, caller)
    loops = training_loops(study.experiment, study.experiment.strategies[0])
    origins = []
    for loaded, settings in _points(study):
        cluster = profiles.of(loaded)
        if cluster is None:
            raise UserError(
                "this machine has no profile yet (recsim-train calibrate), and `recommend` needs a "
                "profile of hosts: name one with --cluster"
            )
        examples = loops * loaded.experiment.training.batch_size
        origins += [Origin(loaded, one, cluster, settings, examples) for one in tried(loaded)]
    return space_of(origins, hosts)


def _points(study: Study) -> Iterator[tuple[Loaded, Mapping[str, Any]]]:
    """The study with each combination of the search's further settings."""
    (first,) = study.points
    varied = first.search.settings
    if not varied:
        yield first, {}
        return
    for name, values in varied.items():
        if not values:
            raise UserError(f"search.settings: {name}: expected at least one value")
    for values in product(*varied.values()):
        settings = dict(zip(varied, values, strict=True))
        sets = [f"{key}={written(value)}" for key, value in settings.items()]
        source: Path | dict[str, Any] = study.path if study.path.is_file() else first.raw
        (point,) = read(source, study.cluster, [*study.overrides, *sets], None).points
        yield point, settings


def recommend(
    study: Study,
    *,
    target: float | None,
    hosts: int | None,
    budget: float | None,
    by: By | None,
    likely: bool,
    out: Path | None,
    resume: bool,
    runs: int,
    processes: int,
    caller: Caller,
) -> Recommendation:
    """See `recsim_train.recommend`, whose ``measure`` is ``runs`` here."""
    if runs and out is None:
        raise UserError("measurements need a folder that their runs go into: give `out`")
    name = f"{slug(study.experiment.name, 'experiment')}-recommendation"
    designs = space(study, hosts, caller)
    wanted = Demand(target, budget, by or _usual(target, designs), likely)
    _check_prices(designs, wanted)
    prepare.ensure_all_data([candidate.job for candidate in designs.candidates], caller)
    if out is not None:
        writable(out)
    notes = Notes(None if out is None else out / f"{name}.jsonl", resume=resume)
    if resume and len(notes):
        caller.say(f"going on with {len(notes):,} looks and simulations of before")
    found = Searcher(designs, wanted, processes, caller, notes).run()
    answer = answer_of(found)
    if answer.met is False and wanted.target is not None:
        forbids = barriers(answer.chosen, wanted.target)
        enough, all_tried = changes(
            answer.chosen, wanted.target, processes=processes, caller=caller
        )
        answer = replace(answer, barriers=forbids, changes=enough, all_tried=all_tried)
    if out is None:
        return Recommendation(answer, document(answer))
    place = free_path(out / name)
    first = [answer.chosen, *answer.tied, *answer.others]
    folders = next_steps.write(place, first[: max(MOST_KEPT, runs)])
    done = measured.measure(first[:runs], place / RUNS, caller) if runs else []
    pictures = draw(answer)
    report = document(answer, [*folders, place / "report.html"], pictures, done)
    made = Recommendation(answer, report, place, tuple(done))
    publish(place, report, pictures, "summary.md", {"summary.json": json_bytes(made.document)})
    if not found.stopped:
        notes.close()
    return made


def _usual(target: float | None, designs: Space) -> By:
    """What counts where nobody says it."""
    if target is None:
        return "throughput"
    return "cost" if _unpriced(designs) is None else "hosts"


def _check_prices(designs: Space, wanted: Demand) -> None:
    """Raises UserError where money is asked for and not every host has a price."""
    if wanted.by != "cost" and wanted.budget is None:
        return
    if (lacking := _unpriced(designs)) is not None:
        asked = "--budget" if wanted.budget is not None else "--by cost"
        raise UserError(
            f"{asked}: not every host of cluster profile {lacking.job.profile.name} has a price: "
            "give hosts.default.rent (and that of other host types) as {per_hour: ..., currency: "
            "..., source: ..., date: ...}, or ask --by hosts"
        )


def _unpriced(designs: Space) -> Candidate | None:
    """One of whose hosts have no price; None: all have."""
    return next((c for c in designs.candidates if c.rented is None), None)
