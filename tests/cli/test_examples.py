"""How long a whole training takes: ``simulate --examples``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SIMULATE, answer, command

RENT = "cluster.hosts.default.rent={per_hour: 3.6, currency: EUR, source: ours, date: 2026-11-01}"


def test_a_whole_training(tmp_path: Path) -> None:
    (run,) = answer(*SIMULATE, "--set", RENT, "--examples", "2M", cwd=tmp_path)["runs"]
    whole, eps = run["whole_training"], run["examples_per_second"]
    assert whole["seconds"] == pytest.approx(2e6 / eps)
    assert whole["seconds90"] == pytest.approx([2e6 / end for end in run["interval90"][::-1]])
    assert whole["cost"] == pytest.approx(whole["seconds"] * 0.001)  # 3.6 an hour
    assert run["facts"]["rented"]["per_hour"] == 3.6
    done = command(*SIMULATE, "--examples", "2e6", cwd=tmp_path)
    assert "Training on 2.00M examples takes " in done.stdout
    assert "what it costs is not known" in done.stdout
    assert "whole_training" not in answer(*SIMULATE, cwd=tmp_path)["runs"][0]


@pytest.mark.parametrize("given", ["many", "0", "-5", "nan", "inf", "5T"])
def test_no_number(tmp_path: Path, given: str) -> None:
    done = command(*SIMULATE, f"--examples={given}", cwd=tmp_path)
    assert done.returncode == 2
    assert "expected a number such as 5000000 or 5M" in " ".join(done.stderr.split())


def test_epochs(tmp_path: Path) -> None:
    rows = ("--set", "data.rows=800_000")
    (run,) = answer(*SIMULATE, *rows, "--epochs", "2.5", cwd=tmp_path)["runs"]
    assert run["whole_training"]["examples"] == 2e6
    done = command(*SIMULATE, "--epochs", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "--epochs: how many examples one has is not known: give data.rows" in done.stderr
    done = command(*SIMULATE, *rows, "--epochs", "2", "--examples", "5M", cwd=tmp_path)
    assert "both say how much is trained: give one of them" in done.stderr
    for wrong in ("0", "-1", "nan", "few"):
        done = command(*SIMULATE, *rows, f"--epochs={wrong}", cwd=tmp_path)
        assert done.returncode == 2
        assert "expected a number above 0" in " ".join(done.stderr.split())


def test_a_sweep_has_none(tmp_path: Path) -> None:
    done = command(*SIMULATE, "--set", "roles.trainers=[1, 2]", "--examples=5M", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: --examples: is for one experiment, and this is a sweep"
