"""One definition, two worlds: the same effects in the same order, the same payload bytes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from recsim_train.config.experiment import (
    Data,
    Execution,
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
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.process.launch import execute
from recsim_train.executor.runtime import PERFORM as EXECUTED
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.sim.perform import GHOSTS
from recsim_train.sim.perform import PERFORM as SIMULATED
from recsim_train.strategy import effects
from recsim_train.strategy.operations import OPERATIONS
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import OPS
from tests.simulated import simulate

PROFILE = str(Path(__file__).parents[2] / "tests" / "frozen-2core.yaml")

ROLES = {
    "servers": Roles(trainers=2, embedding_servers=2, dense_servers=1),
    "readers": Roles(trainers=2, embedding_servers=1, dense_servers=2, readers=1),
    "no servers": Roles(trainers=2),
    "one process": Roles(),
}
STRATEGIES = {
    "downpour": StrategyChoice(kind="flat_ps"),
    "downpour k=2": StrategyChoice(kind="flat_ps", options={"every": 2}),
    "downpour k=3, two left": StrategyChoice(kind="flat_ps", options={"every": 3}),
    "easgd k=2": StrategyChoice(kind="flat_ps", options={"mode": "easgd", "every": 2}),
    "rows": StrategyChoice(kind="flat_ps", options={"pooling": "worker"}),
    "allreduce": StrategyChoice(kind="allreduce"),
    "allreduce rows": StrategyChoice(kind="allreduce", options={"pooling": "worker"}),
    "local steps": StrategyChoice(kind="localsgd", options={"every": 2, "switch": 1}),
    "local steps, rows": StrategyChoice(kind="localsgd", options={"every": 4, "pooling": "worker"}),
    "fr-easgd": StrategyChoice(
        kind="shadowsync",
        options={
            "algorithm": {"kind": "easgd", "central": "new"},
            "sync": "foreground",
            "every": 2,
        },
    ),
    **{
        f"fr-{name}": StrategyChoice(
            kind="shadowsync", options={"algorithm": name, "sync": "foreground", "every": 3}
        )
        for name in ("ma", "bmuf")
    },
    "cache": StrategyChoice(kind="scalefreectr", options={"cache_share": 1.0}),
    "small cache": StrategyChoice(kind="scalefreectr", options={"cache_rows": 140}),
    "no cache": StrategyChoice(kind="scalefreectr", options={"cache": False}),
}
SHADOWS = {
    f"s-{name}": StrategyChoice(kind="shadowsync", options={"algorithm": name})
    for name in ("easgd", "ma", "bmuf")
}
SHADOWS["s-easgd, no pause"] = StrategyChoice(kind="shadowsync", options={"gap": 0})
SHADOWS["s-easgd, thresholded"] = StrategyChoice(
    kind="shadowsync",
    options={"compression": {"kind": "dct", "density": 1.0, "refresh": 1}},
)
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
    ("one process", "fr-ma"),
    ("readers", "local steps"),
    ("no servers", "local steps, rows"),
    ("one process", "local steps"),
]
SHADOW_CASES = [
    ("servers", "s-easgd"),
    ("servers", "s-easgd, no pause"),
    ("servers", "s-ma"),
    ("servers", "s-easgd, thresholded"),
    ("readers", "s-bmuf"),
    ("no servers", "s-easgd"),
    ("one process", "s-ma"),
]


def make_plan(roles: Roles, choice: StrategyChoice, **execution: object) -> Plan:
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
        execution=Execution(**execution),
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
    figures = outcome.facts.cache
    assert figures is not None
    return figures.missed < figures.probed, figures.evicted > 0


def test_every_operation_has_a_cost_a_ghost_and_a_kernel() -> None:
    assert set(KERNELS) == set(OPS)
    assert set(GHOSTS) == set(OPERATIONS)
    assert set(OPERATIONS) <= set(OPS)


def test_every_effect_is_performed_in_both_worlds() -> None:
    performed = set(effects.EFFECTS) - {effects.Synced}
    assert set(SIMULATED) == set(EXECUTED) == performed


@pytest.mark.parametrize(("roles", "strategy"), CASES)
def test_same_effects_and_same_bytes(roles: str, strategy: str, tmp_path: Path) -> None:
    plan = make_plan(ROLES[roles], STRATEGIES[strategy])
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    assert predicted.facts.header_bytes == real.facts.header_bytes
    assert predicted.facts.cache == real.facts.cache
    if strategy == "small cache":
        assert turnover(real) == (True, True)
    if roles == "servers":
        assert sum(payload(real).values()) > 0


Round = tuple[tuple[str, str, int], ...]


def rounds_of(plan: Plan, outcome: Outcome) -> dict[str, list[Round]]:
    """(effect, name, payload bytes) of every round of every background loop, in order."""
    found: dict[str, dict[int, list[tuple[float, str, str, int]]]] = {
        loop.name: defaultdict(list) for loop in plan.background
    }
    ended = {(done.loop, done.iteration) for done in outcome.rounds}
    for span in outcome.spans:
        loop = f"{span.instance}.{span.loop}"
        if (loop, span.iteration) in ended:
            found[loop][span.iteration].append((span.start, span.effect, span.name, span.bytes))
    assert {(loop, n) for loop, rounds in found.items() for n in rounds} == ended
    return {
        loop: [tuple(s[1:] for s in sorted(rounds[n], key=lambda s: s[0])) for n in sorted(rounds)]
        for loop, rounds in found.items()
    }


@pytest.mark.parametrize(("roles", "strategy"), SHADOW_CASES)
def test_background_rounds_agree_one_by_one(roles: str, strategy: str, tmp_path: Path) -> None:
    """How many rounds there are is a matter of time; what one of them does and sends is not."""
    plan = make_plan(ROLES[roles], SHADOWS[strategy])
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    ours, theirs = rounds_of(plan, predicted), rounds_of(plan, real)
    assert ours.keys() == theirs.keys()
    assert len(ours) == plan.experiment.roles.trainers
    for loop in ours:
        assert set(ours[loop]) == set(theirs[loop])
        assert len(set(ours[loop])) == 1
    background = {loop.label for loop in plan.background}
    trained = [
        {key: value for key, value in sequences(outcome).items() if key[1] not in background}
        for outcome in (predicted, real)
    ]
    assert trained[0] == trained[1]
    # totals say the same, servers' share included: bytes of one round, and of one iteration
    names = {loop.name for loop in plan.background}
    sent = []
    for outcome in (predicted, real):
        beside = {i.loop: 0 for i in outcome.rounds}
        for done in outcome.rounds:
            beside[done.loop] += 1
        bytes_of = defaultdict(int)
        for key, total in outcome.totals.items():
            client = key.loop if key.effect.startswith("serve_") else f"{key.instance}.{key.loop}"
            share = beside[client] if client in names else 1
            assert total.bytes % share == 0
            if total.bytes:
                bytes_of[key.instance, key.loop, key.effect] += total.bytes // share
        sent.append(dict(bytes_of))
    assert sent[0] == sent[1]
    if roles != "one process":
        assert any(key[2] in ("exchange", "all_reduce", "push") for key in sent[0])


def test_the_comparison_of_bytes_can_fail(tmp_path: Path) -> None:
    plan = make_plan(ROLES["servers"], STRATEGIES["downpour"])
    wider = plan.experiment.model.model_copy(update={"embedding_dim": 8, "bottom_mlp": (8, 8)})
    other = plan.experiment.model_copy(update={"model": wider})
    real = execute(plan, staging=tmp_path)
    predicted = simulate(build_plan(other, other.strategies[0]), load_cluster(PROFILE, None))
    assert payload(predicted) != payload(real)
