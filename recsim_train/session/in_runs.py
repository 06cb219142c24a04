"""By how much a net's pass takes longer in a run than in a row: runs of calibration's own nets
beside windows of the same passes.

A window finds in a core's caches what the one before has left there, nobody interrupts it and
nobody holds the interpreter lock. In a run other threads work on its core between two passes and,
where there are more loops than cores, within them. What that takes is measured, with nets that no
experiment of a user's has: at three loads, because it grows with the threads that want a core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from recsim_train.calibration import talk
from recsim_train.calibration.own.measure import Seen, measure_windows, measured_operations
from recsim_train.calibration.speed import short_reading
from recsim_train.config.cluster import Cluster, InRuns
from recsim_train.config.experiment import Execution, Experiment, Synthetic
from recsim_train.config.measured import MeasuredOperation
from recsim_train.data.synthetic import write_criteo
from recsim_train.placement.build import build_plan
from recsim_train.session.caller import Progress
from recsim_train.sim.asked import operations_of
from recsim_train.strategy.operations import FORWARD_BACKWARD

_NETS = (0, 1, 2, 3, 6)
"""Of `recsim_train.calibration.talk.RUNS`, whose passes last from 0.4 to 25 ms."""
_ROUNDS = 3
_MOST_CORES = 8
"""Of a machine of more, runs of twice as many loops are too large to be made."""
_WINDOWS = 2.4
"""Seconds of all windows of a net together."""
_ROWS = 12_000
_LEAST, _MOST = 0.5, 4.0
"""Limits of `recsim_train.config.cluster.InRuns`."""


class Taken(NamedTuple):
    """One net, once: how many times as long its pass took in runs as in a row."""

    alone: float
    busy: float
    crowded: float | None
    """None: no such run was made."""


def with_in_runs(cluster: Cluster, progress: Progress, *, quick: bool) -> Cluster:
    """The profile with what passes take longer in runs of this machine. ``quick``: one small net,
    for tests of the machinery. Raises RunFailed."""
    nets, rounds = (_NETS[3:4], 1) if quick else (_NETS, _ROUNDS)
    found: dict[int, list[Taken]] = {net: [] for net in nets}
    cores = int(cluster.host("trainer").cores)
    plain = cluster.model_copy(update={"operations": None, "in_runs": None})
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as folder, talk.known(talk.Talk):
        for done in range(rounds * len(nets)):
            net = nets[done % len(nets)]
            found[net].append(_taken(net, cores, plain, Path(folder), quick=quick))
            progress(done + 1, rounds * len(nets))
    return cluster.model_copy(update={"in_runs": law_of(list(found.values()))})


def law_of(nets: Sequence[Sequence[Taken]]) -> InRuns:
    """Of each load the geometric mean over nets, because a net weighs the same however long its
    pass is; the error is that of these means, by how far nets and repeats are apart."""
    busy = [fmean(log(taken.busy) for taken in net) for net in nets]
    loads = {"alone": [fmean(log(taken.alone) for taken in net) for net in nets], "busy": busy}
    crowded = [[log(t.crowded) for t in net if t.crowded is not None] for net in nets]
    loads["crowded"] = [fmean(logs) for logs in crowded] if all(crowded) else busy
    error = 0.0
    if len(nets) > 1:
        error = max(stdev(logs) / sqrt(len(logs)) for logs in loads.values())
    times = [min(_MOST, max(_LEAST, exp(fmean(logs)))) for logs in loads.values()]
    alone, at_busy, at_crowded = times
    return InRuns.model_construct(
        alone=alone, busy=at_busy, crowded=at_crowded, uncertainty=min(1.0, error)
    )


def _taken(net: int, cores: int, plain: Cluster, folder: Path, *, quick: bool) -> Taken:
    _, _, batch, _ = talk.RUNS[net]
    loops = [1, min(cores, _MOST_CORES)] + ([2 * cores] if cores <= _MOST_CORES else [])
    path = folder / f"net-{net}.tsv"
    runs = [_run(net, trainers, path, quick=quick) for trainers in loops]
    before = short_reading()
    entry = _in_a_row(runs[1], plain, quick=quick)
    passes = [_pass_seconds(run, batch) for run in runs]
    after, faster = short_reading(), 1.0
    if before is not None and after is not None:
        # from the middle of the windows to that of the runs
        faster = sqrt(after.overall / before.overall)
    row = [entry.alone, *([entry.seconds] * (len(runs) - 1))]
    times = [faster * took / once for took, once in zip(passes, row, strict=True)]
    return Taken(times[0], times[1], times[2] if len(times) > 2 else None)


def _run(net: int, trainers: int, path: Path, *, quick: bool) -> Experiment:
    asks, setting, batch, steps = talk.RUNS[net]
    if not path.exists():
        write_criteo(path, setting.model(), Synthetic(rows=_ROWS, seed=43), _ROWS)
    steps = max(20, 2 * steps // (trainers + 1) // (8 if quick else 1))
    return talk.experiment(asks, setting, batch, trainers, steps, path, Execution())


def _in_a_row(run: Experiment, plain: Cluster, *, quick: bool) -> MeasuredOperation:
    plan = build_plan(run, run.strategies[0])
    cells = [cell for cell in operations_of(plan, plain) if cell[0] == FORWARD_BACKWARD.name]
    seen = Seen()
    measure_windows(plan, cells, seen, seconds=_WINDOWS, quick=quick)
    (entry,) = measured_operations(plan, cells, plain, seen)
    return entry


def _pass_seconds(run: Experiment, batch: int) -> float:
    """CPU seconds of a pass in a run, the mean."""
    _, outcome = talk.outcome_of(run)
    ledger = outcome.facts.ledger
    assert ledger is not None
    return ledger.spent(FORWARD_BACKWARD.name) / (run.training.steps * run.roles.trainers)
