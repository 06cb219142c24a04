"""The operations of a case: what a prediction asks for, and what they take on its hosts."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import TIMES, at
from recsim_train.evaluate.simulations import settling, simulation
from recsim_train.placement.hosts import kinds_of
from recsim_train.sim.simulated_run import after
from recsim_train.workload.operations import OPS, OperationTime, ProcessTimes
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import VARYING, signature


def operations_of(case: Case) -> list[tuple[str, Scope]]:
    """Operations with their shapes, in the order in which a prediction asks for them.

    Shapes that differ only by what the data decide are one, of mean sizes; those of no size are
    left out. Raises as `recsim_train.evaluate.prediction.predict`.
    """
    simulated = simulation(case)
    asked: list[tuple[str, Scope]] = []
    simulated.run(settling(case.plan, simulated.folding), asked=asked)
    shapes: dict[tuple[object, ...], list[Scope]] = {}
    for name, scope in asked:
        shape = signature(name, scope)
        if shape.sizes:
            shapes.setdefault((name, *shape.fixed()), []).append(scope)
    return [(str(key[0]), _mean(scopes)) for key, scopes in shapes.items()]


def times_of(case: Case) -> dict[str, ProcessTimes]:
    """What each process's operations take on its host, the mean of some steps, by process.

    Raises as `recsim_train.evaluate.prediction.predict`.
    """
    plan, cluster = case.plan, case.cluster
    simulated = simulation(at(case, TIMES))
    calls: dict[tuple[str, str], list[float]] = {}
    steps = min(TIMES.steps.most or 0, plan.experiment.training.steps)
    simulated.run(after(steps), calls=calls)
    locked = simulated.runtime.pricing.locked
    found = {
        i.name: ProcessTimes(max(1, kind.cores // cluster.together(i.role)), {})
        for i, kind in kinds_of(plan.instances, cluster).items()
    }
    for (process, what), (count, seconds) in calls.items():
        if what in OPS:
            whole, held = locked.get(what, (0.0, 0.0))
            mean = seconds / count
            share = held / whole if whole else 0.0
            found[process].operations[what] = OperationTime(mean, mean * share)
    return found


def _mean(scopes: list[Scope]) -> Scope:
    means: dict[str, Any] = {
        name: float(f"{fmean(getattr(scope, name) for scope in scopes):.6g}") for name in VARYING
    }
    return replace(scopes[0], **means)
