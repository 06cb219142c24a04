"""The loop through the command line: simulate, run, report on Criteo text."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from recsim_train.report.text import percent
from recsim_train.results.environment import machine_name
from tests.at_work import rate_of_run
from tests.clock import LIMIT, by_the_clock, tried_anew, until
from tests.commands import answer, command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")

EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 26, rows: 500}}
data: {path: small.tsv, generate: true, eval_rows: 500, synthetic: {rows: 3000}}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 32, threads: 2, steps: 20, warmup_steps: 2}
strategy: flat_ps
"""
ROW = b"\t".join([b"1", *[b"5"] * 13, *[b"68fd1e64"] * 26]) + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


RUN_FIELDS = {
    "run_id", "run_dir", "world", "strategy", "examples_per_second", "ci95", "steps", "seconds",
    "bytes_sent", "bottleneck", "loss", "auc", "normalized_entropy",
}  # fmt: skip


def test_the_whole_loop(folder: Path) -> None:
    words = "simulate", "small.yaml", "--cluster", REFERENCE
    predicted = answer(*words, cwd=folder, own=True)["runs"][0]
    measured = answer("run", "small.yaml", cwd=folder, own=True)["runs"][0]
    for run, world in ((predicted, "simulated"), (measured, "real")):
        assert set(run) >= RUN_FIELDS
        assert run["world"] == world
        assert run["strategy"] == "flat_ps"
        assert run["steps"] == 20
        low, high = run["ci95"]
        assert low <= run["examples_per_second"] <= high
        by_hand = rate_of_run(folder / run["run_dir"], 2, 32)
        assert run["examples_per_second"] == pytest.approx(by_hand, rel=1e-6)
    assert predicted["loss"] is None
    assert 0.3 < measured["auc"] < 1
    # By hand: ids up, pooled vectors down, their gradients up; weights down, gradients up.
    weights = 4 * (13 * 16 + 16 + 16 * 8 + 8 + (8 + 27 * 26 // 2) * 16 + 16 + 16 + 1)
    per_iteration = 8 * 26 * 32 + 2 * 4 * 26 * 8 * 32 + 2 * weights
    assert measured["bytes_sent"] == predicted["bytes_sent"] == 2 * 2 * 20 * per_iteration

    loose = "--max-error", "100000%"
    found = answer("report", "runs", "--out", "report", *loose, cwd=folder)  # ends with code 0
    (pair,) = found["comparisons"]
    assert pair["predicted_bytes"] == pair["measured_bytes"]
    error = predicted["examples_per_second"] / measured["examples_per_second"] - 1
    assert pair["signed_error"] == pytest.approx(error)
    assert found["summary"]["median_abs_error"] == pytest.approx(abs(error))
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    # Self-contained: addresses may be named, nothing may be loaded from one.
    assert not re.findall(r"""(?:src|href)=["']https?://(?!ui\.perfetto\.dev)""", page)
    assert "url(http" not in page
    assert "@import" not in page
    assert (folder / "report" / "summary.json").exists()
    assert "flat_ps" in (folder / "report" / "summary.md").read_text(encoding="utf-8")

    gate = command("report", "runs", "--out", "report", "--max-error", "0.000001%", cwd=folder)
    assert gate.returncode == 3, gate.stderr
    assert "Traceback" not in gate.stderr


def test_a_report_shows_the_raw_error_and_the_machines_speed(folder: Path) -> None:
    profile = yaml.safe_load(Path(REFERENCE).read_text(encoding="utf-8"))
    parts = dict.fromkeys(("products", "gather", "interpreter", "loopback"), 0.25)
    here = {"machine": machine_name(), "machine_speed": {"before": parts, "after": parts}}
    profile["calibration"] |= here
    (folder / "here.yaml").write_text(yaml.safe_dump(profile))
    quick = ("--set", "simulation.what_if_steps=0")
    answer("simulate", "small.yaml", "--cluster", "here.yaml", *quick, cwd=folder)
    run = answer("run", "small.yaml", cwd=folder)["runs"][0]
    summary = json.loads((folder / run["run_dir"] / "summary.json").read_text())
    speeds = summary["facts"]["machine_speed"]
    assert set(speeds) == {"before", "after"}
    assert all(set(speeds[end]) == set(parts) for end in speeds)
    overall = math.prod(speed for end in speeds.values() for speed in end.values()) ** (1 / 8)

    found = answer("report", "runs", "--out", "report", cwd=folder)
    (pair,) = found["comparisons"]
    assert pair["speed_at_calibration"] == pytest.approx(0.25)
    assert pair["speed_of_repeats"] == [pytest.approx(overall)]
    assert pair["signed_error"] == pytest.approx(pair["predicted_eps"] / pair["measured_eps"] - 1)
    assert pair["speed_since_calibration"] == pytest.approx(overall / 0.25 - 1)
    assert found["summary"]["median_abs_error"] == pytest.approx(abs(pair["signed_error"]))
    shown = command("report", "runs", "--out", "report", cwd=folder).stdout
    page = (folder / "report" / "report.html").read_text(encoding="utf-8").replace("\xa0", " ")
    for error in (pair["signed_error"], pair["speed_since_calibration"]):
        written = percent(error, signed=True)
        assert written in shown
        assert written in page
    assert f"Before and after {run['run_id']} the idle machine" in " ".join(shown.split())

    # an older run has none
    del summary["facts"]["machine_speed"]
    (folder / run["run_dir"] / "summary.json").write_text(json.dumps(summary))
    (old,) = answer("report", "runs", "--out", "report", cwd=folder)["comparisons"]
    assert old["speed_since_calibration"] is None
    assert old["signed_error"] == pair["signed_error"]


def test_simulation_is_byte_identical_and_free_of_torch(folder: Path) -> None:
    script = (
        "import sys\n"
        "words = ['simulate', 'small.yaml', '--cluster', {!r}, '--out', {!r}]\n"
        "sys.argv = ['recsim-train', *words]\n"
        "from recsim_train.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    files = []
    for out in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(REFERENCE, out)],
            cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (run,) = (folder / out).iterdir()
        skip = {"summary.json"}  # names the directory it lies in
        files.append({p.name: p.read_bytes() for p in run.iterdir() if p.name not in skip})
    assert files[0] == files[1]


def test_resume_keeps_what_is_complete(folder: Path) -> None:
    first = answer("run", "small.yaml", cwd=folder)["runs"][0]
    again = answer("run", "small.yaml", "--resume", cwd=folder)["runs"][0]
    assert again["run_id"] == first["run_id"]
    anew = answer("run", "small.yaml", cwd=folder)["runs"][0]
    assert anew["run_id"] != first["run_id"]


@pytest.mark.parametrize("name", ["simulate", "run"])
def test_dry_run_starts_nothing(folder: Path, name: str) -> None:
    done = command(name, "small.yaml", "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    for process in ("trainer[0..1]", "embedding_server[0]", "dense_server[0]"):
        assert process in done.stdout
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("name", ["simulate", "run"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "small.tsv: no such file"),
        (b"label,I1\n0,1\n", "small.tsv: no line among the first 2 has 40 tab-separated columns"),
        (ROW * 500, "small.tsv has 500 rows, all of which are held out (data.eval_rows"),
        (ROW * 501, None),
    ],
)
def test_dry_run_checks_the_data(
    folder: Path, name: str, content: bytes | None, said: str | None
) -> None:
    if content is not None:
        (folder / "small.tsv").write_bytes(content)
    done = command(name, "small.yaml", "--dry-run", "--set", "data.generate=false", cwd=folder)
    assert done.returncode == (0 if said is None else 2), done.stderr
    assert "Traceback" not in done.stderr
    assert said is None or said in done.stderr
    assert not (folder / "runs").exists()


def long_run(start: Any, folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run of a million steps that has begun to train, and its role processes."""
    (folder / "tmp").mkdir(exist_ok=True)
    process = start(
        "run", "small.yaml", "--set", "training.steps=1000000", cwd=folder,
        TMPDIR=str(folder / "tmp"),
    )  # fmt: skip
    parent = psutil.Process(process.pid)

    def roles() -> list[psutil.Process]:
        assert process.poll() is None, process.communicate()
        return [child for server in parent.children() for child in server.children()]

    until(lambda: len(roles()) == 4)
    children = roles()
    server = next(child for child in children if "embedding_server[0]" in child.cmdline())
    before = server.cpu_times().user
    until(lambda: server.cpu_times().user > before + 1.0)  # into the training, which asks it
    return process, [*parent.children(), *children]


def gone(children: list[psutil.Process], seconds: float = 15) -> None:
    _, alive = psutil.wait_procs(children, timeout=seconds)
    assert not alive


@pytest.mark.parametrize(
    "role",
    [
        "trainer[1]",
        pytest.param("embedding_server[0]", marks=pytest.mark.thorough),
        pytest.param("dense_server[0]", marks=pytest.mark.thorough),
    ],
)
@tried_anew()
def test_a_killed_role_ends_the_run_with_a_sentence(start: Any, folder: Path, role: str) -> None:
    process, children = long_run(start, folder)
    victim = next(p for p in children if any(role in word for word in p.cmdline()))
    victim.kill()
    begin = time.monotonic()
    _, errors = process.communicate(timeout=LIMIT)
    took = time.monotonic() - begin
    assert process.returncode == 1
    assert role in errors
    assert "SIGKILL" in errors
    assert "Traceback" not in errors
    gone(children)
    with by_the_clock():
        assert took < 15


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_the_partial_result(
    start: Any, folder: Path, number: signal.Signals, code: int
) -> None:
    process, children = long_run(start, folder)
    process.send_signal(number)
    time.sleep(0.2)
    process.send_signal(number)  # as `timeout` does: the process, then its group
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == code, errors
    # nothing is complete: neither the model nor a run to go on from
    assert "interrupted; to begin again: recsim-train run small.yaml" in errors
    assert "--resume" not in errors
    assert "Traceback" not in errors
    gone(children)
    (run,) = (folder / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert json.loads((run / "summary.json").read_text())["steps"] > 0
    assert not list((folder / "tmp").glob("recsim-train-*"))


def test_roles_end_when_the_launcher_is_killed(start: Any, folder: Path) -> None:
    process, children = long_run(start, folder)
    process.kill()
    gone(children, 5)
