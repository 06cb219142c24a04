"""The page and the terminal of a recommendation, in any window."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train import calls
from recsim_train.designs.making import Recommendation
from recsim_train.report import text
from recsim_train.report.terminal import show
from tests.browser import PROGRAM, check_whole, tab
from tests.recommend.conftest import RENT, Studies

FEW: dict[str, Any] = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1, 2],
    "servers_per_host": [1], "strategies": "false",
}  # fmt: skip


def made(studies: Studies, out: Path | None, target: float | None) -> Recommendation:
    study = studies("strategy=[flat_ps, allreduce, localsgd]", RENT, **FEW)
    return calls.recommend(study, hosts=4, target=target, out=out, processes=1)


@pytest.mark.browser
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("target", [100.0, 1e12], ids=["yes", "no"])
def test_the_page_is_whole_in_any_window(studies: Studies, tmp_path: Path, target: float) -> None:
    found = made(studies, tmp_path / "out", target)
    assert found.out is not None
    (tmp_path / "profile").mkdir()
    with tab(tmp_path / "profile") as shown:
        check_whole(shown, found.out / "report.html", tables=1, figures=1)


def test_no_figure_is_cut_on_narrow_terminals(studies: Studies) -> None:
    found = made(studies, None, 100.0)
    for width in (60, 80):
        shown = Console(file=io.StringIO(), width=width)
        show(found.report, shown)
        said = shown.file.getvalue()  # type: ignore[attr-defined]
        assert "\u2026" not in said  # nothing was shortened
        words = said.split()
        for design in [found.answer.chosen, *found.answer.tied, *found.answer.others]:
            rented = design.candidate.rented
            assert rented is not None
            for figure in (text.rate(design.eps), text.money(rented.per_hour, "EUR").split()[0]):
                assert figure in words
