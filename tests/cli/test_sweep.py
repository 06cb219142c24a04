"""Sweeps through the command line: points, a table, going on, a report."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from recsim_train.results import environment
from tests.clock import LIMIT, until
from tests.commands import answer, command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "cluster_profiles" / "paper-20core-25gbit.yaml")
EXPERIMENT = f"""
name: small
model: {{embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {{count: 4, rows: 500}}}}
roles: {{trainers: 1, embedding_servers: 1, dense_servers: 1}}
training: {{batch_size: 16, steps: 12, warmup_steps: 2}}
strategy: flat_ps
cluster: {REFERENCE}
sweep:
  roles.trainers: [1, 2, 4]
  strategy: [flat_ps, allreduce]
  cluster.hosts.default.nic: [5 Gbit/s, 25 Gbit/s]
"""
TIMED = "wall_seconds"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with the finished sweep, to be copied, and what the command said."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(EXPERIMENT)
    return folder, answer("simulate", "small.yaml", "--jobs", "1", cwd=folder)


@pytest.fixture
def finished(swept: tuple[Path, Any], folder: Path) -> Path:
    """A folder of this test's own with the finished sweep."""
    shutil.copytree(swept[0] / "runs", folder / "runs")
    return folder


def table(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != TIMED} for row in rows]


def test_points_are_the_same_from_a_pool_and_one_after_the_other(
    swept: tuple[Path, Any], finished: Path
) -> None:
    folder, one = finished, swept[1]
    two = answer("simulate", "small.yaml", "--jobs", "2", "--out", "two", cwd=folder)
    assert len(one["points"]) == 12
    assert timeless(one["points"]) == timeless(two["points"])
    files = [table(folder / out / "small-sweep" / "sweep.parquet") for out in ("runs", "two")]
    assert timeless(files[0]) == timeless(files[1])
    for point in one["points"]:
        low, high = point["calibration_low"], point["calibration_high"]
        assert low < point["examples_per_second"] < high
        # where free trainers share a server, its queue counts, too: it is not said here
        shared = any("Training loops run freely and share" in note for note in point["notes"])
        causes = set(point["calibration_errors"]) - {"links"}  # where bytes take time
        # nobody says what passes at once, either
        assert causes == {"prices", "at_once", *(["queue"] if shared else [])}
        assert not shared or (point["strategy"], point["roles.trainers"] > 1) == ("flat_ps", True)
        assert any("was not calibrated" in note for note in point["notes"])
        assert point["examples_per_step"] == 16 * point["roles.trainers"]
    assert one["caveats"] == []  # no machine is named in this profile
    # the same figures as one experiment by itself
    alone = answer("simulate", "small.yaml", "--set", "roles.trainers=4", "--set",
                   "strategy=allreduce", "--set", "cluster.hosts.default.nic=5 Gbit/s",
                   "--set", "simulation.what_if_steps=0", cwd=folder)["runs"][0]  # fmt: skip
    (point,) = [
        p
        for p in one["points"]
        if (p["roles.trainers"], p["strategy"]) == (4, "allreduce")
        and p["cluster.hosts.default.nic"] == "5 Gbit/s"
    ]
    assert point["examples_per_second"] == alone["examples_per_second"]
    assert [point["eps_low"], point["eps_high"]] == alone["ci95"]
    assert point["bytes_per_step"] == sum(alone["bytes_by_effect"].values())
    assert point["bound_eps"] == alone["bound_eps"]
    assert point["memory_bytes"] == max(m["bytes"] for m in alone["facts"]["memory"].values())
    assert not list(folder.glob("two/*/runs"))
    text = (folder / "two" / "small-sweep" / "sweep.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(r["examples_per_second"]) for r in rows] == [
        p["examples_per_second"] for p in one["points"]
    ]


def test_report(finished: Path) -> None:
    folder = finished
    found = answer("report", "runs/small-sweep", "--out", "report", cwd=folder)
    assert found == answer("report", "runs", "--out", "report", cwd=folder)
    assert found["over"] == "roles.trainers"
    assert len(found["lines"]) == 4  # two strategies, two rates
    assert {b["label"] for b in found["best"]} == {"flat_ps", "allreduce"}
    for line in found["lines"]:
        assert [p["value"] for p in line["points"]] == [1, 2, 4]
    names = {p.name for p in (folder / "report" / "figures").iterdir()}
    assert names == {f"{n}.{s}" for n in ("scaling", "map", "binding") for s in ("png", "svg")}
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert page.count("<svg") == 6  # each for wide windows and for narrow ones
    best = found["best"][0]["point"]["cluster.hosts.default.nic"]
    short = (folder / "report" / "summary.md").read_text(encoding="utf-8")
    assert f"nic {best}" in short
    assert f"nic {best}" in page.replace("\u00a0", " ")
    refused = command("report", "runs/small-sweep", "runs", cwd=folder)
    assert refused.returncode == 2
    assert "name it alone" in refused.stderr


