"""What `run` says before it measures."""

from __future__ import annotations

from pathlib import Path

from recsim_train.config.profiles import load_cluster
from recsim_train.session.prepare import not_real

ROOT = Path(__file__).parents[2]


def test_what_a_measurement_does_not_have_is_named() -> None:
    racks = load_cluster("example-racks", ROOT / "experiments/racks.yaml")
    said = not_real(racks)
    assert said is not None
    assert "describes racks, " in said
    assert "only `simulate` takes that into account" in said
    assert not_real(load_cluster("reference-2core", ROOT / "experiments/racks.yaml")) is None
    assert not_real(None) is None
