"""Real runs: every CPU second of the counted window has its line, whatever the strategy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from tests.clock import by_the_clock, tried_anew

SERVERS = Roles(trainers=2, embedding_servers=1, dense_servers=1)
STRATEGIES: dict[str, tuple[str, dict[str, object], Roles]] = {
    "flat_ps": ("flat_ps", {}, SERVERS),
    "flat_ps, readers": ("flat_ps", {"pooling": "worker"}, Roles(trainers=2, readers=1)),
    "flat_ps, dct": ("flat_ps", {"compression": {"kind": "dct", "density": 0.1}}, SERVERS),
    "allreduce": ("allreduce", {}, SERVERS),
    "localsgd": ("localsgd", {"every": 2}, SERVERS),
    "shadowsync": ("shadowsync", {"algorithm": "easgd"}, SERVERS),
    "shadowsync, ma": ("shadowsync", {"algorithm": "ma"}, SERVERS),
    "scalefreectr": ("scalefreectr", {"cache_share": 1.0}, SERVERS),
    "des": ("des", {}, Roles(trainers=2)),
    "hierarchical": ("hierarchical", {"tags": "bottom.0=0,top.0=1"}, SERVERS),
}
CASES = [
    pytest.param(name, marks=[pytest.mark.slow] if name != "flat_ps" else []) for name in STRATEGIES
]


def experiment(name: str, width: int = 64, **training: int) -> Experiment:
    kind, options, roles = STRATEGIES[name]
    choice = StrategyChoice(kind=kind, options=options)
    return Experiment(
        name="ledger",
        model=Model(
            embedding_dim=8,
            bottom_mlp=(width, 8),
            top_mlp=(width, 1),
            tables=tuple(Table(rows=500) for _ in range(6)),
        ),
        data=Data(eval_rows=64, synthetic=Synthetic(rows=20_000)),
        roles=roles,
        training=Training(
            sparse_optimizer="sgd",
            **{"batch_size": 128, "steps": 150, "warmup_steps": 10, **training},
        ),
        strategies=(choice,),
    )


@pytest.mark.parametrize("name", CASES)
@tried_anew()
def test_the_remainder_is_small(name: str, tmp_path: Path) -> None:
    spec = experiment(name)
    plan = build_plan(spec, spec.strategies[0])
    before = time.monotonic()
    outcome = execute(plan, staging=tmp_path)
    wall = time.monotonic() - before
    ledger = outcome.facts.ledger
    assert ledger is not None
    assert 0.0 < ledger.seconds < wall
    found = ledger.rows()
    assert {role for role, _ in found} == {instance.role for instance in plan.instances}
    assert "other" not in {what for _, what in found}
    assert found["trainer", "runtime"] > 0.0
    if plan.of_role("embedding_server"):
        assert found["trainer", "asking"] > 0.0
    use = ledger.machine
    assert use is not None
    assert use.own == pytest.approx(ledger.cores_busy)
    with by_the_clock():
        assert abs(ledger.remainder) < 0.05 * ledger.total, ledger
        if ("trainer", "forward_backward") in found:
            assert found["trainer", "forward_backward"] > 0.05 * ledger.total
        assert use.own <= use.cores * 1.05
        assert use.own + use.others + use.steal < use.cores * 1.2


@pytest.mark.parametrize("name", ["allreduce", "hierarchical"])
@tried_anew()
def test_what_operations_further_threads_do_is_the_operations(name: str, tmp_path: Path) -> None:
    spec = experiment(name, 512, batch_size=1024, threads=2, steps=40)
    outcome = execute(build_plan(spec, spec.strategies[0]), staging=tmp_path)
    ledger = outcome.facts.ledger
    assert ledger is not None
    pool = {line.what: line.seconds for line in ledger.lines if line.thread == "pool"}
    own = {line.what: line.seconds for line in ledger.lines if line.thread == "loop"}
    main = "forward_backward" if name == "allreduce" else "net_backward"
    assert {line.role for line in ledger.lines if line.thread == "pool"} == {"trainer"}
    with by_the_clock():
        assert abs(ledger.remainder) < 0.05 * ledger.total, ledger
        assert 0.1 * own[main] < pool[main] < 1.2 * own[main]
