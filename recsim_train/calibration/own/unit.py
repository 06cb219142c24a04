"""The bench of unit prices: plans of calibration's own, whose operations are timed at their shapes.

The plans span shapes, poolings and optimizers; none is of a model that anybody trains. Their rounds
are timed as those of a user's plan are (`recsim_train.calibration.own.rounds`), so that both find
the same caches. Large batches run on several threads, too: that is how operations scale. Times are
those of a process that works alone, because contention is simulated by itself. What belongs here is
which plans there are and what their windows showed; `recsim_train.calibration.prices` makes prices
of it. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from math import ceil
from operator import itemgetter
from statistics import fmean
from typing import Any, Literal, NamedTuple

from recsim_train.calibration import grid
from recsim_train.calibration.fit import Observation
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own.measure import by_shape, started, window
from recsim_train.calibration.speed import Seen, Turns, short_reading
from recsim_train.config.experiment import (
    Data,
    Experiment,
    Roles,
    StrategyChoice,
    Synthetic,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.trace.ledger import READING
from recsim_train.workload.compression import layout
from recsim_train.workload.operations import OPS
from recsim_train.workload.scope import Cell, Scope
from recsim_train.workload.shape import dense_parameters

_USUAL = grid.training()
_BESIDE = 4
"""So many operations on dense parameters are in the rounds of a plan, beside its steps, as a
strategy has them: with all of them rounds would leave the caches colder than any strategy does."""
_RULES = (
    ("server", _USUAL),
    ("worker", grid.training("sgd", "adagrad")),
    ("server", grid.training("sgd", "sgd")),
    ("worker", grid.training("rowwise_adagrad", "adagrad")),
)
"""In turn, two plans each, because every second one is kept out of a fit that it is to judge: who
pools, and which optimizers."""
_OTHERS = (
    (Setting(16, 8, (96,), (128, 64), (), 8 * MEBI), 128),
    (Setting(32, 14, (256, 64), (192, 96), (), 16 * MEBI), 384),
)
"""(model, batch) of a net that is cut, of a cache of rows and of a mask."""
_MASK = {"kind": "dct", "mode": "mp", "mp_density": 0.25}
_DENSITY = 0.01
"""Of large tensors, what a compression keeps."""
_THREADED = 384
"""Examples from which a plan's operations run on several threads, too: batches in lock-step."""
_CHECKED = 4
"""One in so many of these is kept out of the fit of how operations scale."""
_TURNS, _SECONDS, _QUICK = 2, 0.5, 0.1
"""How often each plan has its turn, the others between; seconds of a window."""


class GridPlan(NamedTuple):
    """One plan and what is timed of it."""

    plan: Plan
    cells: list[Cell]
    law: Literal["", "fit", "check"] = ""
    """Whether windows on several threads show how operations scale, or what that is checked on."""


