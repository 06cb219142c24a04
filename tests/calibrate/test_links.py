"""Links of emulated hosts, measured; skipped where hosts cannot be emulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.calibration.links import LinkFigures
from recsim_train.config.profiles import load_cluster
from tests.clock import by_the_clock, tried_anew
from tests.commands import command
from tests.executor.test_emulation import refused as emulation_refused

SLOW = """format: 1
extends: {base}
name: slow
colocate: false
hosts: {{default: {{nic: 40 Mbit/s}}, trainer: {{cores: 2, memory: 8 GiB, nic: 80 Mbit/s}}}}
network: {{latency: 0 s, efficiency: 0.9, connection_cap: 1 Gbit/s}}
topology: {{racks: 2, oversubscription: 8}}
"""
BASE = Path("tests/frozen-2core.yaml").resolve()


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "slow.yaml"
    path.write_text(SLOW.format(base=BASE))
    return path


def test_figures_take_the_place_of_a_profiles_own(profile: Path) -> None:
    before = load_cluster(str(profile))
    after = LinkFigures(50e-6, 0.93, None, {"message": 1.5, "wire_byte": 1.0}).on(before)
    network = after.network
    assert (network.latency, network.efficiency, network.connection_cap) == (50e-6, 0.93, None)
    assert after.costs.message.value == pytest.approx(1.5 * before.costs.message.value)
    assert after.costs.message.uncertainty > before.costs.message.uncertainty
    assert after.costs.wire_byte == before.costs.wire_byte
    changed = {"network", "costs"}
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)


@pytest.mark.slow
@pytest.mark.skipif(bool(why := emulation_refused()), reason=why)
@tried_anew()
def test_a_link_of_emulated_hosts_is_measured(profile: Path) -> None:
    """The slower of two hosts' cards counts, racks do not; what a profile says of efficiency is
    what its emulation gives."""
    out = profile.parent / "measured.yaml"
    done = command("calibrate", "--emulate", "slow.yaml", "-o", str(out), cwd=profile.parent)
    assert done.returncode == 0, done.stderr
    assert "extends: slow.yaml" in out.read_text()
    found, before = load_cluster(str(out)), load_cluster(str(profile))
    assert found.network.connection_cap is None
    assert found.network.latency >= 0.0
    assert found.hosts == before.hosts
    for name in ("message", "wire_byte"):
        ratio = getattr(found.costs, name).value / getattr(before.costs, name).value
        assert 0.1 < ratio < 100.0  # of busy cores it may be anything near
    assert found.costs.gemm_flop == before.costs.gemm_flop
    with by_the_clock():
        assert found.network.efficiency == pytest.approx(0.9, rel=0.03)
        assert found.network.latency < 1e-3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slow.yaml", "--for", "x.yaml"), "measures links alone"),
        (("slow.yaml", "-o", "slow.yaml"), "name another with -o"),
        (("nowhere",), "no cluster profile 'nowhere'"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    profile: Path, words: tuple[str, ...], said: str
) -> None:
    done = command("calibrate", "--emulate", *words, cwd=profile.parent)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