def test_resume_runs_only_what_is_missing(swept: tuple[Path, Any], finished: Path) -> None:
    from recsim_train.evaluate.evaluator import Memo
    from recsim_train.evaluate.levels import FINAL
    from recsim_train.sweep.folder import read_sweep

    folder, first = finished, swept[1]["points"]
    path = folder / "runs" / "small-sweep"
    # as a process that was killed leaves it: no table, some points
    record = read_sweep(path)
    header = record.header
    memo = Memo(path / "points.jsonl", header["code"])
    for row in record.rows[:5]:
        memo.add(header["points"][row.number]["identity"], FINAL, row)
    with (path / "points.jsonl").open("a") as cut:
        cut.write('{"case": "cut o')
    (path / "sweep.parquet").unlink()
    unfinished = answer("report", "runs/small-sweep", "--out", "report", cwd=folder)
    assert unfinished["sweep"]["complete"] is False
    assert unfinished["sweep"]["finished"] == 5
    done = command("simulate", "small.yaml", "--jobs", "1", "--resume", "--json", cwd=folder)
    assert "5 of 12 points are there already" in done.stderr
    again = json.loads(done.stdout)["points"]
    assert timeless(again) == timeless(first)
    assert [p[TIMED] for p in again[:5]] == [p[TIMED] for p in first[:5]]
    assert not (path / "points.jsonl").exists()
    quick = ("--set", "simulation.what_if_steps=0")
    anew = answer("simulate", "small.yaml", "--jobs", "1", *quick, cwd=folder)
    assert anew["sweep"]["sweep_dir"] == "runs/small-sweep-2"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--set", "training.steps=13"], "training.steps was 12, is 13"),
        (
            ["--set", "roles.trainers=[1, 2]"],
            "the sweep of roles.trainers was [1, 2, 4], is [1, 2]",
        ),
        (["--set", "cluster.network.latency=5 us"], "cluster.network.latency was"),
        (["--seed", "2"], "seed was 1, is 2"),
    ],
)
def test_resume_refuses_another_sweep(finished: Path, changes: list[str], said: str) -> None:
    done = command("simulate", "small.yaml", "--jobs", "1", "--resume", *changes, cwd=finished)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_of_other_code_is_made_anew_beside_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_own", lambda: "another constant in the simulator")
    few = ["--set", "roles.trainers=[1]", "--set", "strategy=[allreduce]", "--json"]
    words = ["simulate", "small.yaml", "--jobs", "1", "--resume"]
    first = command(*words, *few, "--out", "few", cwd=finished)
    assert first.returncode == 0, first.stderr
    monkeypatch.undo()
    again = command(*words, *few, "--out", "few", cwd=finished)
    assert again.returncode == 0, again.stderr
    assert "few/small-sweep: made by other code" in again.stderr
    assert json.loads(again.stdout)["sweep"]["sweep_dir"] == "few/small-sweep-2"
    # what other code made of this sweep stays, and each goes on with its own
    monkeypatch.setattr(environment, "_own", lambda: "another constant in the simulator")
    back = command(*words, *few, "--out", "few", cwd=finished)
    assert "other code" not in back.stderr
    assert json.loads(back.stdout)["sweep"]["sweep_dir"] == "few/small-sweep"