def plans(*, quick: bool) -> list[GridPlan]:
    """All plans, in whose rounds each operation has its turn, reading apart: that is priced from
    runs."""
    settings = grid.QUICK if quick else grid.GRID
    pairs = [(setting, batch) for setting in settings for batch in setting.batches]
    found: list[GridPlan] = []
    large = 0
    steps, dense = _of_steps(dense=False), _of_steps(dense=True)
    beside = max(_BESIDE, ceil(len(dense) / len(pairs)))
    others = cycle(dense)
    for number, (setting, batch) in enumerate(pairs):
        pooling, rules = _RULES[number // 2 % len(_RULES)]
        names = [*steps, *islice(others, beside)]
        shards = 1 if number % 5 == 4 else 2
        plan = step_plan(setting, batch, pooling, rules, shards=shards, names=names)
        if batch >= _THREADED:
            large += 1
            plan = plan._replace(law="check" if large % _CHECKED == 0 else "fit")
        found.append(plan)
    cut_nets = [name for name in OPS if name.startswith("net_")]
    for setting, batch in _OTHERS[: 1 if quick else None]:
        masked, cached = {"compression": _MASK}, {"cache_share": 0.5}
        cut = {"tags": _tags(setting), "hosts": 2, "outer": "easgd"}
        found += [
            _planned(setting, batch, "flat_ps", masked, _USUAL, ["mask"]),
            _planned(setting, batch, "scalefreectr", cached, _USUAL, ["flush"], trainers=2),
            _planned(setting, batch, "hierarchical", cut, _USUAL, cut_nets, trainers=4),
        ]
    return found


def step_plan(
    setting: Setting,
    batch: int,
    pooling: str = "server",
    rules: Training = _USUAL,
    *,
    shards: int = 1,
    names: Sequence[str] = (),
) -> GridPlan:
    """Steps against shards: the operations of these ``names``, or all."""
    names = names or [*_of_steps(dense=False), *_of_steps(dense=True)]
    return _planned(setting, batch, "flat_ps", {"pooling": pooling}, rules, names, shards=shards)


def _planned(
    setting: Setting,
    batch: int,
    kind: str,
    options: dict[str, Any],
    rules: Training,
    names: Sequence[str],
    *,
    trainers: int = 1,
    shards: int = 2,
) -> GridPlan:
    spec = Experiment(
        name="calibration",
        model=setting.model(),
        data=Data(eval_rows=0, synthetic=Synthetic(rows=40_000, seed=59)),
        roles=Roles(trainers=trainers, embedding_servers=shards, dense_servers=1),
        training=rules.model_copy(update={"batch_size": batch}),
        strategies=(StrategyChoice(kind=kind, options=options),),
    )
    plan = build_plan(spec, spec.strategies[0])
    cut, elements = layout(spec.model), dense_parameters(spec.model)
    scope = Scope(
        spec.model,
        spec.training,
        batch=batch,
        unique=batch,
        tables=len(cut.large),
        elements=elements,
        kept=cut.kept(_DENSITY) + cut.small_elements,
        shards=2,
    )
    selected = replace(scope, elements=elements - cut.small_elements)
    cells = [(name, selected if name.startswith("threshold") else scope) for name in names]
    return GridPlan(plan, cells)


def _of_steps(*, dense: bool) -> list[str]:
    """Operations of loops and shards, those of nets that are cut apart: on dense parameters, or
    all others."""
    names = [name for name in OPS if name != READING and not name.startswith("net_")]
    return [name for name in names if (OPS[name].fit == "dense") == dense]


def _tags(setting: Setting) -> str:
    """The first layers of the top at one host each, all others at every host."""
    bottom = [f"bottom.{n}=dp" for n in range(len(setting.bottom) + 1)]
    top = [f"top.{n}={n if n < 2 else 'dp'}" for n in range(len(setting.top) + 1)]
    return ", ".join([*bottom, "interaction=dp", *top])


class FromPlans(NamedTuple):
    """What windows of all plans showed."""

    observations: list[Observation]
    """One of each operation and shape: counted work and CPU seconds of one thread."""
    threaded: list[dict[str, Any]]
    """Operations that threads share, as `recsim_train.calibration.threads.fit_threads` takes them:
    means of what they took on one thread and on many."""


def measure(cores: int, tick: Callable[[], None], *, quick: bool) -> FromPlans:
    """All plans in turn; ``tick`` is called after each turn. Raises RunFailed."""
    planned = plans(quick=quick)
    seconds = _QUICK if quick else _SECONDS

    def windows(number: int) -> Seen:
        plan, cells, law = planned[number]
        with started(plan, cells, 1) as processes:
            seen = {"alone": window(processes, seconds)}
            if law and cores > 1:
                seen["pooled"] = window(processes, seconds, cores)
        return seen

    turns = Turns(short_reading)
    turns.make(len(planned), turns_of(quick=quick), windows, tick)
    observed, threaded = list[tuple[str, Observation]](), list[dict[str, Any]]()
    for number, of in enumerate(planned):
        seen = turns.seen(number)
        once, many = by_shape(seen["alone"]), by_shape(seen.get("pooled", ()))
        for (operation, *_), each in once.items():
            work = _means([figures["work"] for figures in each])
            took = fmean(figures["cpu"] for figures in each)
            group = OPS[str(operation)].fit
            observed.append((str(operation), Observation(group, work, took)))
        threaded.extend(
            {
                "check": of.law == "check",
                "work": _means([figures["work"] for figures in each]),
                "divided": _means([figures["divided"] for figures in each]),
                "wakes": fmean(figures["wakes"] for figures in each),
                "one": _clocks(each),
                "many": _clocks(many[key]),
            }
            for key, each in once.items()
            if key in many and any(figures["wakes"] for figures in each)
        )
    # one operation after the other: what is kept out to judge a fit is every second plan of each
    return FromPlans(
        [observation for _, observation in sorted(observed, key=itemgetter(0))], threaded
    )


def turns_of(*, quick: bool) -> int:
    """How many turns each plan has."""
    return 1 if quick else _TURNS


def _means(works: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(work[name] for work in works) for name in works[0]}


def _clocks(each: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds: wall, CPU of the whole process, CPU of the calling thread."""
    return [fmean(figures[clock] for figures in each) for clock in ("wall", "cpu", "own")]
