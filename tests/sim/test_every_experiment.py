"""All experiments that are shipped: no prediction beats its bounds, and inputs count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import recsim_train
from recsim_train.evaluate.prediction import predict
from recsim_train.session.job import Job
from recsim_train.sim.host.memory_check import check_memory
from recsim_train.strategy import registry

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.yaml"))
CLAIMS = sorted((ROOT / "benchmarks/claims").glob("*.yaml"))
SHORT = ["training.steps=10", "training.warmup_steps=2", "simulation.what_if_steps=0"]


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def check(job: Job) -> None:
    assert job.cluster is not None
    check_memory(job.plan, job.cluster)
    outcome = predict(job.case)
    assert outcome.speed is not None
    rate = outcome.speed.examples_per_second
    assert rate is not None
    assert rate > 0.0
    bounds = outcome.facts.bounds
    assert len(bounds) > 1
    for resource, bound in bounds.items():
        # between hosts frames wait in queues when the counted window begins and when it ends
        slack = 1e-9 if job.cluster.colocate else 3e-3
        assert rate <= bound * (1.0 + slack), f"{job.plan.strategy}: {resource}"
    assert outcome.bound_eps == min(bounds.values())


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_no_prediction_beats_its_bounds(path: Path) -> None:
    study = recsim_train.load(path, overrides=SHORT)
    if study.experiment.cluster == "local":
        # A machine that was never measured would be measured here, for two minutes.
        study = replace(study, cluster="reference-2core")
    last = [job for job in study.jobs() if job.loaded is study.points[-1]]
    assert last
    for job in last:
        check(job)


@pytest.mark.parametrize("path", [p for p in EXPERIMENTS if p.stem != "fidelity"],
                         ids=lambda path: path.stem)  # fmt: skip
def test_strategies_are_compared_at_equal_examples_a_step(path: Path) -> None:
    """Those of fidelity.yaml are predicted and measured, not compared with each other."""
    study = replace(recsim_train.load(path), cluster="reference-2core")
    found: dict[str, set[int]] = {}
    for job in study.jobs(dry=True):
        training = job.plan.experiment.training
        # an iteration of every Hogwild worker, or of the one worker of a lock-step strategy
        workers = 1 if registry.strategies()[job.plan.strategy.kind].lock_step else training.threads
        size = job.plan.experiment.roles.trainers * workers * training.batch_size
        place = {k: v for k, v in job.settings.items() if not k.startswith("strategy")}
        found.setdefault(repr(place), set()).add(size)
    assert all(len(sizes) == 1 for sizes in found.values()), found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "path",
    [  # the two take half of the time
        pytest.param(path, marks=[pytest.mark.thorough] * (path.stem in ("des", "shadowsync")))
        for path in CLAIMS
    ],
    ids=lambda path: path.stem,
)
def test_no_prediction_of_a_claim_beats_its_bounds(path: Path, tmp_path: Path) -> None:
    experiment = yaml.safe_load(path.read_text(encoding="utf-8"))
    claim = experiment.pop("claim")
    file = tmp_path / path.name
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    for variant in claim["variants"].values():
        overrides = [*claim.get("common", ()), *variant, *SHORT]
        (job,) = recsim_train.load(file, overrides=overrides).jobs()
        check(job)


BASE = """
name: base
model: {preset: criteo-kaggle, max_rows: 20_000}
data: {eval_rows: 0}
roles: {trainers: 4, embedding_servers: 2, dense_servers: 2}
training: {batch_size: 128, threads: 2, steps: 30, warmup_steps: 3}
strategy: {kind: flat_ps}
cluster: paper-20core-25gbit
simulation: {what_if_steps: 0}
"""
SERVED = ["cluster.hosts.dense_server={cores: 20, memory: 256 GiB, nic: 500 Mbit/s}"]
"""The dense servers' NICs bind."""
FEW_CORES = ["cluster.hosts.default.cores=1"]
"""The trainers' cores bind."""

# (what binds, what is changed, whether the throughput rises, falls, or only changes)
INPUTS: list[tuple[str, list[str], str, int]] = [
    ("free", [], "cluster.costs.gemm_flop.value=30 ps", -1),
    ("free", [], "cluster.costs.message.value=400 us", -1),
    ("free", [], "cluster.costs.gather_row.value=1 us", -1),
    # nobody waits for an update unless the next lookup reaches the server before its end
    ("free", [], "cluster.costs.scatter_row.value=10 us", -1),
    ("free", [], "cluster.costs.effect.value=1 ms", -1),
    ("free", [], "cluster.costs.request.value=1 ms", -1),
    ("free", [], "cluster.costs.stream_byte.value=200 ps", -1),
    ("free", [], "cluster.network.latency=2 ms", -1),
    ("free", [], "cluster.network.connection_cap=100 Mbit/s", -1),
    ("free", [], "cluster.jitter=0.5", 0),
    ("free", [], "cluster.contention=0.1", -1),
    ("free", [], "training.batch_size=256", +1),
    ("free", [], "training.threads=3", +1),
    ("free", [], "training.dense_optimizer=adagrad", -1),
    ("free", [], "roles.trainers=6", +1),
    ("free", [], "roles.readers=1", 0),
    ("free", [], "model.embedding_dim=32", 0),
    ("free", [], "model.top_mlp=[1024, 1024, 256, 1]", -1),
    ("free", [], "model.dtype=float64", -1),
    ("free", [], "strategy.pooling=worker", 0),
    ("free", [], "strategy.mode=easgd", 0),
    ("free", [], "placement.cost=bytes", 0),
    ("free", [], "seed=2", 0),
    ("served", SERVED, "cluster.hosts.dense_server.nic=1 Gbit/s", +1),
    ("served", SERVED, "cluster.network.efficiency=0.5", -1),
    ("served", SERVED, "roles.dense_servers=4", +1),
    ("served", SERVED, "roles.dense_servers=1", -1),
    ("cores", FEW_CORES, "cluster.hosts.default.cores=2", +1),
    ("cores", FEW_CORES, "cluster.costs.gemm_flop.value=30 ps", -1),
]


def predicted(folder: Path, sets: list[str]) -> float:
    path = folder / "base.yaml"
    path.write_text(BASE, encoding="utf-8")
    (found,) = recsim_train.predict(recsim_train.load(path, overrides=sets), out=folder)
    assert found.examples_per_second is not None
    return found.examples_per_second


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    folder = tmp_path_factory.mktemp("base")
    settings: dict[str, list[str]] = {"free": [], "served": SERVED, "cores": FEW_CORES}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return {name: predicted(folder, sets) for name, sets in settings.items()}


@pytest.mark.parametrize(("name", "sets", "change", "sign"), INPUTS, ids=str)
def test_every_input_counts(
    name: str, sets: list[str], change: str, sign: int, rates: dict[str, float], tmp_path: Path
) -> None:
    rate = predicted(tmp_path, [*sets, change])
    if sign > 0:
        assert rate > 1.02 * rates[name]
    elif sign < 0:
        assert rate < rates[name]
    else:
        assert rate != rates[name]


def test_what_should_not_matter_does_not(rates: dict[str, float], tmp_path: Path) -> None:
    same: list[Any] = [
        "execution.timeout=90 s",
        "cluster.hosts.default.memory=512 GiB",
        "training.dense_lr=0.9",
    ]
    assert predicted(tmp_path, same) == rates["free"]
