"""The levels at which a case is simulated: how long, and by how many representatives.

All numbers that say how much simulation an answer costs stand here. What a level changes
of a case are overrides (`at`), so that it can be printed, and repeated by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recsim_train.config.experiment import Experiment
from recsim_train.evaluate.case import Case
from recsim_train.placement.plan import Plan

if TYPE_CHECKING:
    from recsim_train.sim.folding import Folding


class Length(NamedTuple):
    """How many iterations of each loop are counted."""

    least: int = 1
    most: int | None = None
    """None: as many as the experiment says."""
    requests: int | None = None
    """As many, within these two, as have about so many requests of all loops to servers."""
    iterations: int | None = None
    """As many, within these two, as have so many of all loops together."""
    warmup: int | None = None
    """Those before them, at most; None: as the experiment says."""
    ends: bool = False
    """Whether the job ends after ``most``; else readers go on."""
    precision: float | None = None
    """Of the estimate, which ends it between ``least`` and ``most``; None: as the experiment
    says."""


class Few(NamedTuple):
    """How many trainers are simulated where they may stand for others."""

    trainers: int | None = None
    """Of more so many; None: as the experiment says."""
    owners: int | None = None
    """The same of trainers that own rows, each of which lie in few shards."""
    loops: int | None = None
    """Of more loops as many trainers as have so many, ..."""
    least: int = 1
    """... and at least these."""
    relative: float | None = None
    """So many times those of the simulation that it is compared with."""
    threads: int | None = None
    """Of each trainer, at most."""
    each: int | None = None
    """Training loops of each trainer, where the others would do the same."""


class ShortRuns(NamedTuple):
    """The short runs that ask what would change a prediction."""

    steps: int
    """Counted iterations of each loop; 0: none is made."""
    trainers: int | None = None
    """Of more so many are simulated there."""
    always: bool = False
    """Whether also where the experiment says otherwise."""


_GIVEN, _EVERY = Length(), Few()
Gives = Literal["bounds", "rate", "prediction", "interval"]
"""What a row of a level has: asymptotic bounds, whether it fits; how fast it is, and what is busy;
all that is to be said of a prediction; the same with its interval, which is taken over from fewer
trainers and threads (`BORROWED`) where asking all would take too long."""


@dataclass(frozen=True, slots=True)
class Level:
    """One of them."""

    name: str
    gives: Gives = "prediction"
    steps: Length = _GIVEN
    few: Few = _EVERY
    what_if: ShortRuns | None = None
    """None: as the experiment says."""
    racks: float = inf
    """Hosts stand in their racks where one loop of each simulated trainer sends no more requests in
    a step than these."""
    spans: bool = True
    """Whether spans are kept."""
    failures: bool = True
    """Whether hosts fail, where the profile has them fail."""
    seconds: float | None = None
    """Of CPU, that it may take: a case that takes more has failed."""


BUSY = 400
"""Requests in one step of all loops, from which few loops stand for many, and free ones are put out
of step: by themselves they part within some dozen steps, which nobody then simulates."""
GROWTH = 1.1
"""Between two looks at whether an estimate has settled, the counted iterations grow so much."""

BOUND = Level(
    "bound", "bounds", Length(2, 8, warmup=1), Few(1, owners=4, each=1), racks=10_000, spans=False,
    failures=False, seconds=10.0,
)  # fmt: skip
"""Contention-free: nobody waits for what others use. Of a few steps those of several
representatives would be cut at different places. More than ``least`` are counted where loops
prepare batches ahead of training, for several steps in each of the first ones."""
BOUND_IN_RACKS = replace(BOUND, name="bound in racks", racks=inf)
"""The same, however long that takes: of few designs what racks' uplinks allow."""
SCREEN = Level(
    "screen", "rate", Length(2, 16, requests=4_000, warmup=2, ends=True, precision=0.1),
    Few(loops=32, least=2), ShortRuns(0, always=True), racks=0, spans=False, seconds=60.0,
)  # fmt: skip
"""The first simulation of a design."""
RACE = Level(
    "race", "rate", Length(4, 60, requests=16_000, warmup=2, ends=True, precision=0.02),
    Few(loops=128, least=2), ShortRuns(0, always=True), spans=False, seconds=120.0,
)  # fmt: skip
"""The second one, of the designs that are still promising."""
FINAL = Level("final")
"""Any prediction."""
USUAL = Level("usual", steps=Length(16), few=Few(100, loops=64, least=4))
"""What a prediction takes where its experiment does not say: ``least`` steps where there are many
loops, so many trainers, and of those with more than `BUSY` requests a step so many loops."""
ASKED_ONE, ASKED_MANY = ShortRuns(5), ShortRuns(3, 8)
"""Where it is asked what would change one prediction, or each of a sweep's, and the experiment does
not say how."""
BORROWED = Level(
    "borrowed", "prediction", Length(2, warmup=1, precision=0.1), Few(2, threads=8),
    ShortRuns(5, 2, always=True), racks=0,
)  # fmt: skip
"""What tells how far calibration's errors carry for designs in racks or of more threads."""
INTERVAL = Level("interval", "interval", what_if=ASKED_MANY, seconds=300.0)
"""Of the best designs of a search."""
ABOVE_BOUNDS = 0.03
"""By how much a prediction may be above its asymptotic bound, relative: of 353 drawn designs four
were more, of ScaleFreeCTR in racks, by up to 6.2 %."""


