"""DCT in both worlds: the same effects, the same bytes where k is known, and statistically where a
stale threshold lets through what the data decide."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

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
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import layout
from recsim_train.workload.graph import graph_of
from recsim_train.workload.shape import dense_tensors
from tests.simulated import simulate

PROFILE = str(Path(__file__).parents[2] / "tests" / "frozen-2core.yaml")
ROLES = {
    "servers": Roles(trainers=2, embedding_servers=2, dense_servers=1),
    "two dense servers": Roles(trainers=2, embedding_servers=1, dense_servers=2),
    "four dense servers": Roles(trainers=2, embedding_servers=1, dense_servers=4),
    "no servers": Roles(trainers=2),
    "one process": Roles(),
}


def make_plan(roles: Roles, kind: str, steps: int = 6, warmup: int = 2, **options: Any) -> Plan:
    choice = StrategyChoice(kind=kind, options=options)
    spec = Experiment(
        name="dct",
        model=Model(
            embedding_dim=8,
            bottom_mlp=(32, 8),
            top_mlp=(32, 1),
            tables=(
                Table(rows=4000),  # split by rows where there are two shards
                Table(rows=300, ids=3),
                Table(rows=70, ids=4, variable=True),
                Table(rows=90),
                Table(rows=50),
            ),
        ),
        data=Data(eval_rows=64, synthetic=Synthetic(rows=20_000)),
        roles=roles,
        training=Training(batch_size=32, threads=2, steps=steps, warmup_steps=warmup),
        placement=Placement(split_rows_above=0.9),
        simulation=Simulation(precision="0 %"),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def both(plan: Plan, folder: Path) -> tuple[Outcome, Outcome]:
    """(real, predicted)."""
    folder.mkdir(exist_ok=True)
    return execute(plan, staging=folder), simulate(plan, load_cluster(PROFILE, None))


def sequences(outcome: Outcome) -> dict[tuple[str, str], list[tuple[str, str, int]]]:
    found: dict[tuple[str, str], list[tuple[float, int, str, str]]] = defaultdict(list)
    for span in outcome.spans:
        if not span.effect.startswith("serve_") and span.iteration >= 0:
            found[span.instance, span.loop].append(
                (span.start, span.iteration, span.effect, span.name)
            )
    return {
        loop: [(effect, name, iteration) for _, iteration, effect, name in sorted(spans)]
        for loop, spans in found.items()
    }


def payload(outcome: Outcome) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    for key, total in outcome.totals.items():
        if total.bytes:
            found[key.instance, key.loop, key.effect] += total.bytes
    return dict(found)


def dct(**options: Any) -> dict[str, Any]:
    return {"kind": "dct", **options}


def counted(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {what: asdict(found) for what, found in outcome.facts.compression.items()}


COUNTED = {
    "dp": {"gradients"},
    "mp": {"activations", "activation_gradients"},
    "both": {"gradients", "activations", "activation_gradients"},
}
FRESH = {"density": "25 %", "refresh": 1}
CASES = [
    ("servers", "flat_ps", dct(mode="both", **FRESH)),
    ("servers", "flat_ps", dct(mode="mp", mp_density="20 %")),
    ("servers", "flat_ps", dct(mode="mp", mp_density="20 %", mask="sample")),
    ("servers", "allreduce", dct(mode="mp", mask="sample")),
    ("two dense servers", "flat_ps", dct(**FRESH)),
    ("four dense servers", "flat_ps", dct(**FRESH)),
    ("four dense servers", "flat_ps", dct(refresh=1, density="1 %")),
    ("no servers", "flat_ps", dct(mode="mp")),
    ("no servers", "allreduce", dct(mode="both", **FRESH)),
    ("one process", "flat_ps", dct(mode="both", **FRESH)),
    ("one process", "allreduce", dct(mode="both", **FRESH)),
]
ELASTIC = [
    ("servers", "flat_ps", {"mode": "easgd", "every": 2}, dct(mode="both", **FRESH)),
    ("two dense servers", "flat_ps", {"mode": "easgd"}, dct(**FRESH)),
    ("one process", "flat_ps", {"mode": "easgd", "every": 3}, dct(**FRESH)),
    ("servers", "shadowsync", {"sync": "foreground", "every": 2}, dct(**FRESH)),
]


@pytest.mark.parametrize(("roles", "kind", "compression"), CASES)
def test_same_effects_and_same_bytes_where_thresholds_are_fresh(
    roles: str, kind: str, compression: dict[str, Any], tmp_path: Path
) -> None:
    plan = make_plan(ROLES[roles], kind, compression=compression)
    real, predicted = both(plan, tmp_path)
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    found, assumed = counted(real), counted(predicted)
    assert found.keys() == assumed.keys() == COUNTED[compression.get("mode", "dp")]
    if "gradients" in found:
        # A first gradient may hold more zeros than the share leaves out: those are not sent.
        ours, theirs = found.pop("gradients"), assumed.pop("gradients")
        assert ours["values"] == theirs["values"]
        assert 0.9 * theirs["kept"] < ours["kept"] <= theirs["kept"]
    assert found == assumed
    if roles == "servers":
        plain, _ = both(make_plan(ROLES[roles], kind), tmp_path / "plain")
        assert sum(payload(real).values()) < sum(payload(plain).values())


@pytest.mark.parametrize(("roles", "kind", "options", "compression"), ELASTIC)
def test_differences_of_states_agree_too(
    roles: str,
    kind: str,
    options: dict[str, Any],
    compression: dict[str, Any],
    tmp_path: Path,
) -> None:
    plan = make_plan(ROLES[roles], kind, steps=12, compression=compression, **options)
    real, predicted = both(plan, tmp_path)
    assert sequences(predicted) == sequences(real)
    marks = [{sync[:2] for sync in outcome.syncs} for outcome in (real, predicted)]
    assert marks[0] == marks[1]
    every = options.get("every", 1)
    assert len(marks[0]) == len(plan.training) * (14 // every)
    found, assumed = counted(real), counted(predicted)
    wanted = COUNTED[compression.get("mode", "dp")] - {"gradients"} | {"differences"}
    assert found.keys() == assumed.keys() == wanted
    # Differences of replicas that have not learned anything at a place are zero: not sent. Rounded
    # differences of weights may tie at the threshold: then both pass.
    ours, theirs = found.pop("differences"), assumed.pop("differences")
    assert ours["values"] == theirs["values"]
    assert 0.9 * theirs["kept"] < ours["kept"] <= 1.001 * theirs["kept"]
    assert found == assumed
    push = ("trainer[0]", "worker[0]", "push")
    ours_sent, theirs_sent = payload(real).pop(push, 0), payload(predicted).pop(push, 0)
    assert 0.85 * theirs_sent <= ours_sent <= 1.001 * theirs_sent
    without = [
        {key: sent for key, sent in payload(outcome).items() if key[-1] != "push"}
        for outcome in (real, predicted)
    ]
    assert without[0] == without[1]


def test_a_shadows_rounds_agree_where_thresholds_are_fresh(tmp_path: Path) -> None:
    """How many rounds there are is a matter of time; what each does and sends is not."""
    plan = make_plan(ROLES["servers"], "shadowsync", compression=dct(**FRESH))
    real, predicted = both(plan, tmp_path)
    rounds = []
    for outcome in (real, predicted):
        (names,) = {
            tuple(name for _, name, number in effects if number == 0)
            for (_, loop), effects in sequences(outcome).items()
            if loop == "shadow[0]"
        }
        rounds.append(names)
        shadows = {sync.loop for sync in outcome.syncs}
        assert shadows == {"trainer[0].shadow[0]", "trainer[1].shadow[0]"}
    assert rounds[0] == rounds[1]
    assert "sparsify_difference" in rounds[0]
    assert set(counted(real)) == set(counted(predicted)) == {"differences"}


@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_same_effects_where_thresholds_are_stale(kind: str, tmp_path: Path) -> None:
    plan = make_plan(ROLES["servers"], kind, compression=dct(refresh=3))
    real, predicted = both(plan, tmp_path)
    assert sequences(predicted) == sequences(real)
    names = [name for _, name, _ in sequences(real)["trainer[0]", "worker[0]"]]
    assert names.count("threshold") == 5  # of exchanges 0, 1, 2, 3 and 6
    assert names.count("sparsify") == 8


def tolerance(plan: Plan, share: float, refresh: int, intervals: int) -> float:
    """How far the mean number of entries per exchange may be from k, under the assumption that
    sizes in residual + value are distributed as they were when the threshold was taken.

    Let K be the entries of one tensor, of N elements, that reach tau. At the exchange that takes
    tau K = k. At a later one, under the assumption, K / N is a second empirical tail of the same
    distribution, so that K - k is the difference of two tail counts of equal variance V; whatever
    their correlation, its standard deviation is at most 2 sqrt(V) (triangle inequality).

    V: a tensor's gradient is a sum of outer products, so entries of one row go together. In the
    worst case a row of c entries passes as one: V <= (N / c) c^2 p (1 - p) = N c p (1 - p), with
    c the longer side of the matrix.

    Tensors, and the refresh - 1 stale exchanges of an interval, may depend on each other in any
    way: their deviations add. Intervals, each with a threshold of its own, are independent: the
    deviation of their mean falls with the root of their number. The mean of many is normal; the
    bound holds with probability 99.9 %.
    """
    operators = graph_of(plan.experiment.model).operators
    sides = [max(o.parameters[0]) for o in operators if o.kind == "linear"]
    weights = dense_tensors(plan.experiment.model)[::2]
    assert [b - a for a, b in layout(plan.experiment.model).large] == weights[:3]
    each = sum(
        2 * sqrt(n * c * share * (1 - share)) for n, c in zip(weights[:3], sides, strict=False)
    )
    one_interval = each * (refresh - 1) / refresh
    return NormalDist().inv_cdf(1 - 0.001 / 2) * one_interval / sqrt(intervals)


def entries(outcome: Outcome, plan: Plan, effect: str) -> float:
    """Mean entries with a place of their own per exchange, from the payload."""
    sent = [total for key, total in outcome.totals.items() if key.effect == effect]
    each = sum(total.bytes for total in sent) / sum(total.count for total in sent)
    return (each - 4 * layout(plan.experiment.model).small_elements) / 8


STEPS, WARMUP, REFRESH, SHARE = 200, 20, 5, 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        pytest.param("flat_ps", "push", marks=pytest.mark.thorough),
        ("allreduce", "all_gather"),
    ],
)
def test_stale_thresholds_let_as_many_pass_as_assumed(
    kind: str, effect: str, tmp_path: Path
) -> None:
    """After 1 / density exchanges the residual has filled, and the assumption holds."""
    part = dct(density="25 %", refresh=REFRESH)
    plan = make_plan(ROLES["servers"], kind, STEPS, WARMUP, compression=part)
    real, predicted = both(plan, tmp_path)
    assumed = entries(predicted, plan, effect)
    assert assumed == layout(plan.experiment.model).kept(SHARE)
    limit = tolerance(plan, SHARE, REFRESH, len(plan.training) * STEPS // REFRESH)
    assert limit < assumed / 2
    assert abs(entries(real, plan, effect) - assumed) <= limit

    # a threshold that is taken once, from an empty residual, breaks the assumption
    part = dct(density="25 %", refresh=10_000, ramp=False)
    plan = make_plan(ROLES["servers"], kind, STEPS, WARMUP, compression=part)
    real, _ = both(plan, tmp_path / "once")
    assert abs(entries(real, plan, effect) - assumed) > limit