def long_sweep(
    start: Any, folder: Path, finished: int, steps: int = 1500
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A sweep of long points in two processes when so many are finished, and its processes."""
    words = ["--set", f"training.steps={steps}", "--set", "simulation.precision=0 %", "--jobs", "2"]
    process = start("simulate", "small.yaml", *words, cwd=folder)
    points = folder / "runs" / "small-sweep" / "points.jsonl"
    until(lambda: points.exists() and points.read_text().count("\n") >= finished)
    return process, psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_what_is_finished(
    start: Any, folder: Path, number: signal.Signals, ends: int
) -> None:
    process, children = long_sweep(start, folder, finished=2)
    os.killpg(process.pid, number)  # as a terminal does: every process gets it
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == ends, errors
    assert "interrupted; to go on: recsim-train simulate small.yaml" in errors
    assert errors.rstrip().endswith("--resume")
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=10)[1]
    rows = table(folder / "runs" / "small-sweep" / "sweep.parquet")
    assert 2 <= len(rows) < 12
    assert all(row["examples_per_second"] > 0 for row in rows)


@pytest.mark.slow
def test_an_interrupt_before_the_first_point_leaves_nothing(start: Any, folder: Path) -> None:
    # no point ends within a minute, however late the signal is
    process, _ = long_sweep(start, folder, finished=0, steps=100_000)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, errors
    assert not list((folder / "runs").iterdir())


@pytest.mark.slow
def test_processes_end_when_the_sweep_is_killed(start: Any, folder: Path) -> None:
    process, children = long_sweep(start, folder, finished=1)
    assert len(children) >= 2
    process.kill()
    assert not psutil.wait_procs(children, timeout=10)[1]


def test_points_that_do_not_fit_say_so_and_the_others_are_simulated(folder: Path) -> None:
    words = ["--set", "model.tables={count: 4, rows: 50_000_000}", "--set",
             "cluster.hosts.default.nic=5 Gbit/s", "--set", "strategy=flat_ps", "--set",
             "roles.embedding_servers=[1, 4]", "--set", "cluster.hosts.default.memory=4 GiB",
             "--jobs", "1"]  # fmt: skip
    done = command("simulate", "small.yaml", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3 of 6 points do not fit" in done.stderr
    points = json.loads(done.stdout)["points"]
    for p in points:
        fits = p["roles.embedding_servers"] == 4
        assert (p["status"] == "complete") == fits
        assert (p["examples_per_second"] is not None) == fits
        assert fits or "2 embedding servers would be enough" in p["message"]
    found = answer("report", "runs/small-sweep", "--out", "report", cwd=folder)
    assert len(found["not_fitting"]) == 3
    none = command("simulate", "small.yaml", *words, "--set", "roles.embedding_servers=[1]",
                   cwd=folder)  # fmt: skip
    assert none.returncode == 2
    assert "no point fits into the hosts" in none.stderr


def test_dry_run_prints_the_points(folder: Path) -> None:
    done = command("simulate", "small.yaml", "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "small: 12 points"
    assert "  12  allreduce, roles.trainers=4, cluster.hosts.default.nic=25 Gbit/s" in done.stdout
    assert not (folder / "runs").exists()
    assert len(answer("simulate", "small.yaml", "--dry-run", cwd=folder)["points"]) == 12


def test_a_folder_leaves_sweeps_out(folder: Path) -> None:
    plain = EXPERIMENT.partition("sweep:")[0]
    (folder / "all").mkdir()
    (folder / "all" / "sweep.yaml").write_text(EXPERIMENT)
    (folder / "all" / "plain.yaml").write_text(plain)
    done = command("simulate", "all", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "left out: it is a sweep" in done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 1


def test_bad_points_are_said_before_anything_starts(folder: Path) -> None:
    words = ["--set", "roles.trainers=[2, 3]", "--set", "strategy={kind: hierarchical, hosts: 2}"]
    done = command("simulate", "small.yaml", *words, cwd=folder)
    assert done.returncode == 2
    assert "where" in done.stderr
    assert "roles.trainers=3" in done.stderr
    assert "must be a multiple of the hosts in one group (2)" in done.stderr
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_kept_runs_and_a_process_free_of_torch(folder: Path) -> None:
    few = ["roles.trainers=2", "cluster.hosts.default.nic=5 Gbit/s"]
    script = (
        "import sys\n"
        f"sys.argv = ['recsim-train', 'simulate', 'small.yaml', '--jobs', '1', "
        f"{', '.join(repr(w) for f in few for w in ('--set', f))}]\n"
        "from recsim_train.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    text = EXPERIMENT.replace("sweep:\n", "sweep:\n  keep_runs: true\n  grid:\n").replace(
        "\n  roles.tr", "\n    roles.tr").replace("\n  strategy:", "\n    strategy:").replace(
        "\n  cluster.h", "\n    cluster.h")  # fmt: skip
    (folder / "small.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = table(folder / "runs" / "small-sweep" / "sweep.parquet")
    kept = {p.name for p in (folder / "runs" / "small-sweep" / "runs").iterdir()}
    assert {row["run_id"] for row in rows} == kept
    assert len(kept) == 2


@pytest.mark.slow
def test_run_measures_every_point_once(folder: Path) -> None:
    words = ["--set", "roles.trainers=[1, 2]", "--set", "strategy=flat_ps", "--set",
             "cluster.hosts.default.nic=5 Gbit/s"]  # fmt: skip
    done = command("run", "small.yaml", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "a sweep: 2 points are measured one after the other" in done.stderr
    assert [run["trainers"] for run in json.loads(done.stdout)["runs"]] == [1, 2]
    again = command("run", "small.yaml", *words, "--json", "--resume", cwd=folder)
    assert json.loads(again.stdout)["runs"] == json.loads(done.stdout)["runs"]
