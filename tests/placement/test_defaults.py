"""Options that follow the job's size: every strategy works with any number of trainers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recsim_train
from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.profiles import load_cluster
from recsim_train.data.mixcache import slots_of
from recsim_train.data.replay import Replay
from recsim_train.placement.describe import describe
from recsim_train.placement.plan import Plan
from recsim_train.results.rundir import Keep
from recsim_train.strategy.registry import strategies
from tests.simulated import simulate

TRAINERS = [*range(1, 10), 12, 13, 16, 100, 1000]
REST = [10, 11, 14, 15]
EXPERIMENT = """
name: t
model: {preset: criteo-kaggle, max_rows: 5_000, bottom_mlp: [16], top_mlp: [64, 1]}
data: {eval_rows: 0}
roles: {trainers: 1, embedding_servers: 2, dense_servers: 2}
training: {batch_size: 4, threads: 1, steps: 1, warmup_steps: 1}
strategy: flat_ps
cluster: paper-20core-25gbit
simulation: {what_if_steps: 0, fold_above: 16}
"""


def plan_of(folder: Path, *sets: str) -> Plan:
    path = folder / "t.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    (plan,) = recsim_train.load(path, overrides=sets).plans
    return plan


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("paper-20core-25gbit", None)


@pytest.mark.parametrize(
    "numbers",
    [TRAINERS, pytest.param(REST, marks=pytest.mark.thorough)],
    ids=["most", "the rest"],
)
@pytest.mark.parametrize("kind", sorted(strategies()))
def test_every_strategy_predicts_at_every_number_of_trainers(
    kind: str, numbers: list[int], tmp_path: Path, cluster: Cluster
) -> None:
    wrong = {}
    if kind == "des":  # whose group is all trainers, so that none stands for another: two minutes
        numbers = [n for n in numbers if n != 1000] + [1000] * (numbers is REST)
    for trainers in numbers:
        plan = plan_of(tmp_path, f"strategy={kind}", f"roles.trainers={trainers}")
        outcome = simulate(plan, cluster)
        if outcome.speed is None or not (outcome.speed.examples_per_second or 0) > 0:
            wrong[trainers] = outcome.facts
    assert not wrong


@pytest.mark.parametrize("trainers", [1, 7, 16, 100, 1000, 99_991])
@pytest.mark.parametrize("dense_servers", [0, 2])
def test_without_dense_servers_groups_meet_by_all_reduce(
    trainers: int, dense_servers: int, tmp_path: Path
) -> None:
    roles = (f"roles.trainers={trainers}", f"roles.dense_servers={dense_servers}")
    plan = plan_of(tmp_path, "strategy=hierarchical", *roles)
    several = plan.options["hosts"] != trainers
    assert plan.options["outer"] == (("easgd" if dense_servers else "ma") if several else "none")


GROUPS = {
    1: 1,
    2: 2,
    3: 3,
    4: 4,
    7: 7,
    8: 8,
    9: 3,
    10: 5,
    11: 1,
    12: 6,
    14: 7,
    16: 8,
    100: 5,
    1000: 8,
}


@pytest.mark.parametrize("trainers", GROUPS)
def test_groups_are_the_largest_divisor_up_to_eight(trainers: int, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "strategy=hierarchical", f"roles.trainers={trainers}")
    assert plan.followed == {
        "hosts": GROUPS[trainers],
        "outer": "none" if GROUPS[trainers] == trainers else "easgd",
    }


@pytest.mark.parametrize(
    ("options", "trainers", "hosts"),
    [("outer: none", 12, 12), ("outer: ma", 4, 2), ("outer: ma", 2, 1), ("outer: easgd", 18, 6)],
)
def test_hosts_follow_a_chosen_outer(
    options: str, trainers: int, hosts: int, tmp_path: Path
) -> None:
    sets = (f"strategy={{kind: hierarchical, {options}}}", f"roles.trainers={trainers}")
    assert plan_of(tmp_path, *sets).followed == {"hosts": hosts}


@pytest.mark.parametrize(
    ("options", "trainers", "sentence"),
    [
        ("hosts: 2", 3, r"trainers \(3\) must be a multiple of the hosts in one group \(2\)"),
        ("hosts: 2, outer: none", 4, "outer: none leaves groups of 2 hosts without"),
    ],
)
def test_what_is_chosen_and_cannot_work_is_refused(
    options: str, trainers: int, sentence: str, tmp_path: Path
) -> None:
    sets = (f"strategy={{kind: hierarchical, {options}}}", f"roles.trainers={trainers}")
    with pytest.raises(UserError, match=sentence):
        plan_of(tmp_path, *sets)


@pytest.mark.parametrize(("trainers", "partition"), [(26, "field"), (27, "hash")])
def test_des_deals_ids_where_tables_are_too_few(
    trainers: int, partition: str, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, "strategy=des", f"roles.trainers={trainers}")
    assert plan.followed == {"partition": partition}


def test_what_followed_is_shown_and_stored(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, "strategy=hierarchical", "roles.trainers=9")
    first = describe(plan).splitlines()[0]
    assert "hosts=3 by the job's size, outer=easgd by the job's size" in first
    outcome = simulate(plan, cluster)
    record = Keep(tmp_path / "runs").write(plan, "simulated", cluster, outcome)
    stored = json.loads((record.path / "manifest.json").read_text(encoding="utf-8"))["plan"]
    assert stored["options"] == {"hosts": 3, "outer": "easgd"}
    assert stored["followed"] == ["hosts", "outer"]


@pytest.mark.parametrize("trainers", [1, 2, 5, 16, 40])
@pytest.mark.parametrize("batch", [2, 64])
def test_the_cache_holds_two_steps_whatever_they_need(
    trainers: int, batch: int, tmp_path: Path
) -> None:
    sets = ("strategy=scalefreectr", f"roles.trainers={trainers}", f"training.batch_size={batch}")
    plan = plan_of(tmp_path, *sets)
    replay = Replay(plan, roomy=True)
    for step in range(4):
        for trainer, found in enumerate(replay.step(step).trainers):
            before = replay.step(step - 1).trainers[trainer].owned if step else 0
            assert found.owned + before <= slots_of(plan, trainer)
    rows = [t.rows for t in plan.experiment.model.tables]
    assert slots_of(plan, 0) >= round(0.1 * sum(rows) / trainers) - len(rows)


def test_a_chosen_cache_that_cannot_hold_two_steps_is_refused_at_any_size(
    tmp_path: Path, cluster: Cluster
) -> None:
    """At 1,000 trainers that are folded too, before anything is simulated."""
    sets = (
        "strategy={kind: scalefreectr, cache_rows: 22}",
        "roles.trainers=1000",
        "training.batch_size=128",
    )
    with pytest.raises(UserError, match="the cache of 22 rows per trainer cannot hold two steps"):
        simulate(plan_of(tmp_path, *sets), cluster)
