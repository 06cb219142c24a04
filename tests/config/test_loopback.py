"""What calibration measured within one machine is not taken for a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import dump_cluster
from recsim_train.config.errors import UserError
from recsim_train.config.profiles import load_cluster

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(p for p in (ROOT / "cluster_profiles").glob("*.yaml") if p.stem != "local")
CALIBRATED = ROOT / "cluster_profiles/reference-2core.yaml"
GIVEN = {
    "network.latency": "20 us",
    "network.connection_cap": "null",
    "hosts.default.nic": "10 Gbit/s",
}
APART = "cluster.colocate=false"


def sets(*names: str) -> list[str]:
    return [f"cluster.{name}={GIVEN[name]}" for name in names]


def refused(said: UserError) -> set[str]:
    """The fields that the one sentence names."""
    sentence = str(said).splitlines()[0]
    assert "colocate: false" in sentence
    named = sentence.partition("network, and ")[2].partition(" still ")[0]
    return {name for name in GIVEN if name in named}


@pytest.mark.parametrize(
    "given", [(), *((n,) for n in GIVEN), ("network.latency", "hosts.default.nic")], ids=str
)
def test_setting_colocate_alone_is_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as said:
        load_cluster(str(CALIBRATED), None, [APART, *sets(*given)])
    assert refused(said.value) == GIVEN.keys() - set(given)
    assert str(said.value).endswith(f"1 problem in {CALIBRATED}")


def test_a_network_of_its_own_is_taken() -> None:
    cluster = load_cluster(str(CALIBRATED), None, [APART, *sets(*GIVEN)])
    assert not cluster.colocate
    assert (cluster.network.latency, cluster.network.connection_cap) == pytest.approx((2e-5, None))
    assert load_cluster(str(CALIBRATED)).colocate


def test_a_copy_with_another_first_line_is_refused(tmp_path: Path) -> None:
    written = CALIBRATED.read_text()
    assert "colocate: true" in written
    copy = tmp_path / "mine.yaml"
    copy.write_text(written.replace("colocate: true", "colocate: false"))
    with pytest.raises(UserError) as said:
        load_cluster(str(copy))
    assert refused(said.value) == set(GIVEN)
    assert load_cluster(str(copy), None, sets(*GIVEN)).network.latency == pytest.approx(2e-5)


def test_a_profile_survives_being_written(tmp_path: Path) -> None:
    """A copy that the program makes knows it, too."""
    copy = tmp_path / "mine.yaml"
    copy.write_text(dump_cluster(load_cluster(str(CALIBRATED))))
    with pytest.raises(UserError) as said:
        load_cluster(str(copy), None, [APART])
    assert refused(said.value) == set(GIVEN)


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_are_taken(profile: Path) -> None:
    cluster: Cluster = load_cluster(str(CALIBRATED))
    assert cluster.colocate == (cluster.network.loopback is not None)
