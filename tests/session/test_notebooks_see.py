"""What a notebook shows of studies and results, and an experiment that it gives as a mapping."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import recsim_train
from recsim_train.calls.answers import Profile
from recsim_train.config.errors import UserError
from recsim_train.config.profiles import load_cluster

ROOT = Path(__file__).parents[2]
GIVEN: dict[str, Any] = {
    "name": "given",
    "model": "tiny",
    "data": {"eval_rows": 0, "synthetic": {"rows": 2000}},
    "roles": {"trainers": 2, "embedding_servers": 1, "dense_servers": 1},
    "training": {"batch_size": 32, "steps": 10, "warmup_steps": 2},
    "strategy": ("flat_ps",),
    "simulation": {"what_if_steps": 0},
}
PROFILE = ROOT / "tests" / "frozen-2core.yaml"


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html).replace("\u00a0", " "))


def test_a_mapping_is_an_experiment() -> None:
    study = recsim_train.load(GIVEN, PROFILE, ["roles.trainers=3"], seed=7)
    assert study.experiment.roles.trainers == 3
    assert study.experiment.seed == 7
    assert GIVEN["roles"]["trainers"] == 2
    swept = recsim_train.load({**GIVEN, "sweep": {"roles.trainers": [1, 2]}}, PROFILE)
    assert [point.experiment.roles.trainers for point in swept.points] == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training": {"steps": -1}}, "the given experiment: training.steps: "),
        ({"rolls": {}}, "the given experiment: rolls: unknown key; did you mean 'roles'?"),
        ({"seed": object()}, "the given experiment: seed: expected text, a number, true, false"),
        ({"data": {"synthetic": {"zipf": float("nan")}}}, "data.synthetic.zipf: expected text"),
        ({"roles": {1: 2}}, "the given experiment: roles: expected text as a key, got 1"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_one_sentence(change: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        recsim_train.load(GIVEN | change, PROFILE)


def test_a_study_is_short() -> None:
    study = recsim_train.load({**GIVEN, "sweep": {"roles.trainers": [1, 2]}}, "frozen")
    assert repr(study) == "<Study 'given': flat_ps on frozen, 2 points>"
    shown = plain(study._repr_html_())
    assert "2 points, of which the first: given" in shown
    assert "trainers 1, embedding servers 1, dense servers 1" in shown


def test_predictions_are_short(tmp_path: Path) -> None:
    study = recsim_train.load(GIVEN, PROFILE, ["roles.trainers=[1, 2]"])
    runs = recsim_train.predict(study, out=tmp_path)
    assert repr(runs) == "<Runs: 2 predictions of flat_ps>"
    first = repr(runs[0])
    assert re.fullmatch(
        r"<Run: prediction of flat_ps at roles\.trainers=1, [\d.]+k examples/s>", first
    )
    html = runs._repr_html_()
    assert html.count("<tr>") == 3
    assert "<script" not in html
    assert "<button" not in html
    assert "roles.trainers" in html
    assert "flat_ps 1 simulated" in plain(runs[0]._repr_html_())
    drawn = runs.plot()
    assert drawn is not None
    assert drawn.name == "scaling"
    assert html.count("<svg") == 1
    assert drawn._repr_svg_().startswith("<?xml")
    assert repr(drawn) == f"Picture(name='scaling', title={drawn.title!r}, where={drawn.where!r})"
    alone = recsim_train.predict(recsim_train.load(GIVEN, PROFILE), out=tmp_path / "alone")
    bars = alone[0].plot()
    assert bars is not None
    assert (bars.name, bars.title) == ("throughput", "Predicted throughput")
    report = recsim_train.compare(runs)
    assert report._repr_html_().count("<svg") == 1
    assert report.plot() == drawn
    assert repr(report).startswith("<Report: trainers: ")
    assert "Best point" not in report._repr_html_()
    assert "90 % interval" not in plain(report._repr_html_())  # calibration's part was not asked


def test_a_profile_is_short(tmp_path: Path) -> None:
    found = Profile(load_cluster(str(PROFILE)), tmp_path / "local.yaml")
    assert repr(found).startswith(f"<Profile {found.cluster.name!r}: calibrated ")
    assert "gemm_flop" in found._repr_html_()
