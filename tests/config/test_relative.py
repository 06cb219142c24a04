"""Overrides of what settings are otherwise, and of each entry of a mapping or list."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.config.errors import UserError
from recsim_train.config.units import Times, overridden
from recsim_train.session.job import Job
from tests.sim.conftest import make_cluster

ROOT = Path(__file__).parents[2]


def jobs(*sets: str) -> list[Job]:
    study = calls.load(
        ROOT / "experiments/quickstart.yaml",
        ROOT / "cluster_profiles/paper-20core-25gbit.yaml",
        ["data.path=null", *sets],
    )
    return study.jobs(dry=True)


def test_numbers_and_quantities_are_multiplied() -> None:
    (before,), (after,) = (
        jobs(),
        jobs("training.threads=x2", "cluster.hosts.*.nic=x1.25", "cluster.network.latency=x0.5"),
    )
    assert after.plan.experiment.training.threads == 2 * before.plan.experiment.training.threads
    assert after.profile.hosts["default"].nic == 1.25 * before.profile.hosts["default"].nic
    assert after.profile.network.latency == 0.5 * before.profile.network.latency
    # by hand it is the same case
    own = {"cluster.hosts.*.nic": Times(1.25), "cluster.network.latency": Times(0.5)}
    by_hand = before.case.with_({**own, "training.threads": Times(2)})
    assert by_hand.identity == after.identity


def test_what_a_setting_is_counts_wherever_it_is_said() -> None:
    (job,) = jobs("roles.trainers=x3", "roles.trainers=4")
    assert job.plan.experiment.roles.trainers == 12


def test_each_entry_gets_a_value() -> None:
    tables = "model.tables=[{rows: 100, ids: 2}, {rows: 200, ids: 1}]"
    (job,) = jobs(tables, "model.tables.*.rows=x2", "cluster.hosts.*.nic=10 Gbit/s")
    assert [table.rows for table in job.plan.experiment.model.tables] == [200, 400]
    assert {host.nic for host in job.profile.hosts.values()} == {10e9 / 8}


def test_they_can_be_swept() -> None:
    found = jobs("cluster.hosts.*.nic=[x1, x2]")
    rates = [job.profile.hosts["default"].nic for job in found]
    assert rates[1] == 2 * rates[0]
    assert [job.settings["cluster.hosts.*.nic"] for job in found] == ["x1", "x2"]


def test_text_that_looks_like_one_stays_text() -> None:
    (job,) = jobs("name=x2")
    assert job.plan.experiment.name == "x2"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ("training.threads=x1.25", "training.threads: expected an integer of at least 1"),
        ("cluster.hosts.*.nic=x0", "hosts.default.nic: expected a data rate above 0"),
        ("cluster.mixed.*.*.nic=x2", "expected the name of settings that have a value"),
        ("cluster.hosts.*.nik=x2", "expected the name of settings that have a value"),
        ("model.tables.*.rows=x2", "expected the name of settings that have a value"),
    ],
)
def test_what_cannot_be_is_said(sets: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        jobs(sets)
    assert says in str(error.value)
    assert f"--set {sets}" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    cluster = make_cluster(mixed={"trainer": ({"count": 1, "nic": "1 Gbit/s"}, {})})
    more = {"hosts.*.nic": Times(2.0), "mixed.*.*.nic": Times(2.0), "topology.uplink": Times(3.0)}
    changed = overridden(cluster, more)
    assert changed.hosts["default"].nic == 2.0 * cluster.hosts["default"].nic
    assert [entry.nic for entry in changed.mixed["trainer"]] == [2e9 / 8, None]
    assert changed.topology is None
    back = overridden(changed, {key: Times(0.5) for key in ("hosts.*.nic", "mixed.*.*.nic")})
    assert back == cluster
    assert overridden(cluster, {}) == cluster
    with pytest.raises(AssertionError, match="has no nik"):
        overridden(cluster, {"hosts.*.nik": 1.0})
