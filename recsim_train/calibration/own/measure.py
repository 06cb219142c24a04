"""The caller's side: measuring processes, one for each core, and what a profile says of them.

No torch here. What a profile says is a mean over rounds, over processes and over windows that are
apart in time, because a run sees all of them: never the best. How much slower an operation is
beside others is said by windows next to each other, which saw the same machine.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import fsum, hypot, sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from recsim_train.calibration.child import MeasuringProcess, answers, side_by_side
from recsim_train.calibration.fit import NOISE
from recsim_train.calibration.speed import Seen
from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.measured import MeasuredOperation, Pooled
from recsim_train.executor.process.spec import pack_registered
from recsim_train.placement.plan import Plan
from recsim_train.results import environment
from recsim_train.trace.ledger import READING
from recsim_train.workload import shape
from recsim_train.workload.operations import cost
from recsim_train.workload.operations import seconds as priced
from recsim_train.workload.scope import Cell, Scope
from recsim_train.workload.signature import Signature, signature

CELLS = "cells.pickle"
SECONDS = 24.0
"""Of all windows of one plan together."""
_QUICK = 1.0
ROUNDS = 3
"""Times that a plan has its turn, the others between: a virtual machine's slow spells last from
tenths of a second to minutes."""
_LIMIT = 300.0
"""Seconds that the processes of one plan may take."""
MOST_BUSY = 8
"""Processes that are run side by side at most."""
_FREE, _PROCESS = 0.7, 500e6
"""Share of the free memory that processes may take; bytes of one without tables."""


def measure_windows(
    plan: Plan, cells: Sequence[Cell], *, seconds: float = SECONDS / ROUNDS, quick: bool = False
) -> Seen:
    """One turn: windows of each kind, each operation and shape (``cells``) by its real kernel.

    ``seconds``: of all windows. Raises RunFailed where a process fails.
    """
    cores = min(environment.cores(), MOST_BUSY, _that_fit(plan))
    threads = plan.operation_threads
    part = (_QUICK if quick else seconds) / (3 if threads > 1 else 2)
    seen: dict[str, list[dict[str, Any]]] = {"busy": [], "alone": []}
    with started(plan, cells, cores) as children:
        # a machine that becomes slower from window to window does so for both kinds alike
        kinds = [("busy", children), ("alone", children[:1])]
        for kind, some in (*kinds, *reversed(kinds)):
            seen[kind] += window(some, part / 2)
        if threads > 1:
            seen["pooled"] = window(children[: max(1, cores // threads)], part, threads)
    return seen


@contextmanager
def started(
    plan: Plan, cells: Sequence[Cell], processes: int
) -> Iterator[Sequence[MeasuringProcess]]:
    """So many processes that are ready for windows of a plan. Raises RunFailed."""
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as folder:
        content = (plan, list(cells), pack_registered(plan.strategy))
        (Path(folder) / CELLS).write_bytes(pickle.dumps(content))
        with side_by_side("operations", [{"folder": folder}] * processes, _LIMIT) as children:
            yield children


def window(
    some: Sequence[MeasuringProcess], seconds: float, threads: int = 1
) -> list[dict[str, Any]]:
    """What all of these processes see in one window side by side. Raises RunFailed."""
    return list(itertools.chain(*answers(some, {"seconds": seconds, "threads": threads})))


def measured_operations(
    plan: Plan, cells: Sequence[Cell], cluster: Cluster, seen: Seen
) -> list[MeasuredOperation]:
    """What each shape of a plan takes by its windows. ``cluster``: its prices tell how far the
    batches that were measured are from those expected."""
    prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    kinds = [by_shape(seen.get(kind, ())) for kind in ("busy", "alone", "pooled")]
    threads = plan.operation_threads
    entries = (_entry(name, scope, prices, threads, *kinds) for name, scope in cells)
    return [entry for entry in entries if entry is not None]


def _that_fit(plan: Plan) -> int:
    """How many processes with all tables fit into memory that is free now; at least one."""
    spec = plan.experiment
    tables = sum(table.rows for table in spec.model.tables)
    each = _PROCESS + tables * shape.stored_row_bytes(spec.model, spec.training)
    return max(1, int(_FREE * environment.free_memory() / each))


ByShape = dict[tuple[object, ...], list[Mapping[str, Any]]]


def by_shape(several: Iterable[Mapping[str, Any]]) -> ByShape:
    """What was seen of each operation and shape, window by window."""
    found: ByShape = {}
    for figures in several:
        key = figures["operation"], *Signature.parse(figures["shape"]).fixed()
        found.setdefault(key, []).append(figures)
    return found


def _entry(
    name: str,
    scope: Scope,
    prices: Mapping[str, float],
    threads: int,
    busy: ByShape,
    alone: ByShape,
    pooled: ByShape,
) -> MeasuredOperation | None:
    """None where the micro-workloads have not done this shape."""
    own, work = signature(name, scope), cost(name, scope)
    key = name, *own.fixed()
    if key not in busy or key not in alone:
        return None
    once = priced(work, prices)[0]

    def relative(figures: Mapping[str, Any], what: str = "cpu") -> float:
        return float(figures[what] / priced(figures["work"], prices)[0])

    def mean(seen: ByShape, what: str = "cpu") -> float:
        return once * fmean(relative(f, what) for f in seen[key])

    # where both were seen in one turn they saw the same machine
    own_turns, beside = _by_turn(alone[key], relative), _by_turn(busy[key], relative)
    ratios = [own_turns[turn] / beside[turn] for turn in own_turns.keys() & beside.keys()]
    several = None
    if key in pooled:
        wall = mean(pooled, "wall")
        cpu = min(threads * wall, mean(pooled))
        several = Pooled.model_construct(threads=threads, seconds=wall, cpu=cpu)
    return MeasuredOperation.model_construct(
        operation=name,
        shape=str(own),
        seconds=mean(busy),
        alone=mean(busy) * median(ratios) if ratios else mean(alone),
        uncertainty=min(1.0, max(NOISE, _error(busy[key]))),
        spread=_spread(busy[key]),
        jitter=min(1.0, fmean(f["jitter"] for f in busy[key])),
        pooled=several,
        work={price: float(f"{units:.6g}") for price, units in work.items() if units},
    )


def _by_turn(
    figures: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float]
) -> dict[int, float]:
    """The mean of a figure in each turn."""
    turns = defaultdict(list)
    for f in figures:
        turns[f.get("turn", 0)].append(of(f))
    return {turn: fmean(each) for turn, each in turns.items()}


def _error(figures: Sequence[Mapping[str, Any]]) -> float:
    """Relative standard error of the mean over windows: theirs, and how far turns are apart."""
    within = sqrt(fmean(f["error"] ** 2 for f in figures) / len(figures))
    turns = len({f.get("turn") for f in figures})
    return hypot(within, (_spread(figures) or 0.0) / sqrt(turns))


def _spread(figures: Sequence[Mapping[str, Any]]) -> float | None:
    """Relative standard deviation of the mean of a turn, whose windows last about as long as a run;
    None where there is one turn. Processes of one turn saw the same spell of the machine."""
    means = list(_by_turn(figures, lambda f: float(f["cpu"])).values())
    if len(means) == 1:
        return None
    return min(1.0, stdev(means) / fmean(means))


def with_operations(cluster: Cluster, entries: Iterable[MeasuredOperation]) -> Cluster:
    """The profile with these; what it had of the same shapes is replaced, but for what several
    threads came to where that was not measured again: they gain as they did. Its jitter is that of
    operations where they were measured, by their seconds; without reading, which takes many rows at
    one go and then none."""
    found = {(entry.operation, entry.shape): entry for entry in cluster.operations or ()}
    for entry in entries:
        key = entry.operation, entry.shape
        pooled = entry.pooled
        if pooled is None and key in found:
            pooled = found[key].times(entry.seconds / found[key].seconds).pooled
        found[key] = entry.model_copy(update={"pooled": pooled})
    return cluster.model_copy(
        update={"operations": tuple(found.values()) or None, "jitter": _jitter(cluster, found)}
    )


def _jitter(cluster: Cluster, found: Mapping[tuple[str, str], MeasuredOperation]) -> float:
    known = [
        (entry.seconds, entry.jitter)
        for entry in found.values()
        if entry.jitter is not None and entry.operation != READING
    ]
    if not known:
        return cluster.jitter
    return fsum(seconds * jitter for seconds, jitter in known) / fsum(s for s, _ in known)
