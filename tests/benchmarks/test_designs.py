"""benchmarks/results/designs.md says what the file of `benchmarks/designs.py` says."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_table_has_what_the_file_says() -> None:
    page = (RESULTS / "designs.md").read_text(encoding="utf-8")
    known = json.loads((RESULTS / "designs.json").read_text(encoding="utf-8"))
    assert known
    for one in known:
        assert one["in_group"]
        assert 10 * one["group"] <= one["designs"]
        assert f"| {one['space']} |" in page
        for figure in ("designs", "group", "cpu", "cpu_of_predictions", "cpu_of_all"):
            assert f"| {one[figure]:,.0f} |" in page, figure
        for whole in ("cpu_of_predictions", "cpu_of_all"):
            assert f"{100.0 * one['cpu'] / one[whole]:.2g} %" in page
