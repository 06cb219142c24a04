"""Whatever happens to a run's processes, it ends, nothing is left behind, and it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from tests.executor.killer import APART, Killing, experiment, go, killed, losses

CHECKED = {2, 6, 9, 14, 21, 28}
"""Of few strategies: only those whose trainers wait for each other need a run to compare with."""
ALL = 60
Reference = Callable[[str], "pd.Series[float]"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """By strategy, the losses of a run that nothing happened to."""
    known: dict[str, pd.Series[float]] = {}

    def of(strategy: str) -> pd.Series[float]:
        if strategy not in known:
            folder = tmp_path_factory.mktemp(strategy)
            experiment(folder)
            case = Killing(0, strategy, False, "launcher", 0, 0.0)  # type: ignore[arg-type]
            assert go(folder, case, folder / "log").wait(90) == 0, (folder / "log").read_text()
            known[strategy] = losses(folder / "runs")
        return known[strategy]

    return of


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=[] if n in CHECKED else [pytest.mark.thorough]) for n in range(ALL)],
)
def test_a_run_goes_on_whatever_was_done_to_it(
    seed: int, reference: Reference, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    case = Killing.drawn(seed)
    experiment(tmp_path)
    found = killed(case, tmp_path)
    print(asdict(case), found)
    record_property("case", str(case))
    record_property("found", str(found))
    last = losses(tmp_path / "runs")
    first = max(0, int(found["from"]))
    assert last.index.get_level_values("iteration").min() == first
    if case.strategy not in APART:
        whole = reference(case.strategy)
        pd.testing.assert_series_equal(last, whole[last.index], check_exact=True)
