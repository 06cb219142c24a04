"""How far calibration's errors carry for designs of which a few trainers are asked."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.config.topology import RackTopology
from recsim_train.designs import looking
from recsim_train.session.making import Simulator
from recsim_train.session.pool import Task
from tests.sim.conftest import make_cluster, make_plan


def test_the_interval_of_a_few_trainers_is_scaled_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """In racks: 1,000 examples/s of all, and of a few 100, by calibration 90 to 125."""
    known = {"examples_per_second": 1000.0, "calibration_low": None, "calibration_high": None}
    few = {
        "examples_per_second": 100.0, "calibration_low": 90.0, "calibration_high": 125.0,
        "calibration_errors": {"prices": 0.07},
    }  # fmt: skip
    asked: list[Task] = []

    def point(task: Task, simulator: Simulator, keep: object) -> tuple[int, dict[str, Any]]:
        asked.append(task)
        return task.number, dict(known if len(asked) == 1 else few)

    monkeypatch.setattr(looking, "simulate_point", point)
    cluster = make_cluster(topology=RackTopology.model_validate({"racks": 2, "uplink": "1 Gbit/s"}))
    plan = make_plan(roles={"trainers": 6}, training={"threads": 16})
    plan = looking.asking(plan, {"what_if_steps": 0})
    number, row = looking.whole(Task(7, plan, cluster), Simulator(), None)
    assert number == 7
    assert (row["calibration_low"], row["calibration_high"]) == (900.0, 1250.0)
    assert row["calibration_errors"] == {"prices": 0.07}
    first, second = asked
    assert first.cluster.topology is not None
    assert second.cluster.topology is None
    rules = second.plan.experiment
    assert rules.training.threads == 8
    assert rules.simulation.what_if_steps
    # what says its own interval is not asked again
    asked.clear()
    plan = looking.asking(plan, {"what_if_steps": 3})
    assert looking.whole(Task(8, plan, cluster), Simulator(), None) == (8, known)
    assert len(asked) == 1
