"""The five calls as a library user meets them: typed results, nothing printed, one writer."""

from __future__ import annotations

import doctest
import pydoc
import shutil
import sys
from pathlib import Path

import pytest

import recsim_train
from recsim_train.calibration import profile as calibration
from recsim_train.calls import Caller, Study
from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.profiles import load_cluster
from recsim_train.session import own_runs

ROOT = Path(__file__).parents[2]
SMALL = ["model=tiny", "data.path=null", "training.steps=10", "training.warmup_steps=1"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder like the repository's, which tests may write to."""
    shutil.copytree(ROOT / "cluster_profiles", tmp_path / "cluster_profiles")
    (tmp_path / "experiments").mkdir()
    shutil.copy(ROOT / "experiments" / "quickstart.yaml", tmp_path / "experiments")
    monkeypatch.chdir(tmp_path)


def load(*overrides: str) -> Study:
    return recsim_train.load("experiments/quickstart.yaml", "reference-2core", [*SMALL, *overrides])


@pytest.mark.parametrize("name", recsim_train.__all__)
def test_the_example_in_the_docstring(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(**words: object) -> Cluster:
        return load_cluster("reference-2core")

    # minutes of measuring have tests of their own
    monkeypatch.setattr(calibration, "calibrate_machine", measured)
    monkeypatch.setattr(own_runs, "with_in_runs", lambda cluster, *_, **__: cluster)
    call = getattr(recsim_train, name)
    (example,) = doctest.DocTestFinder(recurse=False).find(call, name, globs={})
    assert example.examples
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def test_help_shows_a_newcomer_the_six_calls() -> None:
    text = pydoc.plain(pydoc.render_doc(recsim_train))
    calls = ["calibrate", "compare", "load", "measure", "predict", "recommend"]
    assert sorted(recsim_train.__all__) == calls
    for name in recsim_train.__all__:
        assert f"\n    {name}(" in text
        assert name in dir(recsim_train)
    assert "<function" not in text
    assert "__getattr__" not in text
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        recsim_train.unknown  # noqa: B018


def test_a_room_that_is_imported_does_not_take_the_place_of_a_call() -> None:
    rooms = {name for name in sys.modules if name.startswith("recsim_train.")}
    assert not {f"recsim_train.{name}" for name in recsim_train.__all__} & rooms
    assert all(callable(getattr(recsim_train, name)) for name in recsim_train.__all__)


def test_nothing_is_printed_and_the_caller_hears(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    caller = Caller(said.append, command=("recsim-train", "simulate", "x.yaml"))
    study = load("roles.dense_servers=0")
    (run,) = recsim_train.predict(study, out=tmp_path / "runs", caller=caller)
    assert capfd.readouterr() == ("", "")
    assert any("what-if:" in sentence for sentence in said)
    assert run.path is not None
    assert run.path.parent == tmp_path / "runs"
    assert run.record.environment["command"] == ["recsim-train", "simulate", "x.yaml"]
    assert run.record.summary.examples_per_second == run.examples_per_second
    assert run.figures["run_id"] == run.record.run_id
    before = run.path.stat().st_mtime_ns
    (again,) = recsim_train.predict(study, out=tmp_path / "runs", resume=True)
    assert again == run
    assert run.path.stat().st_mtime_ns == before


def test_a_single_run_is_a_sweep_of_one_point(tmp_path: Path) -> None:
    asked = ("simulation.what_if_steps=3", "simulation.what_if_trainers=8")  # as a sweep does
    (alone,) = recsim_train.predict(load("roles.trainers=3", *asked))
    swept = recsim_train.predict(load("roles.trainers=[3]"), out=tmp_path)
    (point,) = swept
    assert point.settings == {"roles.trainers": 3}
    left = {"wall_seconds", "run_id", "point", "roles.trainers"}
    assert {k: v for k, v in point.figures.items() if k not in left} == {
        k: v for k, v in alone.figures.items() if k not in left
    }
    assert swept.sweep is not None
    assert swept.sweep.path == tmp_path / "quickstart-sweep"
    with pytest.raises(ValueError, match="keep_runs"):
        _ = point.record
    kept = recsim_train.predict(load("roles.trainers=[3]", "sweep.keep_runs=true"))
    assert kept[0].record.summary == alone.record.summary
    assert kept[0].record.run_id == kept[0].figures["run_id"]


def test_what_cannot_work_is_said_before_anything_starts(tmp_path: Path) -> None:
    small = load("cluster.hosts.default.memory=1 MiB")
    with pytest.raises(UserError, match="GiB too much"):
        recsim_train.predict(small, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UserError, match="did you mean 'model'"):
        load("modle=tiny")
    with pytest.raises(UserError, match="no such run directory"):
        recsim_train.compare("nowhere")


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    runs = recsim_train.predict(load("strategy=[flat_ps, allreduce]"), what_if=False)
    assert recsim_train.compare(runs).page is None
    found = recsim_train.compare(runs[0], runs[1].path or "", out=tmp_path / "report")
    assert found.page == tmp_path / "report" / "report.html"
    assert found.page.exists()
    assert found.findings.median_abs_error is None
    assert len(found.findings.unpaired) == 2
    assert found.to_frame().empty


def test_a_sweep_is_compared_like_runs(tmp_path: Path) -> None:
    study = load("roles.trainers=[1, 2]", "sweep.keep_runs=true")
    runs = recsim_train.predict(study, what_if=False)
    found = recsim_train.compare(runs, out=tmp_path / "report")
    assert found.page is not None
    assert found.page.exists()
    assert found.sweep is not None
    assert found.sweep.x is not None
    assert found.sweep.x.values == (1, 2)
    assert found.to_frame()["roles.trainers"].tolist() == [1, 2]
    assert runs.sweep is not None
    again = recsim_train.compare(runs.sweep.path)
    assert again.document == found.document
    assert (again.page, again.sweep.headline) == (None, found.sweep.headline)
    # beside others its runs count, each by itself
    beside = recsim_train.compare(runs, runs[0])
    assert beside.sweep is None
    assert len(beside.findings.unpaired) == 2
    with pytest.raises(UserError, match="name it alone"):
        recsim_train.compare(runs.sweep.path, runs[0])
