"""Modelled compute: what sleeps in a real run is what computes in a simulated one, call by call."""

from __future__ import annotations

from math import isqrt, sqrt
from pathlib import Path

import pytest

from recsim_train.config.experiment import Roles
from recsim_train.config.profiles import load_cluster
from recsim_train.evaluate.simulations import settling
from recsim_train.executor.process.board import FolderBoard
from recsim_train.executor.process.launch import execute
from recsim_train.executor.process.parting import parts_left
from recsim_train.sim.folding import Folding
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.trace.facts import Slept
from recsim_train.workload.operations import OPS, OperationTime, ProcessTimes
from tests.conformance.test_worlds_agree import PROFILE, STRATEGIES, make_plan
from tests.simulated import times_of

REAL = {"reading", "narrow", "widen"}
ROLES = Roles(trainers=2, embedding_servers=2, dense_servers=1)
CASES = [
    name for name in STRATEGIES if not name.startswith("fr-") and name != "downpour k=3, two left"
]  # fmt: skip


def primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % p for p in found if p <= isqrt(number)):
            found.append(number)
        number += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_calls_of_both_worlds(tmp_path: Path, name: str) -> None:
    """Each operation of each process takes the root of another prime: no sum of calls has the
    seconds of another one. They are nanoseconds, so that nobody sleeps."""
    plan = make_plan(ROLES, STRATEGIES[name])
    calls: dict[tuple[str, str], list[float]] = {}
    simulated = SimulatedRun(plan, load_cluster(PROFILE), Folding(2, 2), None)
    simulated.run(settling(plan, simulated.folding), calls=calls)
    names = [(p.name, what) for p in plan.instances for what in OPS if what not in REAL]
    seconds = {key: 1e-9 * sqrt(n) for key, n in zip(names, primes(len(names)), strict=True)}
    times = {
        p.name: ProcessTimes(
            2, {what: OperationTime(seconds[p.name, what], 0.0) for q, what in names if q == p.name}
        )
        for p in plan.instances
    }
    assert set(execute(plan, staging=tmp_path, times=times).facts.slept) == set(times)
    parts = parts_left(FolderBoard(tmp_path), range(len(plan.instances)))
    slept = Slept(*map(sum, zip(*(part.samples[-1].slept for part in parts), strict=True)))
    expected = sum(count * seconds[key] for key, (count, _) in calls.items() if key in seconds)
    assert expected > 1e-7
    assert slept.asked == pytest.approx(expected, rel=1e-9)
    assert slept.wakes == 0


def test_a_process_has_the_times_of_its_own_operations() -> None:
    plan, cluster = make_plan(ROLES, STRATEGIES["downpour"]), load_cluster(PROFILE)
    times = times_of(plan, cluster)
    assert set(times) == {p.name for p in plan.instances}
    assert "forward_backward" in times["trainer[1]"].operations
    assert set(times["dense_server[0]"].operations) == {"dense_apply"}
    for found in times.values():
        for seconds, locked in found.operations.values():
            assert 0.0 < seconds < 0.1
            assert 0.0 <= locked <= seconds
