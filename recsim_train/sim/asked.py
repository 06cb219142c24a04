"""What a prediction asks for: every operation of a plan, at every shape."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.folding import folding_of
from recsim_train.sim.job import Job
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import VARYING, signature


def operations_of(plan: Plan, cluster: Cluster) -> list[tuple[str, Scope]]:
    """Operations with their shapes, in the order in which a prediction asks for them.

    Shapes that differ only by what the data decide are one, of mean sizes; those of no size are
    left out. Raises as `recsim_train.sim.run.simulate`.
    """
    job = Job(plan, cluster, folding_of(plan, cluster), None)
    asked: list[tuple[str, Scope]] = []
    job.run(None, asked=asked)
    shapes: dict[tuple[object, ...], list[Scope]] = {}
    for name, scope in asked:
        shape = signature(name, scope)
        if shape.sizes:
            shapes.setdefault((name, *shape.fixed()), []).append(scope)
    return [(str(key[0]), _mean(scopes)) for key, scopes in shapes.items()]


def _mean(scopes: list[Scope]) -> Scope:
    means: dict[str, Any] = {
        name: float(f"{fmean(getattr(scope, name) for scope in scopes):.6g}") for name in VARYING
    }
    return replace(scopes[0], **means)
