"""How far calibration's errors carry for designs of which a few trainers are asked."""

from __future__ import annotations

import pytest

from recsim_train.config.topology import RackTopology
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Simulator
from recsim_train.evaluate.levels import INTERVAL, Level, at
from recsim_train.results.row import Row
from tests.sim.conftest import make_cluster, make_plan


def test_the_interval_of_a_few_trainers_is_scaled_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """In racks: 1,000 examples/s of all, and of a few 100, by calibration 90 to 125."""
    known = Row(examples_per_second=1000.0)
    few = Row(
        examples_per_second=100.0,
        calibration_low=90.0,
        calibration_high=125.0,
        calibration_errors={"prices": 0.07},
    )
    asked: list[Case] = []

    def prediction(self: Simulator, case: Case, level: Level, keep: object) -> Row:
        asked.append(at(case, level))
        return known if len(asked) == 1 else few

    monkeypatch.setattr(Simulator, "_prediction", prediction)
    cluster = make_cluster(topology=RackTopology.model_validate({"racks": 2, "uplink": "1 Gbit/s"}))
    plan = make_plan(roles={"trainers": 6}, training={"threads": 16})
    row = Simulator().row(Case.of(plan, cluster), INTERVAL)
    assert (row.calibration_low, row.calibration_high) == (900.0, 1250.0)
    assert row.calibration_errors == {"prices": 0.07}
    first, second = asked
    assert first.cluster.topology is not None
    assert not first.experiment.simulation.what_if_steps
    assert second.cluster.topology is None
    assert second.experiment.training.threads == 8
    assert second.experiment.simulation.what_if_steps
    # what says its own interval is not asked again
    asked.clear()
    own = Case.of(make_plan(roles={"trainers": 6}), make_cluster())
    assert Simulator().row(own, INTERVAL).examples_per_second == 1000.0
    (only,) = asked
    assert only.experiment.simulation.what_if_steps
