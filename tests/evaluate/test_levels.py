"""What levels change of a case, so that it can be repeated by hand."""

from __future__ import annotations

import pytest

from recsim_train.evaluate import levels
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import (
    ASKED_MANY,
    BORROWED,
    BOUND,
    FINAL,
    HALVED,
    INTERVAL,
    OTHERWISE,
    OWN,
    RACE,
    SCREEN,
    SHORT,
    Level,
    as_many,
    asking,
    at,
    overrides,
)
from recsim_train.evaluate.simulations import briefly, representatives
from recsim_train.sim.folding import Folding
from tests.sim.conftest import make_cluster, make_plan


def case(trainers: int = 4, **simulation: object) -> Case:
    roles = {"trainers": trainers, "embedding_servers": 2, "dense_servers": 1}
    training = {"steps": 1000, "warmup_steps": 20, "threads": 2}
    return Case.of(
        make_plan("flat_ps", roles=roles, training=training, simulation=simulation),
        make_cluster(topology={"racks": 2}),
    )


def test_a_prediction_is_of_the_case_itself() -> None:
    assert overrides(case(), FINAL) == {}
    assert at(case(), FINAL) == case()


def test_a_screen_by_hand() -> None:
    """Three shards, two loops of each trainer: 24 requests a step of four trainers, of which
    4,000 take 167 steps, and 16 are the most; 16 trainers have 32 loops."""
    assert overrides(case(), SCREEN) == {
        "training.steps": 16, "training.warmup_steps": 2, "simulation.precision": 0.1,
        "simulation.minimum_steps": 2, "simulation.fold_above": 16, "simulation.what_if_steps": 0,
        "execution.max_spans": 0, "cluster.topology": None,
    }  # fmt: skip
    # of 400 trainers 16, which send 96 in a step
    assert overrides(case(400), SCREEN)["simulation.fold_above"] == 16
    assert overrides(case(400), RACE)["simulation.fold_above"] == 64
    assert "cluster.topology" not in overrides(case(), RACE)
    # 64 trainers send 384 in a step, of which 16,000 are 42
    assert overrides(case(400), RACE)["training.steps"] == 42


def test_what_a_level_simulates_can_be_repeated_by_hand() -> None:
    screened = briefly(at(case(), SCREEN))
    by_hand = briefly(case().with_(overrides(case(), SCREEN)))
    assert screened.speed == by_hand.speed


def test_others_are_compared_with_as_many_representatives_as_they_say() -> None:
    few = Folding(400, 24)
    assert overrides(case(400), HALVED, few) == {"simulation.fold_above": 12}
    assert overrides(case(400), OTHERWISE, few) == {"simulation.fold_above": 24}
    assert overrides(case(), OTHERWISE, Folding(4, 4)) == {}
    assert overrides(case(400), SHORT, few)["simulation.fold_above"] == 16
    assert overrides(case(400), SHORT, Folding(400, 10))["simulation.fold_above"] == 10
    assert overrides(case(400, what_if_trainers=8), SHORT, few)["simulation.fold_above"] == 8
    assert "simulation.fold_above" not in overrides(case(), SHORT, Folding(4, 4))
    own = overrides(case(what_if_trainers=2), SHORT, Folding(4, 4))
    assert own["simulation.fold_above"] == 2


def test_what_an_experiment_says_of_its_short_runs_stands() -> None:
    said = case(what_if_steps=9)
    assert asking(said.experiment, ASKED_MANY) == {"simulation.what_if_trainers": 8}
    assert asking(case().experiment, ASKED_MANY) == {
        "simulation.what_if_steps": 3, "simulation.what_if_trainers": 8
    }  # fmt: skip
    assert overrides(said, INTERVAL) == {"simulation.what_if_trainers": 8}
    assert overrides(said, BORROWED)["simulation.what_if_steps"] == 5
    assert overrides(said, OWN) == {"training.steps": 400, "simulation.what_if_steps": 20}


@pytest.mark.parametrize(("trainers", "steps"), [(1, 100), (40, 60), (400, 24)])
def test_many_loops_are_compared_over_fewer_steps(trainers: int, steps: int) -> None:
    assert as_many(case(trainers).plan, OTHERWISE.steps) == steps


def test_bounds_are_of_one_that_stands_for_all() -> None:
    assert representatives(at(case(400), BOUND)).simulated == 2  # one in each rack
    assert representatives(case(400)).simulated < 100


def test_levels_have_names_of_their_own() -> None:
    found = [level.name for level in vars(levels).values() if isinstance(level, Level)]
    assert len(found) == len(set(found)) > 10
