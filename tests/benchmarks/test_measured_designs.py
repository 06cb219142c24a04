"""benchmarks/measured_designs.py: its spaces can be searched, and the page says what was found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from recsim_train.designs.making import space
from recsim_train.session.job import NOBODY
from tests.modules import loaded

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
KEPT = RESULTS / "measured-designs-2026-11-28b" / "designs.json"
EARLIER = RESULTS / "measured-designs-2026-11-28" / "designs.json"
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
    known = json.loads(KEPT.read_text(encoding="utf-8"))
    for one in known:
        there = [row for row in one["rows"] if not row["why"]]
        assert len(there) >= one["designs"] - 1
        best = max(row["measured"] for row in there)
        (taken,) = (row["measured"] for row in there if row["picked"])
        near = sum(row["measured"] >= 0.85 * best for row in there)
        number = one["space"].removeprefix("designs-")
        line = rf"^\| {number} \| [^|]+ \| {near} \| {100.0 * (1.0 - taken / best):.1f} % \|$"
        assert re.search(line, page, re.MULTILINE), line
        errors += [abs(row["predicted"] / row["measured"] - 1.0) for row in there]
    errors.sort()
    assert len(errors) == 71
    words = " ".join(page.split())
    worst = max(
        r["measured"] / r["predicted"] for one in known for r in one["rows"] if not r["why"]
    )
    assert f"{100.0 * (worst - 1.0):.0f} % faster than predicted" in words
    short = [f"{100.0 * one['pick is short by']:.1f}" for one in json.loads(EARLIER.read_text())]
    assert f"{', '.join(short[:-1])} and {short[-1]} % short" in words
    assert (
        f"within {100.0 * errors[35]:.1f} %, nine in ten within {100.0 * errors[63]:.1f} %" in words
    )
