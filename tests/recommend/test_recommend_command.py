"""``recsim-train recommend``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recsim_train import load
from tests.commands import ROOT, answer, command
from tests.recommend.conftest import QUICK, RENT

SETS = [word for key in QUICK for word in ("--set", key)]
FEW = [
    word
    for key in (
        "search.strategies=false", "search.embedding_hosts=[1]", "search.dense_hosts=[1]",
        "search.trainers_per_host=[1, 2]", "search.servers_per_host=[1]",
        "strategy=[flat_ps, allreduce]",
    )
    for word in ("--set", key)
]  # fmt: skip
RECOMMEND = [
    "recommend", ROOT / "experiments/quickstart.yaml",
    "--cluster", ROOT / "tests/frozen-2core.yaml",
    *SETS, *FEW, "--hosts", "4", "--jobs", "1",
]  # fmt: skip

_PRICES = [
    f"{{per_hour: 1, currency: {currency}, source: a, date: 2026-11-27}}"
    for currency in ("EUR", "USD")
]
TWO_PRICES = f"search.settings={{cluster.hosts.default.rent: [{', '.join(_PRICES)}]}}"


def test_yes_with_a_design_that_can_be_simulated_and_planned(tmp_path: Path) -> None:
    done = command(*RECOMMEND, "--target", "100 examples/s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Yes, 100 examples/s: the smallest design found is" in done.stdout
    places = sorted((tmp_path / "runs").glob("*-recommendation/1-*"))
    assert len(places) == 1
    assert {p.name for p in places[0].iterdir()} == {
        "experiment.yaml", "cluster.yaml", "commands.txt",
    }  # fmt: skip
    page = (places[0].parent / "report.html").read_text()
    assert "What would be enough" not in page
    lines = (places[0] / "commands.txt").read_text().splitlines()
    simulate = next(line for line in lines if line.startswith("recsim-train simulate"))
    again = command(*simulate.split()[1:], "--dry-run", cwd=places[0])
    assert again.returncode == 0, again.stderr


def test_what_is_simulated_again_is_what_was_recommended(tmp_path: Path) -> None:
    found = answer(*RECOMMEND, "--target", "100", cwd=tmp_path)
    chosen = found["chosen"]
    (place,) = (tmp_path / "runs").glob("*-recommendation/1-*")
    study = load(place / "experiment.yaml", place / "cluster.yaml")
    assert study.experiment.roles.model_dump() == chosen["roles"]
    assert [s.kind for s in study.experiment.strategies] == [chosen["strategy"]]
    assert study.experiment.training.batch_size == chosen["batch_size"]
    assert found["asked"]["examples_per_step"] == [512]  # two trainers of two threads, 128 each
    assert chosen["examples_per_step"] == pytest.approx(512, rel=0.02)
    (run,) = answer(
        "simulate", place / "experiment.yaml", "--cluster", place / "cluster.yaml",
        "--set", "simulation.what_if_steps=0", cwd=tmp_path,
    )["runs"]  # fmt: skip
    assert run["examples_per_second"] == pytest.approx(chosen["examples_per_second"], rel=1e-6)


def test_equal_inputs_give_equal_answers(tmp_path: Path) -> None:
    few = [*RECOMMEND, "--hosts", "3"]
    one, other = (answer(*few, cwd=tmp_path / name) for name in _folders(tmp_path))
    for found in (one, other):
        assert 0.0 < found["evaluated"].pop("seconds_by_bounds") < found["evaluated"].pop("seconds")
    assert json.dumps(one) == json.dumps(other)


def _folders(tmp_path: Path) -> list[str]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    return ["one", "other"]


def test_no_with_what_forbids_it(tmp_path: Path) -> None:
    few = [*RECOMMEND, "--hosts", "3", "--target", "2G"]
    done = command(*few, cwd=tmp_path)
    assert done.returncode == 3
    assert "No, not 2.00G examples/s with 3 hosts: the best found is" in done.stdout
    assert "forbids: trainer: cores: " in done.stdout
    assert "cost/1e9 examples" not in done.stdout  # no host has a price
    assert "cannot reach it by their bounds" in done.stdout
    found = answer(*few, cwd=tmp_path, code=3)
    assert found["met"] is False
    assert (found["asked"]["target"], found["asked"]["target_unit"]) == (2e9, "examples/s")
    assert found["barriers"]


def test_the_designs_are_shown_and_none_is_tried(tmp_path: Path) -> None:
    done = command(*RECOMMEND, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "designs on at most 4 hosts" in done.stdout
    assert "trainers_per_host: 1, 2" in done.stdout
    assert not (tmp_path / "runs").exists()
    found = answer(*RECOMMEND, "--dry-run", cwd=tmp_path)
    assert found["designs"] > 5


def test_unlike_work_is_shown_on_request_with_a_column_and_a_caveat(tmp_path: Path) -> None:
    few = [*RECOMMEND, "--set", "search.hosts=[4]", "--set", "training.batch_size=4"]
    alike = command(*few, cwd=tmp_path)
    assert alike.returncode == 0, alike.stderr
    assert re.search(r"tried: \d+ designs: \d+ more have other examples in a step", alike.stdout)
    assert "examples a step" not in alike.stdout
    assert "a step of the job of about 16 examples" in alike.stdout
    unlike = command(*few, "--set", "search.any_step=true", cwd=tmp_path)
    assert unlike.returncode == 0, unlike.stderr
    assert "examples a step" in " ".join(unlike.stdout.split())
    assert re.search(
        r"caveat: One step of the job processes \d+ to \d+ examples, by design", unlike.stdout
    )


def test_prices_decide_where_there_are_some(tmp_path: Path) -> None:
    done = command(*RECOMMEND, "--set", RENT, "--target", "100", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the cheapest design found" in done.stdout
    assert re.search(
        r"[\d.]+ EUR \([\d.]+ EUR to [\d.]+ EUR\) for a billion examples "
        r"\(a contract, 2026-11-27\)",
        done.stdout,
    )
    assert "the cheapest design found (per hour) is" in done.stdout
    assert "cost/1e9 examples" in done.stdout
    none = command(*RECOMMEND, "--set", RENT, "--budget", "1 EUR/h", cwd=tmp_path)
    assert none.returncode == 3
    assert "no: none of" in none.stderr
    assert "costs at most 1.00 EUR an hour; the cheapest costs 4.00 EUR" in none.stderr


def test_without_a_target_cost_is_that_of_an_example(tmp_path: Path) -> None:
    """The first row is the cheapest of those shown, and what is shown is what was asked for."""
    few = [*RECOMMEND, "--hosts", "3", "--set", RENT]
    found = answer(*few, "--by", "cost", "--budget", "5k EUR/month", cwd=tmp_path)
    assert found["asked"]["by_means"] == "the least cost per example"
    assert found["asked"]["budget"] == pytest.approx(5000 / 730)
    assert found["asked"]["budget_unit"] == "EUR/h"
    rows = [found["chosen"], *found["tied"], *found["others"]]
    assert len(rows) > 1
    for row in rows:
        billion = row["per_hour"] / 3600 * 1e9 / row["examples_per_second"]
        assert row["cost_per_billion"] == pytest.approx(billion)
        assert row["cost_per_billion"] >= rows[0]["cost_per_billion"]
        assert row["currency"] == "EUR"
    page = next((tmp_path / "runs").glob("*-recommendation*/report.html")).read_text()
    assert "EUR for a billion examples, the least cost per example found" in page
    assert "cost/1e9 examples" in page


def test_without_a_target_hosts_are_those_of_the_throughput(tmp_path: Path) -> None:
    found = answer(*RECOMMEND, "--by", "hosts", cwd=tmp_path)
    rows = [found["chosen"], *found["tied"], *found["others"]]
    each = [row["examples_per_second"] / row["hosts"] for row in rows]
    assert each[0] == max(each)
    page = next((tmp_path / "runs").glob("*-recommendation*/report.html")).read_text()
    assert "the most examples/s per host found" in page
    assert re.search(r"<th[^>]*>[^/]*examples/s per host", page)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "cost"], "not every host of cluster profile"),
        (["--budget", "50 USD/h"], "not every host of cluster profile"),
        (["--by", "cost", "--dry-run"], "not every host of cluster profile"),
        (["--target", "fast"], "expected examples per second such as '2M examples/s', got 'fast'"),
        *((["--set", RENT, "--dry-run", "--budget", given], "such as '50 EUR/h' or '36k EUR/month'")
          for given in ("50", "36k", "50k/h", "3000 month", "50 USD/h", "500 ct/h")),
        (["--set", TWO_PRICES, "--dry-run", "--by", "cost"], "prices are in EUR and USD, and amou"),
        (["--set", "cluster.colocate=true"], "divides hosts among roles"),
        (["--set", "roles.trainers=[1, 2]"], "takes no `sweep`"),
        (["--set", "search.hosts=[0]"], "search.hosts"),
        (["--set", "search.host=[2]"], "did you mean 'hosts'?"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], said: str) -> None:
    done = command(*RECOMMEND, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
