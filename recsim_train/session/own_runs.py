"""Predictions of calibration's own runs; and by how much a net's pass takes longer in such runs
than in a row.

A window of passes in a row finds in a core's caches what the one before has left there, and nobody
interrupts it. In a run other threads work on its core between two passes. What that takes is
measured, with nets that no experiment of a user's has, in runs of one loop and of a loop for each
core, beside windows of the same passes; one factor for both, because a law by the number of loops
made predictions of stored validations no better.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from math import exp, hypot, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from recsim_train.calibration.own.measure import measure_windows, measured_operations
from recsim_train.calibration.own_runs import OwnRun, Said
from recsim_train.calibration.profile import UNSEEN
from recsim_train.calibration.programs import known
from recsim_train.calibration.runs import TALKS, experiment, outcome_of
from recsim_train.calibration.speed import short_reading
from recsim_train.config.cluster import Cluster, InRuns
from recsim_train.config.experiment import Experiment
from recsim_train.config.measured import MeasuredOperation
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import OWN, OWN_QUICK, at
from recsim_train.evaluate.prediction import predict
from recsim_train.evaluate.simulations import operations_of
from recsim_train.placement.build import build_plan
from recsim_train.results.statistics import standard_error
from recsim_train.sim.pricing import Pricing
from recsim_train.strategy.operations import FORWARD_BACKWARD
from recsim_train.trace.ledger import Ledger, share_around
from recsim_train.trace.record import Outcome
from recsim_train.workload.arithmetic import add
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature

_TURNS = 2
"""In which operations are brought to what they took: who shares the cores with whom changes it."""


def predicted(own: OwnRun, cluster: Cluster, *, quick: bool = False) -> Said:
    """`recsim_train.calibration.own_runs.Predict`, by the simulator.

    With operations as they were in the run, what is off is the model of everything else. How fast
    the machine was at that moment is part of what is off, and no known error.
    """
    case = at(Case.of(own.plan, cluster), OWN_QUICK if quick else OWN)
    plain = case.with_({"simulation.what_if_steps": None, "cluster.operations": None})
    seen = _per_example(own.ledger, own.examples_per_second)
    operations = _unscaled(plain)
    for turn in range(_TURNS):
        outcome = predict(plain.with_({"cluster.operations": operations if turn else None}))
        assert outcome.facts.ledger is not None
        took = _per_example(outcome.facts.ledger, _rate(outcome))
        operations = tuple(
            one.times(seen[one.operation] / took[one.operation])
            for one in operations
            if one.operation in seen and one.operation in took
        )
    outcome = predict(case.with_({"cluster.operations": operations}))
    errors, ledger = outcome.facts.calibration_errors, outcome.facts.ledger
    assert outcome.speed is not None
    assert ledger is not None
    known = [errors[cause] for cause in errors if cause != "speed"]
    share = share_around((line.what, line.seconds) for line in ledger.lines)
    return Said(_rate(outcome), hypot(standard_error(outcome.speed), *known), share)


def _unscaled(plain: Case) -> tuple[MeasuredOperation, ...]:
    """The operations at what unit prices make of them."""
    pricing = Pricing(plain.experiment, plain.cluster, plain.plan.examples)
    found = []
    for name, scope in operations_of(plain):
        seconds = pricing.shaped(name, scope)[0]
        found.append(
            MeasuredOperation.model_construct(
                operation=name,
                shape=str(signature(name, scope)),
                seconds=seconds,
                alone=seconds,
                uncertainty=0.0,
                work=cost(name, scope),
            )
        )
    return tuple(found)


def _rate(outcome: Outcome) -> float:
    """Examples per second of one that has come far enough."""
    assert outcome.speed is not None
    eps = outcome.speed.examples_per_second
    assert eps is not None
    return eps


def _per_example(ledger: Ledger, rate: float) -> dict[str, float]:
    """CPU seconds of one example by operation."""
    return add(*({what: s} for (_, what), s in ledger.per_example(rate).items()))


_NETS = (0, 1, 2, 3, 6)
"""Of `recsim_train.calibration.runs.TALKS`, whose passes last from 0.4 to 25 ms."""
_QUICK = _NETS[2:3]
"""All of a quick calibration."""
_ROUNDS = 3
_MOST_LOOPS = 8
"""Of a machine of more cores, runs of a loop for each would take too much memory and time."""
_WINDOWS = 2.4
"""Seconds of all windows of a net together."""
_LEAST, _MOST = 0.5, 4.0
"""Limits of `recsim_train.config.cluster.InRuns`."""


class Taken(NamedTuple):
    """One net, once: how many times as long its pass took in runs as in a row."""

    alone: float
    """In a run of one loop, against windows beside idle cores."""
    busy: float
    """In a run of a loop for each core, against windows on all of them."""


def turns_of(*, quick: bool) -> int:
    """How many turns of a net `with_in_runs` has."""
    return len(_QUICK) if quick else _ROUNDS * len(_NETS)


def with_in_runs(cluster: Cluster, tick: Callable[[], object], *, quick: bool) -> Cluster:
    """The profile with what passes take longer in runs of this machine. ``tick``: is called after
    each turn of a net; ``quick``: fewer and shorter. Raises RunFailed."""
    nets, rounds = (_QUICK, 1) if quick else (_NETS, _ROUNDS)
    found: dict[int, list[Taken]] = {net: [] for net in nets}
    cores = int(cluster.host("trainer").cores)
    plain = cluster.with_({"operations": None, "in_runs": None})
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as folder, known():
        for done in range(rounds * len(nets)):
            net = nets[done % len(nets)]
            found[net].append(_taken(net, cores, plain, Path(folder), quick=quick))
            tick()
    times = mean_of(list(found.values()))
    if quick:
        error = min(1.0, hypot(times.uncertainty, UNSEEN))
        times = times.with_({"uncertainty": error})
    return cluster.with_({"in_runs": times})


def mean_of(nets: Sequence[Sequence[Taken]]) -> InRuns:
    """The geometric mean, over nets, because a net weighs the same however long its pass is; the
    error is that of this mean, by how far nets and the two kinds of runs are apart."""
    logs = [fmean(map(log, times)) for net in nets for times in zip(*net, strict=True)]
    error = stdev(logs) / sqrt(len(logs))
    times = min(_MOST, max(_LEAST, exp(fmean(logs))))
    return InRuns.model_construct(times=times, uncertainty=min(1.0, error))


def _taken(net: int, cores: int, plain: Cluster, folder: Path, *, quick: bool) -> Taken:
    alone, busy = (_run(net, n, folder, quick=quick) for n in (1, min(cores, _MOST_LOOPS)))
    before = short_reading()
    row = _in_a_row(busy, plain, quick=quick)
    took = [_pass_seconds(run) for run in (alone, busy)]
    after, faster = short_reading(), 1.0
    if before is not None and after is not None:
        # from the middle of the windows to that of the runs
        faster = sqrt(after.overall / before.overall)
    return Taken(faster * took[0] / row.alone, faster * took[1] / row.seconds)


def _run(net: int, trainers: int, folder: Path, *, quick: bool) -> Experiment:
    run = TALKS[net]
    steps = max(20, 2 * run.steps // (trainers + 1) // (4 if quick else 1))
    return experiment(run._replace(steps=steps), trainers, folder)


def _in_a_row(run: Experiment, plain: Cluster, *, quick: bool) -> MeasuredOperation:
    plan = build_plan(run, run.strategies[0])
    cells = [
        cell for cell in operations_of(Case.of(plan, plain)) if cell[0] == FORWARD_BACKWARD.name
    ]
    seen = measure_windows(plan, cells, seconds=_WINDOWS, quick=quick)
    (entry,) = measured_operations(plan, cells, plain, seen)
    return entry


def _pass_seconds(run: Experiment) -> float:
    """CPU seconds of a pass in a run, the mean."""
    _, outcome = outcome_of(run)
    ledger = outcome.facts.ledger
    assert ledger is not None
    return ledger.spent(FORWARD_BACKWARD.name) / (run.training.steps * run.roles.trainers)
