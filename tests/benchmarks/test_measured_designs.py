"""benchmarks/measured_designs.py: its spaces can be searched, and the page says what was found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from recsim_train.designs.making import space
from recsim_train.session.caller import NOBODY
from tests.modules import loaded

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results" / "measured-designs-2026-11-28" / "designs.json"
drawing: Any = loaded(ROOT / "benchmarks" / "measured_designs.py")


def test_drawn_spaces_have_designs_on_all_hosts() -> None:
    draw = Random(7)
    for number in range(4):
        made = drawing.drawn_space(draw, number)
        made["cluster"]["extends"] = str(ROOT / "tests" / "frozen-2core.yaml")
        found = space(drawing.study_of(made), None, NOBODY).candidates
        assert len(found) > 4
        assert {candidate.hosts for candidate in found} == set(made["search"]["hosts"])
        kinds = {candidate.job.plan.strategy.kind for candidate in found}
        assert kinds <= {kind["kind"] for kind in made["strategy"]}


def test_the_page_has_what_the_file_says() -> None:
    page = (ROOT / "docs" / "tasks" / "plan-my-cluster.md").read_text(encoding="utf-8")
    errors = []
    for one in json.loads(KEPT.read_text(encoding="utf-8")):
        assert all(not row["why"] for row in one["rows"])
        best = max(row["measured"] for row in one["rows"])
        (taken,) = (row["measured"] for row in one["rows"] if row["picked"])
        near = sum(row["measured"] >= 0.85 * best for row in one["rows"])
        number = one["space"].removeprefix("designs-")
        line = rf"^\| {number} \| [^|]+ \| {near} \| {100.0 * (1.0 - taken / best):.1f} % \|$"
        assert re.search(line, page, re.MULTILINE), line
        errors += [abs(row["predicted"] / row["measured"] - 1.0) for row in one["rows"]]
    errors.sort()
    median = (errors[35] + errors[36]) / 2.0
    assert len(errors) == 72
    assert f"within {100.0 * median:.1f} %" in page
    assert f"within {100.0 * errors[64]:.1f} %" in " ".join(page.split())
