"""The model that comes out of a run scores held-out rows as the run did, without this tool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml
from sklearn.metrics import log_loss, roc_auc_score

import recsim_train
from recsim_train.data.batch import ids_by_table
from recsim_train.data.stream import held_out
from recsim_train.session.making import RunMaker
from tests.commands import command
from tests.docs.test_tasks import TASKS, blocks

EXPERIMENT: dict[str, Any] = {
    "name": "out",
    "model": {"preset": "criteo-kaggle", "max_rows": 300},
    "data": {"synthetic": {"rows": 9_000, "seed": 7}, "eval_rows": 800},
    "roles": {"trainers": 2, "embedding_servers": 2, "dense_servers": 0},
    "training": {"batch_size": 64, "threads": 1, "steps": 30, "warmup_steps": 2},
    "checkpoint": {"every": "20 steps"},
    "strategy": "allreduce",
    "cluster": "local",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run of each strategy in `runs`: replicas, central parameters, parts of the net."""
    made = tmp_path_factory.mktemp("export")
    (made / "out.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    kinds = [
        ("strategy=allreduce",),
        ("strategy=flat_ps", "roles.dense_servers=2"),
        ("strategy={kind: hierarchical, hosts: 2}",),
        ("strategy=des", "roles.embedding_servers=0"),
    ]
    with patch.object(RunMaker, "_speed", lambda _: None):  # takes longer than the runs
        for sets in kinds:
            study = recsim_train.load(made / "out.yaml", overrides=list(sets))
            recsim_train.measure(study, out=made / "runs")
    return made


def run_of(folder: Path, kind: str) -> Path:
    (found,) = (folder / "runs").glob(f"out-{kind}-real-*")
    return found


@pytest.mark.parametrize("kind", ["allreduce", "flat_ps", "hierarchical", "des"])
def test_ten_lines_of_torch_score_as_the_run_did(
    folder: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("export", str(run_of(folder, kind)), "-o", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "26 tables" in done.stderr
    (program,) = blocks(TASKS / "keep-a-model.md", "python")
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    exec(program, known)
    spec = recsim_train.load(folder / "out.yaml").experiment
    scores, labels = [], []
    for batch in held_out(spec.model, spec.data, 100):
        ids = [torch.from_numpy(own) for own in ids_by_table(spec.model, batch)]
        scores.append(known["score"](torch.from_numpy(batch.dense).float(), ids))
        labels.append(batch.labels)
    found, truth = torch.cat(scores).double().numpy(), np.concatenate(labels)
    summary = json.loads((run_of(folder, kind) / "summary.json").read_text())
    assert len(truth) == 800
    assert log_loss(truth, found) == pytest.approx(summary["loss"], rel=1e-5)
    assert roc_auc_score(truth, found) == pytest.approx(summary["auc"], abs=1e-5)


@pytest.mark.parametrize("kind", ["allreduce", "flat_ps", "hierarchical", "des"])
def test_a_checkpoint_of_the_middle_has_a_model_too(
    folder: Path, kind: str, tmp_path: Path
) -> None:
    (kept,) = (folder / "runs").glob(f"out-{kind}-*-checkpoints")
    done = command("export", str(kept / "step-000000020"), "-o", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    from safetensors.torch import load_file

    middle = load_file(tmp_path / "model" / "model.safetensors")
    shapes = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert set(middle) == set(shapes["weight_map"])
    assert middle["tables.0.weight"].shape == (300, 16)
    assert all(value.isfinite().all() for value in middle.values())
    about = json.loads((tmp_path / "model" / "columns.json").read_text())
    assert (about["iteration"], about["examples"]) == (20, 20 * 2 * 64)


def test_what_is_no_run_with_a_model_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    def refused(path: Path, out: str = "model") -> str:
        done = command("export", str(path), "-o", out, cwd=tmp_path)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "it holds no checkpoint; expected a run directory" in refused(tmp_path)
    bare = tmp_path / "bare"
    shutil.copytree(run_of(folder, "allreduce"), bare)
    summary = json.loads((bare / "summary.json").read_text())
    del summary["facts"]["checkpoints_in"]
    (bare / "summary.json").write_text(json.dumps(summary))
    assert "made no checkpoints: set checkpoint.every" in refused(bare)
    (kept,) = (folder / "runs").glob("out-allreduce-*-checkpoints")
    broken = tmp_path / "broken"
    shutil.copytree(kept, broken)
    for file in broken.rglob("trainer-0.0.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    assert "is a damaged checkpoint" in refused(broken)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "not an empty folder" in refused(kept, "full")
