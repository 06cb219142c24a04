"""docs/explain/scale.md tells what benchmarks/predictions.py found."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.modules import loaded

ROOT = Path(__file__).parents[2]
script: Any = loaded(ROOT / "benchmarks" / "predictions.py")


def test_the_pages_figures_are_the_files() -> None:
    kept = json.loads((ROOT / "benchmarks/results/predictions.json").read_text(encoding="utf-8"))
    parts = kept["parts"]

    def middle(part: str, name: str = "cpu_seconds") -> float:
        return median(found[name] for found in parts[part])

    further = median(found["further"]["mean"] for found in parts["bounds"])
    others = parts["bounds"][0]["designs"] - 1

    page = (ROOT / "docs/explain/scale.md").read_text(encoding="utf-8")
    for row in (
        f"| one prediction | {middle('default'):.1f} |",
        f"| the same, every step simulated | {middle('all steps'):.1f} |",
        f"| each point of a sweep of six | {middle('sweep') / kept['points']:.1f} |",
        f"| bounds of a first design, with start | {middle('bounds', 'first'):.2f} |",
        f"| of each of `recommend`'s {others} others, mean | {further:.3f} |",
    ):
        assert row in page
    assert kept["points"] == 6


def test_bounds_of_a_further_design_are_cheaper_than_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(json.dumps(script.EXPERIMENT), encoding="utf-8")
    monkeypatch.setattr(script, "HOSTS", 3)
    found = script.looked(path)
    assert found["designs"] > 10
    assert 0.0 < found["further"]["median"] < found["first"]
