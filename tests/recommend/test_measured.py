"""The first designs, run: what a recommendation says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from recsim_train import calls
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.designs import measured
from recsim_train.designs.measured import MeasuredDesign, order_said
from recsim_train.designs.searching import Design
from tests.executor.test_emulation import refused
from tests.recommend.conftest import Studies

FEW = {
    "hosts": [2, 3], "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1],
    "servers_per_host": [1], "threads": [1],
}  # fmt: skip


def design(eps: float, low: float, high: float) -> Design:
    return cast("Design", SimpleNamespace(eps=eps, interval=(low, high), kind="flat_ps"))


def test_where_the_order_changes_it_is_said() -> None:
    one, two, three = design(300.0, 250, 350), design(200.0, 150, 250), design(100.0, 90, 110)
    found = [
        MeasuredDesign(1, one, 240.0),
        MeasuredDesign(2, two, 260.0),
        MeasuredDesign(3, three, 95.0),
        MeasuredDesign(4, three, None, "no room"),
    ]
    (said,) = order_said(found)
    assert said.startswith("design 1 was predicted faster than design 2 (300, 200) and measured")
    assert said.endswith("slower (240, 260)")
    assert order_said(found[1:]) == ["measured in the order that was predicted (1 pairs)"]
    assert order_said(found[2:]) == []
    assert found[0].error == pytest.approx(0.25)
    assert [one.held for one in found] == [False, False, True, None]


def test_a_folder_is_needed(studies: Studies) -> None:
    with pytest.raises(UserError, match="a folder"):
        calls.recommend(studies(**FEW), measure=1)


def test_one_that_cannot_be_run_does_not_lose_the_answer(
    studies: Studies, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RunFailed("no hosts here\nat all")

    monkeypatch.setattr(measured, "_run", fails)
    study = studies("strategy=allreduce", strategies="false", **FEW)
    made = calls.recommend(study, out=tmp_path, measure=2)
    assert [run.why for run in made.runs] == ["no hosts here", "no hosts here"]
    assert made.out is not None
    page = (made.out / "report.html").read_text()
    assert "design 2 was not measured: no hosts here" in page
    assert "nothing was measured" in page


def test_a_run_that_the_machine_disturbed_is_named(
    studies: Studies, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(*_: object) -> Any:
        return SimpleNamespace(examples_per_second=240.0, auc=0.75, normalized_entropy=None)

    monkeypatch.setattr(measured, "_run", runs)
    monkeypatch.setattr(measured, "broken", lambda run, modelled: iter(["others: 50%", "b"]))
    study = studies("strategy=allreduce", strategies="false", **FEW)
    made = calls.recommend(study, out=tmp_path, measure=1)
    assert [(run.eps, run.broken) for run in made.runs] == [(240.0, ("others: 50%", "b"))]
    assert made.document["measured"][0]["broken"] == ["others: 50%", "b"]
    assert made.out is not None
    page = (made.out / "report.html").read_text()
    assert "says nothing of them (others: 50%; b)" in page
    assert "0.7500" in page
    assert made.document["measured"][0]["auc"] == 0.75


@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_the_first_designs_are_run(studies: Studies, tmp_path: Any) -> None:
    # links that any machine carries, whatever else it does
    link = "cluster.hosts.default.nic=50 Mbit/s"
    sets = ["cluster.hosts.default.cores=8", link, "training.steps=40", "data.eval_rows=0"]
    study = studies("strategy=[flat_ps, allreduce]", *sets, **FEW)
    made = calls.recommend(study, out=tmp_path, measure=2)
    assert len(made.runs) == 2
    for run in made.runs:
        assert run.why == ""
        assert run.eps is not None
        assert run.design.eps is not None
        assert run.error == pytest.approx(run.design.eps / run.eps - 1.0)
    assert made.document["measured"][0]["examples_per_second"] == made.runs[0].eps
    assert made.out is not None
    page = (made.out / "report.html").read_text()
    assert "Measured on emulated hosts" in page
    assert (made.out / "runs").is_dir()
