"""One definition, two worlds: the same effects in the same order, the same payload bytes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Placement,
    Roles,
    Simulation,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.config.load import load_cluster
from recsim_train.executor.kernels import KERNELS
from recsim_train.executor.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.sim.run import simulate
from recsim_train.strategy.operations import OPERATIONS as ASKED
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import OPERATIONS as COSTED

PROFILE = str(Path(__file__).parents[2] / "cluster_profiles" / "reference-2core.yaml")

ROLES = {
    "servers": Roles(trainers=2, embedding_servers=2, dense_servers=1),
    "readers": Roles(trainers=2, embedding_servers=1, dense_servers=2, readers=1),
    "no servers": Roles(trainers=2),
    "one process": Roles(),
}
STRATEGIES = {
    "downpour": StrategyChoice(kind="flat_ps"),
    "downpour k=2": StrategyChoice(kind="flat_ps", options={"every": 2}),
    "easgd k=2": StrategyChoice(kind="flat_ps", options={"mode": "easgd", "every": 2}),
    "rows": StrategyChoice(kind="flat_ps", options={"pooling": "worker"}),
    "allreduce": StrategyChoice(kind="allreduce"),
    "allreduce rows": StrategyChoice(kind="allreduce", options={"pooling": "worker"}),
    "cache": StrategyChoice(kind="scalefreectr", options={"cache_share": 1.0}),
    "small cache": StrategyChoice(kind="scalefreectr", options={"cache_rows": 140}),
    "no cache": StrategyChoice(kind="scalefreectr", options={"cache": False}),
}
CASES = [("servers", name) for name in STRATEGIES] + [
    ("readers", "downpour"),
    ("readers", "rows"),
    ("no servers", "downpour"),
    ("no servers", "allreduce rows"),
    ("no servers", "small cache"),
    ("readers", "small cache"),
    ("one process", "cache"),
    ("one process", "downpour"),
    ("one process", "allreduce"),
]


def make_plan(roles: Roles, choice: StrategyChoice) -> Plan:
    spec = Experiment(
        name="conformance",
        model=Model(
            embedding_dim=4,
            bottom_mlp=(8, 4),
            top_mlp=(8, 1),
            tables=(
                Table(rows=4000),  # split by rows where there are two shards
                Table(rows=50),
                Table(rows=300, ids=3),
                Table(rows=70, ids=4, variable=True),
                Table(rows=90),
            ),
        ),
        data=Data(eval_rows=64, synthetic=Synthetic(rows=4000)),
        roles=roles,
        training=Training(batch_size=16, threads=2, steps=6, warmup_steps=2),
        placement=Placement(split_rows_above=0.9),
        simulation=Simulation(precision="0 %"),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def sequences(outcome: Outcome) -> dict[tuple[str, str], list[tuple[str, str, int]]]:
    """(effect, name, iteration) of every loop's own spans, in order."""
    found: dict[tuple[str, str], list[tuple[float, str, str, int]]] = defaultdict(list)
    for span in outcome.spans:
        if not span.effect.startswith("serve_") and span.iteration >= 0:
            found[span.instance, span.loop].append(
                (span.start, span.effect, span.name, span.iteration)
            )
    return {
        loop: [s[1:] for s in sorted(spans, key=lambda s: (s[0], s[3]))]
        for loop, spans in found.items()
    }


def payload(outcome: Outcome) -> dict[tuple[str, str, str], int]:
    """Payload bytes of the counted iterations by (instance, loop, effect)."""
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    for key, total in outcome.totals.items():
        if total.bytes:
            found[key.instance, key.loop, key.effect] += total.bytes
    return dict(found)


def turnover(outcome: Outcome) -> tuple[bool, bool]:
    """Whether counted steps (found rows in a cache, had rows leave it)."""
    figures = outcome.facts["cache"]
    assert isinstance(figures, dict)
    return figures["missed"] < figures["probed"], figures["evicted"] > 0


def test_every_operation_has_a_cost_and_a_kernel() -> None:
    assert set(KERNELS) == set(COSTED)
    assert {operation.name for operation in ASKED} <= set(COSTED)


@pytest.mark.parametrize(("roles", "strategy"), CASES)
def test_same_effects_and_same_bytes(roles: str, strategy: str, tmp_path: Path) -> None:
    plan = make_plan(ROLES[roles], STRATEGIES[strategy])
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    assert predicted.facts.get("cache") == real.facts.get("cache")
    if strategy == "small cache":
        assert turnover(real) == (True, True)
    if roles == "servers":
        assert sum(payload(real).values()) > 0


def test_the_comparison_of_bytes_can_fail(tmp_path: Path) -> None:
    plan = make_plan(ROLES["servers"], STRATEGIES["downpour"])
    wider = plan.experiment.model.model_copy(update={"embedding_dim": 8, "bottom_mlp": (8, 8)})
    other = plan.experiment.model_copy(update={"model": wider})
    real = execute(plan, staging=tmp_path)
    predicted = simulate(build_plan(other, other.strategies[0]), load_cluster(PROFILE, None))
    assert payload(predicted) != payload(real)
