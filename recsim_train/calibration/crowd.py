"""Short real runs of flat_ps in one process: threads that share one interpreter lock.

What is found there (`handover`) holds that strategy's habits. The runs go through the executor,
readers and all, because who queues for the lock is a matter of everything that runs in a process.
Their models are this module's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from recsim_train.calibration import grid
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.config.experiment import (
    Experiment,
    Roles,
    StrategyChoice,
    Synthetic,
)
from recsim_train.data.synthetic import write_criteo
from recsim_train.executor.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.trace.record import Iteration, Outcome
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.operations import cost
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters

THREADS = 2

_CROWDED = (
    (Setting(8, 4, (32,), (16,), (48,), 4 * MEBI), 48),
    (Setting(24, 12, (128,), (64,), (64,), 8 * MEBI), 64),
    (Setting(12, 22, (64, 32), (96, 32), (112,), 8 * MEBI), 112),
)
_ROWS = 12_000
_WINDOWS = 8
_OPERATIONS = (
    "dense_read",
    "load",
    "route_ids",
    "lookup_pooled",
    "assemble_rows",
    "forward_backward",
    "route_gradient",
    "update_pooled",
    "dense_apply",
)
_EFFECTS = 7
"""Effects of one iteration of the asynchronous parameter server."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What one setting's runs showed."""

    alone: float
    """Iterations per second of one thread."""
    together: float
    """Iterations per second of `THREADS` threads together."""
    work: tuple[Work, ...]
    """Counted work of one iteration's loop, by operation."""
    reading: Work
    """Counted work of its reader."""


def runs_of(*, quick: bool) -> int:
    """How many runs `measure` makes."""
    return 2 * len(_CROWDED[: 1 if quick else None])


def measure(folder: Path, tick: Callable[[], None], *, quick: bool) -> list[Crowd]:
    """Run every setting with one thread and with two, everything in one process."""
    crowds = []
    for number, (setting, batch) in enumerate(_CROWDED[: 1 if quick else None]):
        steps = 80 if quick else 600
        path = folder / f"crowd-{number}.tsv"
        write_criteo(path, setting.model(), Synthetic(rows=_ROWS, seed=41), _ROWS)
        rates = []
        for threads in (1, THREADS):
            choice = StrategyChoice(kind="flat_ps")
            roles = Roles(trainers=1)
            run = grid.run(setting, batch, steps, path, roles, choice, threads=threads)
            rates.append(_rate(run))
            tick()
        crowds.append(Crowd(rates[0], rates[1], *iteration_work(setting, batch)))
    return crowds


def _rate(experiment: Experiment) -> float:
    """Iterations per second of all threads, in the fastest quarter of the run.

    Other load of the machine only ever slows a window down.
    """
    warmup = experiment.training.warmup_steps
    counted = [i for i in _run(experiment).iterations if i.iteration >= warmup]
    return best_rate(counted, _WINDOWS)


def _run(experiment: Experiment) -> Outcome:
    plan = build_plan(experiment, experiment.strategies[0])
    with tempfile.TemporaryDirectory(prefix="recsim-crowd-") as staging:
        return execute(plan, staging=Path(staging))


def best_rate(iterations: list[Iteration], windows: int) -> float:
    """Iterations per second in the second best of ``windows`` equal parts of the time in which
    all loops were at work."""
    loops: dict[str, list[Iteration]] = {}
    for iteration in iterations:
        loops.setdefault(iteration.loop, []).append(iteration)
    start = max(min(i.start for i in seen) for seen in loops.values())
    end = min(max(i.end for i in seen) for seen in loops.values())
    width = (end - start) / windows
    counts = [0] * windows
    for iteration in iterations:
        window = int((iteration.end - start) / width) if width > 0.0 else -1
        if 0 <= window < windows:
            counts[window] += 1
    return sorted(counts)[-2] / width


def iteration_work(setting: Setting, batch: int) -> tuple[tuple[Work, ...], Work]:
    """Counted work of one iteration with every shard in the own process: (loop, reader)."""
    ids = batch * setting.tables
    model = setting.model()
    scope = Scope(
        model=model,
        training=grid.training("adagrad").model_copy(update={"dense_optimizer": "sgd"}),
        batch=batch,
        ids=ids,
        unique=ids,
        tables=setting.tables,
        elements=dense_parameters(model),
    )
    parts = tuple(cost(name, scope) for name in _OPERATIONS)
    reading = {**cost("reading", replace(scope, text=True)), "feed_batch": 1.0}
    return (*parts, {"effect": _EFFECTS}), reading
