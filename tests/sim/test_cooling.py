"""Effects and requests cost more after work that has filled the caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.cluster import Cooling
from recsim_train.config.experiment import Model, Table
from recsim_train.config.load import load_points
from recsim_train.config.profiles import load_cluster
from recsim_train.placement.build import build_plan
from recsim_train.sim.pricing import Pricing
from recsim_train.strategy.registry import schemas
from recsim_train.trace.ledger import REQUESTS, RUNTIME
from recsim_train.workload.shape import moved_bytes
from tests.simulated import simulate

CLUSTER = load_cluster("tests/frozen-2core.yaml")
LAW = Cooling.model_construct(exponent=0.25, bytes=1e6)
EXPERIMENT = """
name: cooling
model: {name: m, embedding_dim: 8, dense_features: 4, tables: {count: 3, rows: 500, ids: 1},
        bottom_mlp: [16, 8], top_mlp: [16, 1]}
data: {eval_rows: 0, synthetic: {rows: 2000, seed: 7}}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 64, threads: 1, steps: 60, warmup_steps: 2}
strategy: flat_ps
cluster: reference-2core
seed: 1
"""


COLDER = {
    "effect", "asking", "request", "row_request", "message", "gloo_message", "collective_message",
}  # fmt: skip


def test_moved_bytes_by_hand() -> None:
    """One linear layer from 4 features to 8, a dot product with 2 tables, and a layer to 1."""
    model = Model(
        name="m", embedding_dim=8, dense_features=4, bottom_mlp=(8,), top_mlp=(1,),
        tables=(Table(rows=100), Table(rows=100)),
    )  # fmt: skip
    one, many = moved_bytes(model, 1), moved_bytes(model, 101)
    weights = moved_bytes(model, 0)
    # the weights of both layers, three times: forward, their gradients, those of their inputs
    assert weights == 4 * 3 * (4 * 8 + 11 * 1)
    assert many - weights == pytest.approx(101 * (one - weights))
    ids = model.model_copy(update={"tables": (Table(rows=100, ids=5), Table(rows=100))})
    # four more rows an example: read, and read and written by the update
    assert moved_bytes(ids, 1) - one == pytest.approx(4 * 3 * 4 * 8, rel=0.3)


@pytest.mark.parametrize("batch", [16, 256])
def test_prices_follow_the_law_and_others_do_not(tmp_path: Path, batch: int) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT)
    spec = load_points(path, [f"training.batch_size={batch}"], schemas())[0].experiment
    plain = Pricing(spec, CLUSTER, batch)
    cooled = Pricing(spec, CLUSTER.model_copy(update={"cooling": LAW}), batch)
    factor = (moved_bytes(spec.model, batch) / 1e6) ** 0.25
    assert abs(factor - 1.0) > 0.1
    for name, price in plain.prices.items():
        expected = price * (factor if name in COLDER else 1.0)
        assert cooled.prices[name] == pytest.approx(expected, rel=1e-12), name


def test_a_prediction_spends_by_it(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT)
    spec = load_points(path, [], schemas())[0].experiment
    plan = build_plan(spec, spec.strategies[0])

    def spent(exponent: float) -> dict[str, float]:
        law = LAW.model_copy(update={"exponent": exponent})
        outcome = simulate(plan, CLUSTER.model_copy(update={"cooling": law}))
        ledger = outcome.facts.ledger
        assert ledger is not None
        found: dict[str, float] = {}
        for line in ledger.lines:
            found[line.what] = found.get(line.what, 0.0) + line.seconds
        return found

    still, growing = spent(0.0), spent(0.25)
    factor = (moved_bytes(spec.model, 64) / 1e6) ** 0.25
    for what in (RUNTIME, REQUESTS):
        assert growing[what] / still[what] == pytest.approx(factor, rel=0.02)
