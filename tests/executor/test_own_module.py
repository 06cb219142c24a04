"""A module of a user's own: trained as plain PyTorch trains it, kept and taken out as it is."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

import recsim_train
from recsim_train.calls.answers import Run
from recsim_train.checkpoints.manifest import carried, steps_of
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Experiment
from recsim_train.data.batch import ids_by_table
from recsim_train.data.stream import held_out, open_stream
from recsim_train.executor.checkpoint.export import export
from recsim_train.executor.net.model import initial_rows
from recsim_train.executor.worker import DenseOptimizer, Replica, Worker
from recsim_train.session.making import RunMaker
from tests.commands import command
from tests.docs.manual import DOCS
from tests.docs.test_tasks import blocks

NET = """
import torch
from torch import nn
from beside import WIDTH

class Net(nn.Module):
    def __init__(self, features, tables, dim):
        super().__init__()
        self.bottom = nn.Linear(features, dim)
        self.norm = nn.BatchNorm1d(dim)
        self.attention = nn.MultiheadAttention(dim, 2, dropout=DROPOUT, batch_first=True)
        self.top = nn.Sequential(
            nn.Linear(dim * (tables + 1), WIDTH), nn.ReLU(), nn.Dropout(DROPOUT),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, dense, embedded):
        fields = torch.cat([self.norm(self.bottom(dense)).unsqueeze(1), embedded], dim=1)
        mixed, _ = self.attention(fields, fields, fields, need_weights=False)
        return self.top((fields + mixed).flatten(1)).squeeze(1)

def build(dense_features, tables, embedding_dim):
    return Net(dense_features, len(tables), embedding_dim)
