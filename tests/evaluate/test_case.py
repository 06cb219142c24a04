"""A case and its overrides: what they change, and what stays one case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.units import Times
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.elasticity import scaling
from tests.sim.conftest import make_cluster, make_plan


def case(**roles: int) -> Case:
    plan = make_plan("flat_ps", roles={"trainers": 4, "embedding_servers": 2, **roles})
    return Case.of(plan, make_cluster())


def test_equal_cases_have_one_identity_whatever_led_to_them() -> None:
    first, other = case(), case(trainers=8)
    assert first.identity == case().identity
    assert first.identity != other.identity
    assert first.with_({"roles.trainers": 8}).identity == other.identity
    assert first.with_({"roles.trainers": Times(2)}).identity == other.identity
    back = first.with_({"cluster.hosts.*.nic": Times(2.0)}).with_(
        {"cluster.hosts.*.nic": Times(0.5)}
    )
    assert back.identity == first.identity
    assert first.with_({}) == first


def test_the_plan_follows_what_it_depends_on() -> None:
    first = case()
    assert len(first.plan.of_role("trainer")) == 4
    assert len(first.with_({"roles.trainers": 8}).plan.of_role("trainer")) == 8
    assert first.with_({"training.threads": 3}).plan.worker_threads == 3
    assert first.with_({"strategy.kind": "allreduce"}).plan.strategy.kind == "allreduce"


@pytest.mark.parametrize(
    "key",
    ["training.steps", "training.warmup_steps", "simulation.fold_above", "execution.max_spans"],
)
def test_a_plan_that_was_made_by_hand_stays_where_it_may(key: str) -> None:
    """Plans with shards elsewhere follow from no experiment."""
    first = case()
    moved = replace(first.plan, notes=("by hand",))
    longer = Case.of(moved, first.cluster).with_({key: 7, "cluster.network.latency": 1e-3})
    assert longer.plan.notes == ("by hand",)
    assert longer.plan.experiment == longer.experiment
    section, _, name = key.partition(".")
    assert getattr(getattr(longer.experiment, section), name) == 7
    # and is the one that would be made, but for what was done by hand
    anew = Case(longer.experiment, longer.choice, longer.cluster)
    assert replace(longer.plan, notes=()) == anew.plan


def test_what_cannot_be_planned_says_so_when_it_is_asked() -> None:
    changed = case().with_({"strategy.kind": "hierarchical", "strategy.hosts": 3})
    with pytest.raises(UserError, match="hosts"):
        _ = changed.plan


def test_inputs_of_a_prediction_are_overrides() -> None:
    cluster = make_cluster(cores=1)
    more = Case.of(make_plan("flat_ps"), cluster).with_(
        scaling(cluster, {"cores": 1.1, "costs.call": 2.0})
    )
    assert more.cluster.hosts["default"].cores == pytest.approx(1.1 / cluster.contention)
    assert more.cluster.costs.call.value == 2.0 * cluster.costs.call.value
    assert more.cluster.hosts["default"].nic == cluster.hosts["default"].nic
