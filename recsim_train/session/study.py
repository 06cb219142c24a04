"""A study: an experiment file that was read and checked, and the runs that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.config.load import Loaded, load_points
from recsim_train.config.points import document_of
from recsim_train.config.sets import Assignment, option_names
from recsim_train.config.sweep import Point
from recsim_train.evaluate.levels import ASKED_MANY, ASKED_ONE, asking
from recsim_train.placement.build import build_plan
from recsim_train.placement.describe import describe
from recsim_train.placement.plan import Plan
from recsim_train.results.rundir import World
from recsim_train.session.job import NOBODY, Caller, Job
from recsim_train.session.modules import check_there, with_modules
from recsim_train.session.prepare import Profiles
from recsim_train.strategy.registry import schemas

if TYPE_CHECKING:
    from recsim_train.config.options import Schemas

_MOST_ERRORS = 10


@dataclass(frozen=True, slots=True, repr=False)
class Study:
    """An experiment that was read and checked; see `recsim_train.load`."""

    path: Path
    """The experiment file; of one that was given as a mapping, what sentences call it."""
    points: tuple[Loaded, ...]
    """One, unless it is a sweep."""
    cluster: str | None = None
    """The profile, by name or file, instead of the experiment's own."""
    overrides: tuple[str, ...] = ()
    """``key=value``, as ``--set`` takes them; the seed among them."""

    def __repr__(self) -> str:
        """On one line: a study holds all of its points' settings."""
        first, kinds = self.experiment, [choice.kind for choice in self.experiment.strategies]
        many = f", {len(self.points)} points" if self.swept else ""
        on = self.cluster or first.cluster
        return f"<Study {first.name!r}: {', '.join(kinds)} on {on}{many}>"

    def _repr_html_(self) -> str:
        """In notebooks: what matters of its settings."""
        from recsim_train.report.document import TextTable
        from recsim_train.report.publish import fragment

        return fragment([TextTable.of(("setting", "value"), self._settings(), ("value",))])

    def _settings(self) -> list[tuple[str, str]]:
        first, roles, training = self.experiment, self.experiment.roles, self.experiment.training
        rows = sum(table.rows for table in first.model.tables)
        counts = {name.replace("_", " "): count for name, count in roles.model_dump().items()}
        servers = [f"{name} {count}" for name, count in counts.items() if count]
        batches = f"batches of {training.batch_size:,}, {training.threads} threads"
        many = f"{len(self.points):,} points, of which the first: " if self.swept else ""
        return [
            ("experiment", f"{many}{first.name}"),
            ("model", f"{first.model.name}: {len(first.model.tables)} tables, {rows:,} rows"),
            ("roles", ", ".join(servers)),
            ("training", f"{batches}, {training.steps:,} steps"),
            ("strategies", ", ".join(choice.kind for choice in first.strategies)),
            ("cluster", self.cluster or first.cluster),
        ]

    @property
    def experiment(self) -> Experiment:
        """The checked settings; of a sweep, those of its first point."""
        return self.points[0].experiment

    @property
    def swept(self) -> bool:
        """Whether it is a sweep."""
        return self.points[0].sweep is not None

    @property
    def plans(self) -> list[Plan]:
        """What would be started, one for each run: every process, shard, loop and group."""
        return [job.plan for job in self.jobs(dry=True)]

    def describe(self) -> str:
        """The plans in words, as ``--dry-run`` prints them."""
        return "\n".join(map(describe, self.plans))

    def jobs(
        self,
        world: World = "simulated",
        *,
        dry: bool = False,
        what_if: bool = False,
        caller: Caller = NOBODY,
    ) -> list[Job]:
        """Every run that is asked for, each once, with its checked plan.

        ``dry``: nothing is measured for it.
        ``what_if``: see `recsim_train.predict`. Raises UserError with all that is wrong.
        """
        profiles = Profiles(self.cluster, world, dry, caller)
        if self.swept and world == "real":
            caller.say(f"a sweep: {len(self.points)} points are measured one after the other")
        points = self.points
        if world == "real":
            check_there(points)
        if what_if:
            asked = ASKED_MANY if self.swept else ASKED_ONE
            points = tuple(
                replace(point, experiment=point.experiment.with_(asking(point.experiment, asked)))
                for point in points
            )
        return _planned(points, profiles, caller)


def read(
    source: Path | Mapping[str, Any],
    cluster: str | None,
    overrides: Sequence[str],
    seed: int | None,
    chosen: Sequence[str | Assignment] = (),
) -> Study:
    """See `recsim_train.load`. ``chosen``: further settings, each with its value."""
    sets = [*overrides, *([f"seed={seed}"] if seed is not None else [])]
    there = source if isinstance(source, Path) else document_of(source)
    points = with_modules(load_points(there, [*sets, *chosen], schemas()))
    return Study(points[0].path, points, cluster, tuple(sets))


def _planned(points: Iterable[Loaded], profiles: Profiles, caller: Caller) -> list[Job]:
    """Every point and strategy with its checked plan, those that are the same only once."""
    known = schemas()
    jobs: dict[str, Job] = {}
    errors: dict[str, str] = {}
    notes: dict[str, None] = {}
    plans: list[tuple[Loaded, StrategyChoice, Plan]] = []

    def wrong(error: UserError, items: Sequence[Assignment], point: Point) -> None:
        where = f"{items[0].mark}: where {point}: " if items else ""
        errors.setdefault(str(error), f"{where}{error}")

    for loaded in points:
        for choice in loaded.experiment.strategies:
            try:
                plans.append((loaded, choice, build_plan(loaded.experiment, choice)))
            except UserError as error:
                wrong(error, loaded.point.items, loaded.point)
    profiles.dry |= bool(errors)  # no machine is measured for what is refused
    for loaded, choice, plan in plans:
        try:
            cluster = profiles.of(loaded)
        except UserError as error:  # it names its own places
            wrong(error, [i for i in loaded.point.items if i.key == "cluster"], loaded.point)
            continue
        notes |= dict.fromkeys(plan.notes)
        job = Job(profiles.world, loaded, plan, cluster, _settings(loaded, choice, known))
        jobs.setdefault(job.identity, job)
    if errors:
        shown = list(errors.values())[:_MOST_ERRORS]
        more = [f"and {len(errors) - _MOST_ERRORS} more"] if len(errors) > _MOST_ERRORS else []
        raise UserError("\n".join([*shown, *more]))
    for note in notes:
        caller.say(f"note: {note}")
    if (same := len(plans) - len(jobs)) > 0:
        caller.say(f"note: {same} of {len(plans)} points equal another one: done once")
    return list(jobs.values())


def _settings(loaded: Loaded, choice: StrategyChoice, known: Schemas) -> dict[str, Any]:
    options = {"kind": choice.kind, **choice.options}
    own = {f"strategy.{name}" for name in option_names(options, known)}
    return {
        key: value if key in own or not key.startswith("strategy.") else None
        for key, value in loaded.point.values.items()
        if key != "strategy"
    }
