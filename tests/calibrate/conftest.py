"""A profile, and what plans ask of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.profiles import load_cluster
from recsim_train.workload.scope import Scope
from tests.calibrate.own_plans import plan_of
from tests.simulated import operations_of


@pytest.fixture(scope="module")
def profile() -> Cluster:
    return load_cluster("tests/frozen-2core.yaml")


@pytest.fixture(scope="module")
def asked(profile: Cluster) -> Callable[[str], list[tuple[str, Scope]]]:
    known: dict[str, list[tuple[str, Scope]]] = {}

    def of(name: str) -> list[tuple[str, Scope]]:
        if name not in known:
            known[name] = operations_of(plan_of(name), profile)
        return known[name]

    return of
