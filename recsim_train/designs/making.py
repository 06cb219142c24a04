"""A recommendation from a study: its designs, the search through them, and what is left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.load import Loaded
from recsim_train.config.sweep import expand
from recsim_train.config.units import parse_money
from recsim_train.designs import measured
from recsim_train.designs.answer import (
    Recommended,
    answer_document,
    answer_of,
    barriers,
    design_document,
)
from recsim_train.designs.changes import changes
from recsim_train.designs.measured import MeasuredDesign
from recsim_train.designs.searching import Searcher
from recsim_train.designs.shown import document, frontier
from recsim_train.designs.space import (
    Origin,
    Space,
    space_of,
    training_loops,
    tried,
)
from recsim_train.designs.wanted import By, Demand
from recsim_train.evaluate.evaluator import Memo
from recsim_train.report.write import Reported
from recsim_train.results.environment import code_of, made_anew
from recsim_train.results.folder import RUNS, base_path, free_path, writable
from recsim_train.session import prepare
from recsim_train.session.job import Caller
from recsim_train.session.study import Study, read

MOST_KEPT = 5
"""Designs that leave a folder."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Recommendation(Reported):
    """Which design to take, and why."""

    answer: Recommended
    runs: tuple[MeasuredDesign, ...] = ()
    """The first designs, where they were measured."""

    @property
    def met(self) -> bool | None:
        """Whether a design meets the target; None: there is none."""
        return self.answer.met


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
    source: Path | dict[str, Any] = study.path if study.path.is_file() else first.raw
    for point in expand(first.varied):
        chosen = (*first.profile_sets, *point.items)
        (made,) = read(source, study.cluster, study.overrides, None, chosen).points
        yield made, point.values


def recommend(
    study: Study,
    *,
    target: float | None,
    hosts: int | None,
    budget: str | None,
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
    if runs:
        prepare.can_emulate()  # before a search of minutes
    designs = space(study, hosts, caller)
    wanted = demand(designs, target, budget, by, likely)
    prepare.ensure_all_data([candidate.job for candidate in designs.candidates], caller)
    if out is not None:
        writable(out)
    code = code_of(candidate.job.plan.strategy for candidate in designs.candidates)
    base = None if out is None else base_path(out, study.experiment.name, "recommendation")
    memo = Memo(base and base.with_name(f"{base.name}.jsonl"), code, resume=resume)
    if len(memo):
        caller.say(f"going on with {len(memo):,} bounds and simulations of before")
    if memo.others:
        what = f"{len(memo.others):,} bounds and simulations of before"
        caller.say(made_anew(what, memo.others[-1], code))
    found = Searcher(designs, wanted, processes, caller, memo).run()
    answer = answer_of(found)
    if answer.met is False and wanted.target is not None:
        forbids = barriers(answer.chosen, wanted.target)
        answer = replace(answer, barriers=forbids)
        try:
            would = changes(answer.chosen, wanted.target, processes=processes, caller=caller)
            answer = replace(answer, would=would)
        except RunFailed as error:  # the answer stands all the same
            caller.say(f"note: what would be enough is not known: {error}")
    first = [answer.chosen, *answer.tied, *answer.others]

    def made(folders: Sequence[Path], done: Sequence[MeasuredDesign]) -> Recommendation:
        return Recommendation(
            answer=answer,
            runs=tuple(done),
            compose=lambda pictures: document(answer, pictures, folders, done),
            draw=lambda: [frontier(answer)],
            document={**answer_document(answer), "measured": measured.document(done)},
            rows=[design_document(design) for design in first],
        )

    if base is None:
        return made((), ())
    place = free_path(base)
    folders = measured.write_folders(place, first[: max(MOST_KEPT, runs)])
    measures = runs and not found.stopped
    done = measured.measure(first[:runs], place / RUNS, caller) if measures else []
    written = made(folders, done).written(place)
    if not found.stopped:
        memo.close()
    return written


def demand(
    designs: Space, target: float | None, budget: str | None, by: By | None, likely: bool
) -> Demand:
    """What is asked of designs. ``budget``: "50 USD/h". Raises UserError where money is asked for
    and not every host has a price, or prices are in several currencies."""
    priced = {c.rented.currency if c.rented else "": c for c in designs.candidates}
    comparable = len(priced) == 1 and "" not in priced
    by = by or ("throughput" if target is None else "cost" if comparable else "hosts")
    if (by == "cost" or budget is not None) and not comparable:
        why = (
            f"not every host of cluster profile {lacking.job.profile.name} has a price: give "
            "hosts.default.rent (and that of other host types) as {per_hour: ..., currency: ..., "
            "source: ..., date: ...}"
            if (lacking := priced.get(""))
            else f"prices are in {' and '.join(priced)}, and amounts of different currencies are "
            "not compared: give all in one"
        )
        asked = "--budget" if budget is not None else "--by cost"
        raise UserError(f"{asked}: {why}, or ask --by hosts")
    try:
        most = None if budget is None else parse_money(budget, *priced)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from None
    return Demand(target, most, by, likely)