class Rung(NamedTuple):
    """A level that a search goes through."""

    level: Level
    above: float
    """By how much a whole prediction is above it, relative. More were 7 % of 353 drawn designs
    after the first, 2 % of 53 after the second level."""
    most: int
    """Designs of a search that get there, those first that promise most."""


RUNGS = (Rung(SCREEN, 0.20, 128), Rung(RACE, 0.04, 24), Rung(INTERVAL, 0.0, 8))
SOUNDED = 2
"""Designs of each strategy whose bounds are asked for first: where these take too long, so do those
of its others."""
LEAST, TOGETHER = 3, 8
"""Designs that an answer has as whole predictions, where there are as many; those that are
simulated shortly before others are chosen by what is known then, half as many at each further
level."""
BELOW = 0.05
"""Until intervals are known: by how much their lower ends are below predictions, relative."""
HALVED = Level("halved", few=Few(relative=0.5))
"""Compared with a prediction, to say what having representatives changes."""
OTHERWISE = Level("otherwise", steps=Length(24, 100, iterations=4_800), few=Few(relative=1.0))
"""With another queue or jitter, compared with as many steps of a prediction, so that what the
beginning does is in both."""
SHORT = Level("short", "rate", Length(warmup=2), Few(16), spans=False, failures=False)
"""One of the runs that ask what would change a prediction."""
TIMES = Level("times", steps=Length(most=24), few=Few(0))
"""What operations take, of all trainers."""
OWN = Level("own", steps=Length(most=400, ends=True), what_if=ShortRuns(20, always=True))
"""Calibration's own comparison."""
OWN_QUICK = Level(
    "own, quick", steps=Length(most=400, ends=True), what_if=ShortRuns(5, always=True)
)


def at(case: Case, level: Level, like: Folding | None = None) -> Case:
    """The case, changed to what is simulated of it. ``like``: who is simulated in what it is
    compared with."""
    return case.with_(overrides(case, level, like))


def overrides(case: Case, level: Level, like: Folding | None = None) -> dict[str, Any]:
    """What a level changes, by dotted keys."""
    rules = case.experiment.training
    steps, few, asked = level.steps, level.few, level.what_if
    changes: dict[str, Any] = {}
    most, counted, warmup = _most(case, few, like), steps.most, rules.warmup_steps
    least, period = steps.least, 1
    if steps.requests is not None:
        if case.plan.topology.period <= (steps.most or 1):
            period = case.plan.topology.period
        least = whole(least, period)
        counted = as_many(case.plan, steps, (most or 1) / case.experiment.roles.trainers)
        counted = whole(counted, period)
        warmup = min(warmup, counted - 1)
    if steps.warmup is not None:  # whole periods too: some strategies meet once more at the end
        changes["training.warmup_steps"] = whole(min(steps.warmup, warmup), period)
    if steps.ends and counted is not None:
        changes["training.steps"] = min(counted, rules.steps)
    if steps.precision is not None:
        changes |= {
            "simulation.precision": steps.precision,
            "simulation.minimum_steps": least,
        }
    if most is not None:
        changes["simulation.fold_above"] = most
    if few.threads is not None:
        changes["training.threads"] = min(few.threads, rules.threads)
    if asked is not None:
        changes |= asking(case.experiment, asked)
    if not level.spans:
        changes["execution.max_spans"] = 0
    if not level.failures:
        changes["cluster.failures"] = None
    if not level.racks:
        changes["cluster.topology"] = None
    return changes


def asking(experiment: Experiment, asked: ShortRuns) -> dict[str, Any]:
    """What makes it asked what would change a prediction, by dotted keys."""
    known = {"what_if_steps": asked.steps, "what_if_trainers": asked.trainers}
    return {
        f"simulation.{name}": value
        for name, value in known.items()
        if value is not None and (asked.always or getattr(experiment.simulation, name) is None)
    }


def _most(case: Case, few: Few, like: Folding | None) -> int | None:
    """Trainers to simulate at most; None: as the experiment says."""
    if few.relative is not None:
        return None if like is None or like.exact else int(like.simulated * few.relative)
    if like is not None:  # a run that asks what would change it
        most = case.experiment.simulation.what_if_trainers
        return most if like.exact else min(most or few.trainers or 1, like.simulated)
    if few.loops is not None:
        return trainers_of(case.plan, few)
    owned = few.owners is not None and case.plan.topology.cache is not None
    return few.owners if owned else few.trainers


def whole(steps: int, period: int) -> int:
    """So many iterations, or as many more as whole periods have."""
    return ceil(steps / period) * period


def as_many(plan: Plan, steps: Length, share: float = 1.0) -> int:
    """Counted iterations; ``share``: of all requests, those of the simulated trainers."""
    if steps.requests is not None:
        wanted = ceil(steps.requests / (requests_of(plan) * min(1.0, share)))
    else:
        wanted = (steps.iterations or 0) // len(plan.training)
    return max(steps.least, min(steps.most or wanted, wanted))


def trainers_of(plan: Plan, few: Few) -> int:
    """How many trainers have as many loops."""
    loops = (few.loops or 0) * plan.experiment.roles.trainers
    return max(few.least, ceil(loops / len(plan.training)))


def requests_of(plan: Plan) -> int:
    """Those to servers, or to each other, in one step of all loops."""
    services = (plan.embedding, plan.dense)
    shards = sum(len(service.shards) for service in services if service is not None)
    return len(plan.training) * max(1, shards)