"""
EXPERIMENT: dict[str, Any] = {
    "name": "mine",
    "model": {"preset": "tiny", "module": "net.py:build"},
    "data": {"synthetic": {"rows": 20_000, "seed": 7}, "eval_rows": 500},
    "roles": {"trainers": 2, "embedding_servers": 1, "dense_servers": 0},
    "training": {
        "batch_size": 32, "threads": 1, "steps": 24, "warmup_steps": 4,
        "dense_optimizer": "sgd", "sparse_optimizer": "sgd", "dense_lr": 0.1, "sparse_lr": 0.1,
    },
    "execution": {"timeout": "20 s"},
    "checkpoint": {"every": "9 steps", "keep": 9},
    "strategy": "allreduce",
    "cluster": "reference-2core",
}  # fmt: skip

MORE = pytest.mark.thorough


@pytest.fixture(autouse=True)
def no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the machine is beside a run takes longer than these runs."""
    monkeypatch.setattr(RunMaker, "_speed", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Without dropout."""
    return written(tmp_path, 0.0)


def written(folder: Path, dropout: float) -> Path:
    (folder / "net.py").write_text(NET.replace("DROPOUT", str(dropout)))
    (folder / "beside.py").write_text("WIDTH = 12\n")
    (folder / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    shutil.copytree(DOCS.parent / "cluster_profiles", folder / "cluster_profiles")
    return folder


def measured(folder: Path, *sets: str, out: str = "runs", resume: bool = False) -> Run:
    study = recsim_train.load(folder / "mine.yaml", overrides=list(sets))
    (run,) = recsim_train.measure(study, out=folder / out, resume=resume)
    return run


def losses(run: Run) -> pd.Series[float]:
    found = pd.read_parquet(run.folder / "iterations.parquet")
    return found.set_index(["loop", "iteration"])["loss"].sort_index()


class Plain:
    """Plain training of the module in this process: on the batches of both trainers."""

    def __init__(self, folder: Path, spec: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(folder)
        torch.manual_seed(spec.seed)
        make: Callable[..., torch.nn.Module] = runpy.run_path(str(folder / "net.py"))["build"]
        model = spec.model
        names = [str(n) for n in range(len(model.tables))]
        self.net = make(
            dense_features=model.dense_features, tables=names, embedding_dim=model.embedding_dim
        )
        self.tables = [
            initial_rows(model, spec.seed, n, 0, table.rows).requires_grad_()
            for n, table in enumerate(model.tables)
        ]
        self.spec = spec

    def batches(self) -> list[list[Any]]:
        rules = self.spec.training
        steps = rules.warmup_steps + rules.steps
        found: list[list[Any]] = [[] for _ in range(steps)]
        for _, step, batch in open_stream(
            self.spec.model, self.spec.data, batch_size=rules.batch_size, positions=[0, 1],
            total=2, iterations=steps, seed=self.spec.seed,
        ):  # fmt: skip
            found[step].append(batch)
        return found

    def logits(self, batch: Any) -> torch.Tensor:
        ids = [torch.from_numpy(own) for own in ids_by_table(self.spec.model, batch)]
        vectors = [table[own] for table, own in zip(self.tables, ids, strict=True)]
        found: torch.Tensor = self.net(
            torch.from_numpy(batch.dense).float(), torch.stack(vectors, 1)
        )
        return found

    def loss(self, batch: Any) -> torch.Tensor:
        labels = torch.from_numpy(np.asarray(batch.labels)).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(self.logits(batch), labels)

    def step(self, losses: list[torch.Tensor]) -> None:
        (sum(losses) / len(losses)).backward()  # type: ignore[union-attr]
        with torch.no_grad():
            for one in (*self.net.parameters(), *self.tables):
                one.sub_(0.1 * one.grad)  # type: ignore[operator]
                one.grad = None


def test_each_loss_of_allreduce_is_that_of_plain_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(folder)
    spec = recsim_train.load(folder / "mine.yaml").experiment
    plain, found = Plain(folder, spec, monkeypatch), losses(run)
    norm: Any = plain.net.norm
    for step, batches in enumerate(plain.batches()):
        # each trainer's pass begins with the same running means; all move by the mean of moves
        before = norm.running_mean, norm.running_var
        after, own = [], []
        for batch in batches:
            norm.running_mean, norm.running_var = (one.clone() for one in before)
            own.append(plain.loss(batch))
            after.append((norm.running_mean, norm.running_var))
        for trainer, loss in enumerate(own):
            known = found[f"trainer[{trainer}].worker[0]", step]
            assert known == pytest.approx(float(loss.detach()), abs=1e-5), step
        plain.step(own)
        norm.running_mean = torch.stack([mean for mean, _ in after]).mean(0)
        norm.running_var = torch.stack([var for _, var in after]).mean(0)
    plain.net.eval()
    (batch,) = held_out(spec.model, spec.data, 500)
    assert run.loss == pytest.approx(float(plain.loss(batch).detach()), abs=1e-4)


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("localsgd", marks=MORE)])
def test_dropout_and_running_means_go_on_from_a_checkpoint(tmp_path: Path, strategy: str) -> None:
    folder, chosen = written(tmp_path, 0.2), f"strategy={strategy}"
    whole = measured(folder, chosen)
    (kept,) = (folder / "runs").glob("*-checkpoints")
    shutil.copytree(kept, folder / "rest" / kept.name)
    for path in steps_of(folder / "rest" / kept.name):
        if path.name != "step-000000009":
            shutil.rmtree(path)
    rest = measured(folder, chosen, out="rest", resume=True)
    assert rest.record.facts.resumed_at == 9
    known, found = losses(whole), losses(rest)
    pd.testing.assert_series_equal(found, known[found.index], check_exact=True)
    assert (rest.auc, rest.loss) == (whole.auc, whole.loss)


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(("strategy=flat_ps", "roles.dense_servers=1"), marks=MORE),
        ("strategy=flat_ps", "roles.dense_servers=2", "training.threads=2"),
        pytest.param(("strategy={kind: shadowsync, algorithm: bmuf}",), marks=MORE),
        ("strategy={kind: flat_ps, compression: {kind: dct, density: 5 %, refresh: 5}}",),
        pytest.param(("strategy=scalefreectr", "training.dense_optimizer=adagrad"), marks=MORE),
    ],
    ids=lambda sets: sets[0],
)
def test_running_means_move_under_every_strategy(folder: Path, sets: tuple[str, ...]) -> None:
    """To where batches' own are: each of the inputs' means is between 0 and some."""
    run = measured(folder, *sets)
    assert run.loss is not None
    assert 0.0 < run.loss < 1.0
    export(run.folder, folder / "model")
    saved = load_file(folder / "model" / "model.safetensors")
    var = saved["net.norm.running_var"]
    assert float(saved["net.norm.running_mean"].abs().max()) > 0.05
    assert float(var.min()) > 0.0
    assert float((var - 1.0).abs().max()) > 0.05


def test_a_module_is_exported_and_scores_as_the_run_did(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(folder, "strategy=flat_ps", "roles.dense_servers=1")
    done = command("export", str(run.folder), "-o", "model", cwd=folder)
    assert done.returncode == 0, done.stderr
    saved = load_file(folder / "model" / "model.safetensors")
    spec = recsim_train.load(folder / "mine.yaml").experiment
    plain = Plain(folder, spec, monkeypatch)
    own = {name[4:]: one for name, one in saved.items() if name.startswith("net.")}
    left = plain.net.load_state_dict(own, strict=False)
    assert left.unexpected_keys == []
    assert {*left.missing_keys} <= {"norm.num_batches_tracked"}
    plain.tables = [saved[f"tables.{n}.weight"] for n in range(len(spec.model.tables))]
    # two trainers have moved it some 56 times, by a tenth of the way each
    assert float(plain.net.norm.running_mean.abs().sum()) > 0.01  # type: ignore[operator, union-attr]
    plain.net.eval()
    (batch,) = held_out(spec.model, spec.data, 500)
    assert float(plain.loss(batch).detach()) == pytest.approx(run.loss, rel=1e-5)


def test_a_description_is_kept_until_a_file_changes(folder: Path) -> None:
    def described() -> tuple[str, list[tuple[int, ...]]]:
        found = recsim_train.load(folder / "mine.yaml").experiment.model.described
        assert found is not None
        return found.digest, [one.shape for one in found.parameters]

    first = described()
    kept = list((folder / ".recsim-train").glob("build-*.json"))
    assert len(kept) == 1
    at = kept[0].stat().st_mtime_ns
    assert described() == first
    content = json.loads(kept[0].read_text())
    assert sorted(Path(path).name for path in content["sources"]) == ["beside.py", "net.py"]
    assert kept[0].stat().st_mtime_ns == at
    (folder / "beside.py").write_text("WIDTH = 14\n")
    digest, shapes = described()
    assert digest != first[0]
    assert (14, 40) in shapes
    assert (12, 40) in first[1]


def test_a_run_directory_is_predicted_again_without_the_file(folder: Path) -> None:
    study = recsim_train.load(folder / "mine.yaml")
    (first,) = recsim_train.predict(study, out=folder / "runs", what_if=False)
    (folder / "net.py").unlink()
    again = recsim_train.load(first.record.manifest["configuration"])
    (second,) = recsim_train.predict(again, what_if=False)
    assert second.examples_per_second == first.examples_per_second


@pytest.mark.parametrize("strategy", ["des", "hierarchical"])
def test_strategies_that_cut_the_net_refuse_a_module(folder: Path, strategy: str) -> None:
    study = recsim_train.load(folder / "mine.yaml", overrides=[f"strategy={strategy}"])
    with pytest.raises(UserError, match=f"{strategy} cuts the net over hosts"):
        _ = study.plans


def test_a_buffer_takes_the_move_of_a_pass_whatever_the_optimizer(folder: Path) -> None:
    spec = recsim_train.load(folder / "mine.yaml").experiment
    for rule in ("sgd", "adagrad"):
        training = spec.training.with_({"dense_optimizer": rule, "dense_lr": 0.3})
        worker = Worker(Replica(spec.model, training, 1), "server")
        parameters = worker.replica.parameters
        before = parameters.clone()
        gradient = torch.full_like(parameters, 0.5)
        optimizer = worker.replica.optimizer
        assert optimizer.moving == 2 * spec.model.embedding_dim
        optimizer.step(parameters, gradient)
        moved = before - parameters
        torch.testing.assert_close(moved[-16:], torch.full((16,), 0.5))
        rest = 0.15 if rule == "sgd" else 0.3
        torch.testing.assert_close(moved[:-16], torch.full_like(moved[:-16], rest))


def test_threads_do_not_take_back_what_others_have_moved(folder: Path) -> None:
    """A pass that was overtaken moves running means by its own batch only."""
    spec = recsim_train.load(folder / "mine.yaml").experiment
    worker = Worker(Replica(spec.model, spec.training, 1), "server")
    parameters, draw = worker.replica.parameters, torch.Generator().manual_seed(3)
    dense = torch.rand(8, spec.model.dense_features, generator=draw)
    pooled = torch.rand(4, 8, spec.model.embedding_dim, generator=draw)
    worker.net.forward(dense, pooled)
    alone = torch.cat(worker.net.moved())
    assert float(alone.abs().min()) > 0.0
    worker.net.forward(dense, pooled)
    parameters[-16:] += 7.0  # another thread's step
    torch.testing.assert_close(torch.cat(worker.net.moved()), alone)


REPLACED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, features, tables, dim):
        super().__init__()
        self.top = nn.Linear(features + tables * dim, 1)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))

    def forward(self, dense, embedded):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * dense.mean(0)
        return self.top(torch.cat([dense - self.mean, embedded.flatten(1)], 1)).squeeze(1)

def build(dense_features, tables, embedding_dim):
    return Net(dense_features, len(tables), embedding_dim)
"""


def test_buffers_that_a_pass_replaces_and_infinite_ones_are_kept(folder: Path) -> None:
    (folder / "net.py").write_text(REPLACED)
    spec = recsim_train.load(folder / "mine.yaml").experiment
    worker = Worker(Replica(spec.model, spec.training, 1), "server")
    dense = torch.full((8, spec.model.dense_features), 2.0)
    pooled = torch.zeros(4, 8, spec.model.embedding_dim)
    worker.net.forward(dense, pooled)
    mean, mask = worker.net.moved()
    torch.testing.assert_close(mean, torch.full_like(mean, -0.2))
    assert (mask == 0).all()
    gradient = torch.cat([torch.zeros(spec.model.dense_features + 4 * 8 + 1), mean, mask.flatten()])
    worker.replica.optimizer.step(worker.replica.parameters, gradient)
    worker.net.forward(dense, pooled)
    torch.testing.assert_close(worker.net.moved()[0], torch.full_like(mean, -0.18))


def test_all_loops_together_move_a_servers_buffers_as_far_as_one() -> None:
    spec = recsim_train.load({**EXPERIMENT, "model": "tiny"}).experiment
    values = torch.zeros(3)
    optimizer = DenseOptimizer.of(spec.training, values, moving=1, share=1 / 4)
    for _ in range(4):
        optimizer.step(values, torch.tensor([1.0, 1.0, -2.0]))
    torch.testing.assert_close(values, torch.tensor([-0.4, -0.4, 2.0]))


def test_a_run_without_its_modules_file_is_refused_before_it_starts(folder: Path) -> None:
    study = recsim_train.load(folder / "mine.yaml")
    (folder / "net.py").unlink()
    with pytest.raises(UserError, match=r"there is no file .*net\.py"):
        study.jobs("real")


def test_the_optimizer_of_a_shard_moves_its_own_buffers() -> None:
    spec = recsim_train.load({**EXPERIMENT, "model": "tiny"}).experiment
    values = torch.zeros(6)
    DenseOptimizer.of(spec.training, values, moving=2).step(values, torch.ones(6))
    torch.testing.assert_close(values, torch.tensor([-0.1] * 4 + [-1.0] * 2))


def test_the_page_on_own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file and its experiment, from description to scores."""
    page = DOCS / "tasks" / "my-model.md"
    code, scoring = blocks(page, "python")
    assert len(code.splitlines()) <= 60
    (tmp_path / "attention_net.py").write_text(code)
    (tmp_path / "mine.yaml").write_text(blocks(page, "yaml")[0])
    shutil.copytree(DOCS.parent / "cluster_profiles", tmp_path / "cluster_profiles")
    done = command("model", "describe", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "net.attention.in_proj_weight [48, 16]" in done.stdout
    fast = ["--set", "training.steps=20", "--set", "strategy=flat_ps"]
    done = command("simulate", "mine.yaml", *fast, "--cluster", "reference-2core", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = command("run", "mine.yaml", *fast, "--set", "checkpoint.every=10 steps", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").glob("mine-flat_ps-real-*")
    assert command("export", str(run), "-o", "model", cwd=tmp_path).returncode == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known: dict[str, Any] = {}
    exec(scoring, known)
    spec = recsim_train.load(tmp_path / "mine.yaml").experiment
    (batch,) = held_out(spec.model, spec.data, 2000)
    ids = [torch.from_numpy(own) for own in ids_by_table(spec.model, batch)]
    scores = known["score"](torch.from_numpy(batch.dense).float(), ids).double()
    labels = torch.from_numpy(np.asarray(batch.labels)).double()
    loss = torch.nn.functional.binary_cross_entropy(scores, labels)
    summary = json.loads((run / "summary.json").read_text())
    assert float(loss) == pytest.approx(summary["loss"], rel=1e-5)


def test_a_checkpoint_is_of_names_and_shapes_and_of_no_folder(folder: Path, tmp_path: Path) -> None:
    def carried_of(place: Path) -> dict[str, Any]:
        spec = recsim_train.load(place / "mine.yaml").experiment
        return carried(spec, spec.strategies[0])

    first = carried_of(folder)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("net.py", "beside.py", "mine.yaml"):
        shutil.copy(folder / name, moved / name)
    (moved / "net.py").write_text((moved / "net.py").read_text() + "# a word more\n")
    assert carried_of(moved) == first
    (moved / "beside.py").write_text("WIDTH = 13\n")
    assert carried_of(moved) != first
