"""One thread or two, over either transport: the same effects and bytes in both worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.experiment import Execution
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from tests.conformance.test_cut_nets_agree import CASES as CUT
from tests.conformance.test_cut_nets_agree import plan_of
from tests.conformance.test_worlds_agree import (
    PROFILE,
    ROLES,
    STRATEGIES,
    make_plan,
    payload,
    sequences,
)
from tests.simulated import simulate

NAMES = [
    "downpour",
    "allreduce",
    "local steps",
    "fr-easgd",
    "cache",
    "des, whole tables",
    "hierarchical",
    "hierarchical, fr-easgd",
]


def planned(name: str, threads: int) -> Plan:
    plan = plan_of(*CUT[name]) if name in CUT else make_plan(ROLES["servers"], STRATEGIES[name])
    spec = plan.experiment
    training = spec.training.model_copy(update={"threads": threads})
    execution = Execution()
    return build_plan(
        spec.model_copy(update={"training": training, "execution": execution}), plan.strategy
    )


@pytest.mark.parametrize("name", NAMES)
def test_same_effects_and_same_bytes_with_one_thread(name: str, tmp_path: Path) -> None:
    """All other tests have two."""
    plan = planned(name, 1)
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    assert predicted.facts.header_bytes == real.facts.header_bytes
    assert sum(payload(real).values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_threads_are_workers_or_within_operations(name: str) -> None:
    plan = planned(name, 3)
    loops = len(plan.training) // plan.experiment.roles.trainers
    assert (loops, plan.operation_threads) in ((3, 1), (1, 3))
    assert (loops == 3) == (name in ("downpour", "fr-easgd"))
    one = planned(name, 1)
    sent = [simulate(p, load_cluster(PROFILE, None)) for p in (plan, one)]
    if loops == 1:  # threads within operations send nothing more
        assert payload(sent[0]) == payload(sent[1])
