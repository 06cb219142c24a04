"""Runs that go on: as if nothing had come in between, bit for bit where training is synchronous."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import recsim_train
from recsim_train.calls.answers import Run
from recsim_train.checkpoints.going_on import keeping_of
from recsim_train.checkpoints.manifest import steps_of
from recsim_train.config.errors import UserError
from recsim_train.session.making import RunMaker

EXPERIMENT: dict[str, Any] = {
    "name": "kept",
    "model": {"preset": "tiny"},
    "data": {"synthetic": {"rows": 20_000, "seed": 7}, "eval_rows": 500},
    "roles": {"trainers": 2, "embedding_servers": 2, "dense_servers": 0},
    "training": {
        "batch_size": 32, "threads": 1, "steps": 24, "warmup_steps": 4,
        "dense_optimizer": "adagrad", "dense_lr": 0.05, "sparse_lr": 0.05,
    },
    "execution": {"timeout": "20 s"},
    "checkpoint": {"every": "9 steps", "keep": 9},
    "strategy": "allreduce",
    "cluster": "local",
}  # fmt: skip
MORE = pytest.mark.thorough
DCT = "compression: {kind: dct, density: 5 %, refresh: 5}"
MASKED = "compression: {kind: dct, mode: mp}"
BOTH = "compression: {kind: dct, mode: both, density: 5 %, refresh: 5}"
LOG = "data.path={log}"


@pytest.fixture(autouse=True)
def no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the machine is beside a run takes longer than these runs."""
    monkeypatch.setattr(RunMaker, "_speed", lambda _: None)


def measured(folder: Path, *sets: str, resume: bool = False) -> Run:
    file = folder.parent / "kept.yaml"
    if not file.exists():
        import yaml

        file.write_text(yaml.safe_dump(EXPERIMENT))
    study = recsim_train.load(file, overrides=list(sets))
    (run,) = recsim_train.measure(study, out=folder, resume=resume)
    return run


def losses(run: Run) -> pd.Series[float]:
    found = pd.read_parquet(run.folder / "iterations.parquet")
    return found.set_index(["loop", "iteration"])["loss"].sort_index()


def gone_on(whole: Path, folder: Path, at: int, *sets: str) -> Run:
    """From the checkpoint of the iteration ``at`` of a run."""
    (kept,) = whole.glob("*-checkpoints")
    shutil.copytree(kept, folder / kept.name)
    for path in steps_of(folder / kept.name):
        if int(path.name.removeprefix("step-")) > at:
            shutil.rmtree(path)
    return measured(folder, *sets, resume=True)


@pytest.mark.parametrize(
    "sets",
    [
        ("strategy=allreduce",),
        pytest.param((f"strategy={{kind: allreduce, {DCT}}}", "roles.readers=1"), marks=MORE),
        (f"strategy={{kind: allreduce, {BOTH}}}",),
        ("strategy={kind: localsgd, every: 5, switch: 12, prefetch: 2}",),
        (f"strategy={{kind: localsgd, every: 5, {MASKED}}}", "roles.embedding_servers=0"),
        ("strategy=scalefreectr",),
        ("strategy={kind: des, partition: hash}", "roles.embedding_servers=0"),
        ("strategy={kind: hierarchical, hosts: 2, prefetch: 1}", "model=deepfm"),
        pytest.param(
            (
                "strategy={kind: flat_ps, every: 5, prefetch: 1}", "roles.trainers=1",
                "roles.dense_servers=1",
            ),
            marks=MORE,
        ),
        pytest.param(
            (
                "strategy={kind: shadowsync, algorithm: bmuf, sync: foreground, every: 5}",
                "roles.trainers=1",
            ),
            marks=MORE,
        ),
    ],
    ids=lambda sets: sets[0].removeprefix("strategy="),
)  # fmt: skip
def test_a_run_that_goes_on_is_as_one_without_interruption(
    sets: tuple[str, ...], tmp_path: Path
) -> None:
    sets = tuple(
        "model={preset: deepfm, max_rows: 300}" if word == "model=deepfm" else word for word in sets
    )
    whole = measured(tmp_path / "whole", *sets)
    rest = gone_on(tmp_path / "whole", tmp_path / "rest", 9, *sets)
    known, found = losses(whole), losses(rest)
    assert found.index.get_level_values("iteration").min() == 9
    assert found.index.get_level_values("iteration").max() == 27
    assert found.notna().all()
    pd.testing.assert_series_equal(found, known[found.index], check_exact=True)
    assert (rest.auc, rest.loss) == (whole.auc, whole.loss)
    assert rest.record.facts.resumed_at == 9
    assert [one.iteration for one in rest.record.facts.checkpoints] == [18, 27, 28]


