"""A profile that extends another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.profiles import load_cluster

ROOT = Path(__file__).parents[2]
BASE = (ROOT / "tests" / "frozen-2core.yaml").resolve()
OWN = f"""
format: 1
extends: {BASE}
name: mine
colocate: false
hosts:
  default: {{nic: 40 Mbit/s}}
  embedding_server: {{cores: 32, memory: 128 GiB, nic: 1 Gbit/s}}
network: {{latency: 100 us, connection_cap: null, queue: fair}}
costs:
  call: 3 us
"""


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_what_it_does_not_say_is_the_others(tmp_path: Path) -> None:
    base, found = load_cluster(str(BASE)), load_cluster(str(written(tmp_path, OWN)))
    assert found.extends is None
    assert (found.name, base.name) == ("mine", "frozen-2core")
    host, before = found.hosts["default"], base.hosts["default"]
    assert (host.cores, host.memory, host.nic) == (before.cores, before.memory, 5e6)
    assert found.hosts["embedding_server"].cores == 32
    assert found.network.latency == pytest.approx(1e-4)
    assert found.network.queue == "fair"
    assert found.network.efficiency == base.network.efficiency
    # a price is taken whole: the other's uncertainty is not that of this value
    assert (found.costs.call.value, found.costs.call.uncertainty) == (3e-6, 0.0)
    assert base.costs.call.uncertainty > 0.0
    assert found.costs.gemm_flop == base.costs.gemm_flop
    assert found.operations == base.operations
    assert found.calibration == base.calibration


def test_it_may_extend_one_that_extends_another(tmp_path: Path) -> None:
    written(tmp_path, OWN)
    text = "format: 1\nextends: mine\nname: third\nhosts: {default: {cores: 7}}\n"
    found = load_cluster(str(written(tmp_path, text, "third.yaml")))
    assert (found.hosts["default"].cores, found.hosts["default"].nic) == (7, 5e6)
    assert found.costs.call.value == 3e-6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: mine", "mine.yaml:2:10: extends: 'mine' extends this profile itself"),
        ("extends: other", "other.yaml:2:10: extends: 'mine' extends this profile itself"),
        ("extends: [a]", "mine.yaml:2:10: extends: expected the name or the file"),
        ("extends: nobodys", "mine.yaml:2:10: extends: there is no cluster profile 'nobodys'"),
        (f"extends: {BASE}\nhosts: {{default: {{cores: many}}}}", "mine.yaml:3:26: hosts.default"),
        # with hosts of their own, what was measured within one machine is no network's
        ("extends: reference-2core\ncolocate: false", "give the network's"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(tmp_path: Path, text: str, said: str) -> None:
    written(tmp_path, "format: 1\nextends: mine\nname: other\n", "other.yaml")
    path = written(tmp_path, f"format: 1\n{text}\nname: mine\n")
    with pytest.raises(UserError) as caught:
        load_cluster(str(path))
    assert said in str(caught.value)


def test_a_mistake_of_the_other_names_the_others_file(tmp_path: Path) -> None:
    whole = BASE.read_text(encoding="utf-8").replace("contention: ", "contention: 7 #")
    written(tmp_path, whole, "base.yaml")
    path = written(tmp_path, "format: 1\nextends: base\nname: mine\n")
    with pytest.raises(UserError, match=r"base\.yaml:\d+:\d+: contention: "):
        load_cluster(str(path))
