"""DES computes what one process computes, for every model, partition and top."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.net_group import Case, run_group, whole_tables
from tests.executor.plain import Trained, distance, plain_training

KINDS = ("dlrm", "wide_deep", "deepfm", "dcn")
TOPS = {"narrow": (8, 6, 1), "wide": (40, 6, 1)}
"""First layers narrower and wider than the embeddings: the partial outputs travel, or they do."""


def cases(size: int) -> dict[str, Case]:
    found = {}
    for kind in KINDS:
        for bags in (False, True):
            for width, top in TOPS.items():
                for partition in ("field", "hash", "column"):
                    for split in ("replicated", "split"):
                        name = (
                            f"{kind}, {'bags' if bags else 'one id'}, {width}, {partition}, {split}"
                        )
                        options = (("partition", partition), ("top", split))
                        found[name] = Case(kind, "des", options, bags, top)
    return found


@pytest.fixture(scope="module")
def plain() -> dict[tuple[str, bool, tuple[int, ...]], Trained]:
    return {
        (kind, bags, top): plain_training(Case(kind, "allreduce", (), bags, top))
        for kind in KINDS
        for bags in (False, True)
        for top in TOPS.values()
    }


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.thorough)])
def test_des_equals_single_process_autograd(
    size: int,
    plain: dict[tuple[str, bool, tuple[int, ...]], Trained],
    tmp_path: Path,
) -> None:
    todo = cases(size)
    found = run_group(size, list(todo.values()), tmp_path / "run")
    wrong = {}
    for (name, case), left in zip(todo.items(), found, strict=True):
        losses, tables, flat = plain[case.kind, case.bags, case.top]
        worst = max(distance(a, b) for a, b in zip(whole_tables(case, left), tables, strict=True))
        worst = max(worst, *(distance(part.trained, flat) for part in left))
        means = [sum(values) / size for values in zip(*(p.losses for p in left), strict=True)]
        worst = max(worst, *(abs(a - b) / b for a, b in zip(means, losses, strict=True)))
        if not worst < 1e-9:
            wrong[name] = worst
    assert not wrong


def test_float32_losses_stay_together_over_50_steps(tmp_path: Path) -> None:
    todo = [
        Case(kind, "des", (("partition", partition),), top=(8, 6, 1), dtype="float32", steps=50)
        for kind in KINDS
        for partition in ("field", "hash", "column")
    ]
    found = run_group(2, todo, tmp_path / "run")
    for case, left in zip(todo, found, strict=True):
        wanted, _, _ = plain_training(Case(case.kind, top=case.top, dtype="float32", steps=50))
        means = [sum(values) / 2 for values in zip(*(p.losses for p in left), strict=True)]
        assert means == pytest.approx(wanted, abs=1e-4), case
