"""Pages as Chromium lays them out: wide and narrow windows, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.experiment import Validation
from recsim_train.report.write import report_on
from recsim_train.sweep.page import report_on_sweep
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import CriticalPath, Facts, ProcessMemory, WhatIf
from recsim_train.validation.folder import MEASURED, ValidationFolder
from recsim_train.validation.page import write
from tests.browser import PROGRAM, Tab, check_whole, tab
from tests.sweep.made import scaling
from tests.sweep.made import sweep as swept

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine"),
]
MEASURED_CLUSTERS = (
    Path(__file__).parents[2]
    / "benchmarks"
    / "results"
    / "clusters-2026-11-28b"
    / "validation.json"
)

Page = Callable[[Path, Any], Path]


def predicted(factory: Any, plan: Any) -> Any:
    """A prediction with everything that a page can show."""
    found = factory.outcome(plan, jitter=0.1)
    parts = {"compute": 0.004, "queueing": 0.002, "transfer": 0.001, "waiting": 0.0}
    found.binding = Binding("interpreter", "trainer[0].interpreter", 0.95)
    found.facts = Facts(
        class_bounds={
            "trainer: interpreter lock": 21e3, "loops": 30e3, "embedding server: NIC receive": 1e9,
        },
        critical_path=CriticalPath({"lookup": parts, "compute": parts}, {}, 0.014),
        elasticities={"cores": 0.04, "nic": 0.02, "dense_servers": 0.06, "costs.gemm_flop": -0.03},
        elasticity_errors={"cores": 0.001, "nic": 0.001, "dense_servers": 0.001},
        calibration_ci95=(12e3, 24e3),
        calibration_errors={"prices": 0.1, "speed": 0.03},
        what_if=WhatIf(step=0.1, runs=20, events=1000, cost=0.5, skipped={}, degrees=10),
        memory={
            i.name: ProcessMemory(bytes=5e8, available=16 * 2.0**30, process=3e8)
            for i in plan.instances
        },
    )  # fmt: skip
    return found


def several(out: Path, factory: Any) -> Path:
    for kind in ("flat_ps", "allreduce"):
        plan = factory.plan(kind)
        factory.write(out / "runs", plan, "simulated", found=predicted(factory, plan))
        for seed in (1, 2):
            real = factory.outcome(plan, world="real", jitter=0.2, seed=seed, slow={"lookup": 1.5})
            factory.write(out / "runs", plan, "real", found=real)
    return written(report_on([out / "runs"], out / "report"))


def pair(out: Path, factory: Any) -> Path:
    plan = factory.plan()
    factory.write(out / "runs", plan, "simulated", found=predicted(factory, plan))
    real = factory.outcome(plan, world="real", jitter=0.2, slow={"lookup": 1.5})
    factory.write(out / "runs", plan, "real", found=real)
    return written(report_on([out / "runs"], out / "report"))


def alone(out: Path, factory: Any) -> Path:
    for kind in ("flat_ps", "allreduce"):
        plan = factory.plan(kind)
        factory.write(out / "runs", plan, "simulated", found=predicted(factory, plan))
    return written(report_on([out / "runs"], out / "report"))


def sweep(out: Path, _: Any) -> Path:
    return written(report_on_sweep(scaling(out).record.path, out / "report"))


def validation(out: Path, _: Any) -> Path:
    kept = json.loads(MEASURED_CLUSTERS.read_text(encoding="utf-8"))
    folder = ValidationFolder(out, kept, kept["predictions_sha256"])
    (out / MEASURED).mkdir()
    folder.runs = {(run["repeat"], run["number"]): run for run in kept["runs"]}
    write(folder, Validation(**kept["validation"]))
    return out / "report.html"


def written(made: Any) -> Path:
    page: Path = made.page
    return page


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("profile")) as shown:
        yield shown


@pytest.mark.parametrize("made", [pair, several, alone, sweep, validation])
def test_a_page_is_whole_in_any_window(
    made: Page, tmp_path: Path, factory: Any, browser: Tab
) -> None:
    check_whole(browser, made(tmp_path, factory), tables=2, figures=2)


def test_a_table_is_sorted_by_the_figures_of_a_column(
    tmp_path: Path, factory: Any, browser: Tab
) -> None:
    browser.open(sweep(tmp_path, factory), 1400)
    cells = """[...document.querySelectorAll("#points tbody tr")].map(
        (row) => row.cells[[...row.parentNode.previousElementSibling.rows[0].cells].findIndex(
            (head) => head.textContent === "predicted")].textContent)"""
    press = """[...document.querySelectorAll("#points th button")].find(
        (button) => button.textContent === "predicted").click()"""
    assert browser.value(cells) != (up := ["7.00", "7.00", "10.0", "10.0", "14.0", "14.0", "20.0",
                                           "20.0", "40.0", "40.0", "56.0", "80.0"])  # fmt: skip
    browser.value(press)
    assert browser.value(cells) == up
    browser.value(press)
    assert browser.value(cells) == up[::-1]


def test_who_points_at_something_is_told_what_it_is(
    tmp_path: Path, factory: Any, browser: Tab
) -> None:
    browser.open(pair(tmp_path, factory), 1400)
    for chosen, words in (
        ("svg.wide g:has(> title) path", "flat_ps, predicted: "),
        ("th .asked", "where the throughput lies"),
    ):
        told = browser.value(f"""(() => {{
          const seen = document.querySelector("{chosen}");
          seen.dispatchEvent(new PointerEvent("pointerover", {{ bubbles: true }}));
          const tip = document.getElementById("tip");
          return tip.hidden ? "" : tip.textContent;
        }})()""")
        assert words in told


def test_amounts_of_different_currencies_are_not_sorted_among_each_other(
    tmp_path: Path, factory: Any, browser: Tab
) -> None:
    costs = [(5.0, "USD"), (2.0, "EUR"), (30.0, "USD"), (1200.0, "EUR")]
    points = [
        ({"roles.trainers": n}, {"examples_per_second": 1.0, "cost_per_billion": cost,
                                 "currency": currency})
        for n, (cost, currency) in enumerate(costs, start=1)
    ]  # fmt: skip
    swept(tmp_path, points)
    browser.open(written(report_on_sweep(tmp_path / "made-sweep", tmp_path / "out")), 1400)
    table = 'document.querySelector("#points table")'
    browser.value(f"""[...{table}.querySelectorAll("th button")].find(
        (button) => button.textContent.startsWith("cost/")).click()""")
    place = f"""[...{table}.tHead.rows[0].cells].findIndex(
        (head) => head.textContent.startsWith("cost/"))"""
    cells = f"[...{table}.tBodies[0].rows].map((row) => row.cells[{place}].textContent)"
    assert browser.value(cells) == ["2.00 EUR", "1,200 EUR", "5.00 USD", "30.0 USD"]
