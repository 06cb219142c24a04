"""The grid of emulated clusters: drawn again it is the same, within what its script states."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

import recsim_train
from recsim_train.executor.emulation.layout import layout_of
from recsim_train.placement.hosts import kinds_of
from recsim_train.strategy.registry import strategies

ROOT = Path(__file__).parents[2]
FILE = ROOT / "experiments" / "fidelity-clusters.yaml"
BASE = ROOT / "tests" / "frozen-2core.yaml"


def drawn() -> dict[str, Any]:
    command = FILE.read_text(encoding="utf-8").splitlines()[0].partition("`")[2].partition("`")[0]
    words = command.split()
    assert words[:2] == ["python", "benchmarks/draw_clusters.py"]
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == FILE.read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def test_it_is_what_its_command_draws_and_all_of_it_can_be_emulated(tmp_path: Path) -> None:
    grid = drawn()
    for point in grid["sweep"]["points"]:
        assert point["cluster"]["extends"] == "local"
        point["cluster"]["extends"] = str(BASE)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid), encoding="utf-8")
    jobs = recsim_train.load(tmp_path / "grid.yaml").jobs()
    modelled = Counter(job.plan.experiment.execution.compute for job in jobs)
    assert modelled["modelled"] >= 40
    assert modelled["real"] >= 10
    assert {job.plan.strategy.kind for job in jobs} == set(strategies())
    assert {job.profile.network.queue for job in jobs} == {"fifo", "fair"}
    for job in jobs:
        layout = layout_of(job.plan, job.profile)
        assert 2 <= len(layout.hosts) <= 16
        rates = [round(k.nic * 8e-6) for k in kinds_of(job.plan.instances, job.profile).values()]
        assert min(rates) >= 20
        assert max(rates) <= 480 or len(rates) == 2
        assert job.plan.experiment.training.steps >= 24