def test_a_log_goes_on_with_the_next_example(tmp_path: Path) -> None:
    """Also with reader processes, and where several groups and epochs are begun."""
    import numpy as np

    draw = np.random.default_rng(2)
    log = tmp_path / "log.parquet"
    pd.DataFrame(
        {
            "clicked": draw.integers(0, 2, 500),
            "price": draw.normal(size=500),
            "item": draw.integers(0, 60, 500),
        }
    ).to_parquet(log, row_group_size=90)
    columns = "[{name: price, type: numeric}, {name: item, type: categorical, num_buckets: 60}]"
    sets = (
        "model={embedding_dim: 4, bottom_mlp: [4], top_mlp: [1]}",
        f"data={{path: {log}, label: clicked, eval_rows: 50, columns: {columns}}}",
        "roles.readers=1",
    )
    whole = measured(tmp_path / "whole", *sets)
    rest = gone_on(tmp_path / "whole", tmp_path / "rest", 18, *sets)
    found = losses(rest)
    pd.testing.assert_series_equal(found, losses(whole)[found.index], check_exact=True)


def test_a_complete_run_is_kept_and_more_steps_are_another(tmp_path: Path) -> None:
    whole = measured(tmp_path / "out")
    again = measured(tmp_path / "out", resume=True)
    assert again.folder == whole.folder
    longer = measured(tmp_path / "out", "training.steps=40", resume=True)
    assert longer.record.facts.resumed_at == 27
    known, found = losses(whole), losses(longer)
    assert found.index.get_level_values("iteration").max() == 43
    pd.testing.assert_series_equal(found.loc[:, 27], known.loc[:, 27], check_exact=True)


@pytest.mark.parametrize(("trainers", "servers"), [(3, 1), (1, 3)])
def test_other_numbers_of_processes_go_on(trainers: int, servers: int, tmp_path: Path) -> None:
    measured(tmp_path / "whole")
    other = f"roles.trainers={trainers}", f"roles.embedding_servers={servers}"
    rest = gone_on(tmp_path / "whole", tmp_path / "rest", 9, *other)
    assert rest.record.facts.resumed_at == 9 * 2 // trainers
    assert losses(rest).notna().all()


STILL = "training.dense_lr=1e-30", "training.sparse_lr=1e-30", "training.sparse_optimizer=sgd"


@pytest.mark.parametrize(
    "sets",
    [
        ("strategy=flat_ps", "roles.dense_servers=2", "roles.embedding_servers=1"),
        ("strategy={kind: des, partition: hash}", "roles.embedding_servers=0"),
    ],
    ids=["flat_ps", "des"],
)
def test_another_run_begins_with_the_weights_of_one(sets: tuple[str, ...], tmp_path: Path) -> None:
    """What learns nothing scores as the one that it began with."""
    whole = measured(tmp_path / "whole")
    init = f"checkpoint.init_from={whole.folder}"
    rest = measured(tmp_path / "rest", init, *STILL, *sets)
    assert (rest.auc, rest.loss) == (whole.auc, whole.loss)
    assert rest.record.facts.resumed_at is None


def test_what_does_not_fit_is_drawn_anew_and_said(tmp_path: Path) -> None:
    whole = measured(tmp_path / "whole")
    plan = recsim_train.load(tmp_path / "kept.yaml").plans[0]
    tables = plan.experiment.model.tables
    wider = (*tables[:1], tables[1].model_copy(update={"rows": tables[1].rows + 1}), *tables[2:])
    changes = {"model.tables": wider, "checkpoint.init_from": str(whole.folder)}
    other = replace(plan, experiment=plan.experiment.with_(changes))
    heard: list[str] = []
    keeping = keeping_of(other, tmp_path / "other", resume=True, say=heard.append)
    assert keeping.init is not None
    assert keeping.init.name == "step-000000028"
    assert heard[-1].partition(": ")[2] == (
        "table 0, table 2, table 3, the dense net; drawn anew, because it has none that fit: "
        "table 1"
    )
    gone = {"checkpoint.init_from": str(tmp_path)}
    with pytest.raises(UserError, match="it holds no checkpoint"):
        keeping_of(
            replace(plan, experiment=plan.experiment.with_(gone)), tmp_path / "o", resume=False
        )
