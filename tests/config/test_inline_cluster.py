"""A cluster that is written out in the experiment, over a profile that it extends."""

from __future__ import annotations

from pathlib import Path

import pytest

import recsim_train
from recsim_train.config.errors import UserError

ROOT = Path(__file__).parents[2]
BASE = (ROOT / "tests" / "frozen-2core.yaml").resolve()
CLUSTER = f"""
cluster:
  extends: {BASE}
  colocate: false
  hosts:
    default: {{nic: 40 Mbit/s}}
    embedding_server: {{cores: 32, memory: 128 GiB, nic: 1 Gbit/s}}
  network: {{latency: 30 us, connection_cap: null, queue: fair}}
  costs: {{call: 3 us}}
"""
REST = """
name: inline
model: tiny
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 8, steps: 4, warmup_steps: 1}
strategy: flat_ps
"""


def clusters(folder: Path, text: str, *sets: str) -> list[recsim_train.Cluster]:
    path = folder / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return [job.profile for job in recsim_train.load(path, overrides=sets).jobs("simulated")]


def test_it_changes_what_it_says_of_the_other(tmp_path: Path) -> None:
    (found,) = clusters(tmp_path, REST + CLUSTER)
    assert found.name == "frozen-2core"
    assert not found.colocate
    assert found.hosts["default"].nic == 5e6
    assert found.hosts["embedding_server"].cores == 32
    assert found.network.queue == "fair"
    # a price is taken whole: the other's uncertainty is not that of this value
    assert (found.costs.call.value, found.costs.call.uncertainty) == (3e-6, 0.0)


def test_an_override_comes_after_it(tmp_path: Path) -> None:
    (found,) = clusters(tmp_path, REST + CLUSTER, "cluster.hosts.default.nic=1 Gbit/s")
    assert found.hosts["default"].nic == 125e6
    assert found.network.queue == "fair"


def test_each_point_of_a_sweep_may_have_its_own(tmp_path: Path) -> None:
    one = f"{{extends: {BASE}, colocate: false, network: {{latency: 40 us, connection_cap: null}}"
    points = f"""
sweep:
- cluster: {one}, hosts: {{default: {{nic: 20 Mbit/s}}}}}}
- cluster: {one}, hosts: {{default: {{nic: 80 Mbit/s}}}}}}
  training.batch_size: 16
"""
    first, second = clusters(tmp_path, REST + points)
    assert [c.hosts["default"].nic for c in (first, second)] == [2.5e6, 10e6]


@pytest.mark.parametrize(
    ("was", "now", "sentence"),
    [
        ("queue: fair", "queue: lifo", "own.yaml:14:.*expected .*fifo.*got 'lifo'"),
        ("nic: 40 Mbit/s", "nics: 40 Mbit/s", "own.yaml:12:.*unknown key .* mean 'nic'"),
        (f"extends: {BASE}", "extends: ''", "own.yaml:9:12: cluster: expected the name"),
    ],
)
def test_mistakes_in_it_are_named_by_their_line(
    tmp_path: Path, was: str, now: str, sentence: str
) -> None:
    assert was in CLUSTER
    with pytest.raises(UserError, match=sentence):
        clusters(tmp_path, REST + CLUSTER.replace(was, now))


def test_hosts_of_their_own_need_a_network_of_their_own(tmp_path: Path) -> None:
    loopback = "{latency: 0 s, connection_cap: 12 Gbit/s, nic: 20 Gbit/s}"
    own = f"extends: {BASE}, colocate: false, network: {{loopback: {loopback}}}"
    with pytest.raises(UserError, match=r"network\.latency.* still what was measured within one"):
        clusters(tmp_path, REST + f"cluster: {{{own}}}\n")
