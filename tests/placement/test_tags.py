"""The tagger's costs by hand, its choice beside all others, and what it says of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

import recsim_train
from recsim_train.config.cluster import ASSUMED_THREADS
from recsim_train.config.experiment import (
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.describe import describe, plan_document
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.workload.threads import GRAIN

ROOT = Path(__file__).parents[2]
FLOPS, BANDWIDTH, LATENCY = 8e10, 3.2e9, 1e-5
FEATURES, DIM, TABLES = 13, 4, 2
INTERACTION = DIM + 3  # pairs of three vectors
WIDTHS = {"bottom.0": DIM, "interaction": INTERACTION, "top.0": 512, "top.1": 256, "top.2": 1}
READS = {
    "bottom.0": ("features",),
    "interaction": ("bottom.0", "pooled"),
    "top.0": ("interaction",),
    "top.1": ("top.0",),
    "top.2": ("top.1",),
}
WEIGHTS = {
    "bottom.0": FEATURES * DIM,
    "top.0": INTERACTION * 512,
    "top.1": 512 * 256,
    "top.2": 256,
}
VALUES = {"features": FEATURES, "pooled": TABLES * DIM, **WIDTHS}


def plan_of(batch: int, trainers: int, threads: int = 1, **options: object) -> Plan:
    choice = StrategyChoice(
        kind="hierarchical",
        options={"flops": FLOPS, "bandwidth": BANDWIDTH, "latency": LATENCY, **options},
    )
    spec = Experiment(
        name="t",
        model=Model(
            embedding_dim=DIM,
            bottom_mlp=(DIM,),
            top_mlp=(512, 256, 1),
            tables=(Table(rows=100),) * TABLES,
        ),
        roles=Roles(trainers=trainers, embedding_servers=1, dense_servers=1),
        training=Training(batch_size=batch, threads=threads),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def net_of(plan: Plan) -> TaggedNet:
    assert isinstance(plan.net, TaggedNet)
    return plan.net


def on_threads(name: str, examples: int, seconds: float, threads: int) -> float:
    """The law written out: shares, and what waking takes for each operator that is divided."""
    if threads == 1:
        return seconds
    law, wide = ASSUMED_THREADS, WIDTHS[name]
    if name == "interaction":
        waked = 2 * (examples >= 128)  # forward and backward
        serial, works = law.pairs.serial, bool(waked)
    else:
        weights = WEIGHTS[name]
        works = wide > 1
        # one region forward, two for each gradient; features have none
        products = 3 if name == "bottom.0" else 5
        vectors = 1 if name == "top.2" else 3  # the bias, the ReLU and its gradient
        waked = products * works + vectors * (examples * wide > GRAIN)
        waked += (examples * wide >= GRAIN) + (weights > GRAIN)  # the bias' and weights' gradients
        serial = law.products.serial
    shared = seconds * (1 - serial) * (1 - 1 / threads) if works else 0.0
    return seconds - shared + waked * law.wake.wall


def by_hand(
    tags: Mapping[str, int], batch: int, hosts: int, groups: int, outer: str, every: int,
    threads: int = 1,
) -> dict[str, float]:  # fmt: skip
    """Seconds of an iteration. A tag of -1: every host. Messages are listed one by one."""
    place = {"features": -1, "pooled": -1, **tags, "loss": -1}
    reads = {**READS, "loss": ("top.2",)}
    level = {"features": 0, "pooled": 0}
    crossing: dict[int, dict[tuple[str, int], None]] = {}
    for name, values in reads.items():
        level[name] = max(level[v] + (place[v] != place[name]) for v in values)
        for v in values:
            if place[v] != place[name]:
                crossing.setdefault(level[v], {})[v, place[name]] = None
    work: dict[tuple[int, int], float] = {}
    for name, tag in tags.items():
        each = 6 * WEIGHTS.get(name, 0) * batch
        if name == "interaction":
            each = 6 * 3 * 3 * DIM * batch
        for host in range(hosts):
            if tag in (-1, host):
                at, of = (level[name], host), 1 if tag == -1 else hosts
                took = on_threads(name, of * batch, of * each / FLOPS, threads)
                work[at] = work.get(at, 0) + took
    last = level["loss"]
    arithmetic = sum(max(work.get((n, h), 0) for h in range(hosts)) for n in range(last + 1))
    cuts = 0.0
    for n in range(last):
        traffic = {(h, way): 0 for h in range(hosts) for way in ("out", "in")}
        for v, target in crossing.get(n, {}):
            one = 4 * VALUES[v] * batch
            pairs = []
            if place[v] == -1:
                pairs = [(h, target, one) for h in range(hosts)]
            elif target == -1:
                pairs = [(place[v], h, one) for h in range(hosts)]
            else:
                pairs = [(place[v], target, one * hosts)]
            for a, b, size in pairs:
                if a != b:
                    traffic[a, "out"] += size
                    traffic[b, "in"] += size
        cuts += 2 * (LATENCY + max(traffic.values()) / BANDWIDTH)  # and the same way back
    elements = {name: WEIGHTS[name] + WIDTHS[name] for name in WEIGHTS}
    shared = sum(size for name, size in elements.items() if tags[name] == -1)
    own = [sum(size for n, size in elements.items() if tags[n] == h) for h in range(hosts)]
    carried = 4 * shared * (2 if outer != "none" else 1)
    gradients = 0.0
    if shared:
        gradients = 2 * (hosts - 1) * LATENCY + 2 * (hosts - 1) / hosts * carried / BANDWIDTH
    bounds = [shared * h // hosts for h in range(hosts + 1)]
    answered = 4 * max(own[h] + bounds[h + 1] - bounds[h] for h in range(hosts))
    beyond = 0.0
    if outer == "easgd":
        beyond = 2 * (LATENCY + answered / BANDWIDTH) / every
    elif outer == "ma":
        beyond = 2 * (groups - 1) * (LATENCY + answered / groups / BANDWIDTH) / every
    return {
        "arithmetic": arithmetic,
        "cuts": cuts,
        "gradients": gradients,
        "outer": beyond,
    }


PINS = "bottom.0=dp, interaction=dp, top.0=1, top.1=0, top.2=dp"
CHOSEN = {"bottom.0": -1, "interaction": -1, "top.0": 1, "top.1": 0, "top.2": -1}
ALL_DP = dict.fromkeys(CHOSEN, -1)


@pytest.mark.parametrize(("outer", "trainers"), [("none", 2), ("easgd", 4), ("ma", 6)])
def test_costs_are_those_written_out(outer: str, trainers: int) -> None:
    plan = plan_of(24, trainers, hosts=2, tags=PINS, outer=outer, every=3)
    choice = net_of(plan).choice
    assert choice is not None
    assert choice.cut is not None
    for tags, found in ((ALL_DP, choice.data_parallel), (CHOSEN, choice.cut)):
        expected = by_hand(tags, 24, 2, trainers // 2, outer, 3)
        assert asdict(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("threads", [2, 8])
def test_costs_on_threads_are_those_written_out(threads: int) -> None:
    for batch in (24, 128, 3000):
        choice = net_of(
            plan_of(batch, 4, threads, hosts=2, tags=PINS, outer="easgd", every=3)
        ).choice
        assert choice is not None
        assert choice.cut is not None
        for tags, found in ((ALL_DP, choice.data_parallel), (CHOSEN, choice.cut)):
            expected = by_hand(tags, batch, 2, 2, "easgd", 3, threads)
            assert asdict(found) == pytest.approx(expected, rel=1e-12)


def test_threads_make_a_cut_worth_it_for_larger_batches() -> None:
    """An operator at one host costs more arithmetic and saves messages; threads make arithmetic
    cheaper, and messages not."""
    largest = []
    for threads in (1, 2, 32):
        nets = {b: net_of(plan_of(b, 2, threads, hosts=2)) for b in (12, 24, 48, 96)}
        largest.append(max(b for b, net in nets.items() if net.model_parallel))
    assert largest == [12, 24, 48]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("batch", [4, 12, 24, 48, 200])
@pytest.mark.parametrize("outer", ["none", "easgd"])
def test_no_other_tags_are_cheaper(batch: int, outer: str, threads: int) -> None:
    """All 3^5 of them, priced by hand."""
    groups = 1 if outer == "none" else 2
    net = net_of(plan_of(batch, 2 * groups, threads, hosts=2, outer=outer, every=1))
    prices = {
        tags: sum(
            by_hand(
                dict(zip(WIDTHS, tags, strict=True)), batch, 2, groups, outer, 1, threads
            ).values()
        )
        for tags in itertools.product((-1, 0, 1), repeat=len(WIDTHS))
    }
    chosen = tuple(net.tags[name] for name in WIDTHS)
    assert prices[chosen] == pytest.approx(min(prices.values()), rel=1e-9)


def test_what_must_be_synchronised_decides() -> None:
    """A shared layer's gradients are summed in the group, and carry other groups' moves with them;
    so the same net is worth cutting in several groups and not in one."""
    one = net_of(plan_of(24, 2, hosts=2, outer="none"))
    several = net_of(plan_of(24, 4, hosts=2, outer="easgd"))
    assert not one.model_parallel
    assert "top.1" in several.model_parallel


def test_a_dry_run_says_how_much_is_cut_and_why() -> None:
    text = describe(plan_of(24, 2, hosts=2, tags=PINS))
    assert "2 of 5 operators are model-parallel, cut at 3 edges" in text
    expected = {
        name: by_hand(tags, 24, 2, 1, "none", 1) for name, tags in (("cut", CHOSEN), ("dp", ALL_DP))
    }
    total = {name: f"{sum(parts.values()) * 1e3:.3g} ms" for name, parts in expected.items()}
    assert f"as tagged (5 pinned): {total['cut']} (" in text
    assert f"all data-parallel: {total['dp']} (" in text


def test_a_net_without_a_cut_is_a_note() -> None:
    plan = plan_of(200, 2, hosts=2)
    (note,) = (n for n in plan.notes if "parallel" in n)
    assert note == (
        "hierarchical is data parallelism only: no operator of a group of 2 hosts is "
        "model-parallel, so nothing is cut"
    )
    assert "with the cheapest cut that was tried: " in describe(plan)
    alone = plan_of(4, 2, hosts=1)
    assert any("a group is one host" in note for note in alone.notes)
    cut = plan_of(4, 2, hosts=2)
    assert not any("data parallelism only" in note for note in cut.notes)
    net = plan_document(cut)["net"]
    assert isinstance(net, dict)
    assert net["caution"] == ""
    assert net["model_parallel"]


def cut_plans(path: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every hierarchical plan of an experiment with groups of several hosts, if it is cut."""
    monkeypatch.chdir(ROOT)
    plans = recsim_train.load(path).plans
    nets = [p.net for p in plans if p.strategy.kind == "hierarchical"]
    return [bool(net.model_parallel) for net in nets if isinstance(net, TaggedNet)]


def test_shipped_experiments_cut_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(cut_plans("experiments/hierarchical.yaml", monkeypatch))
    assert len(cut_plans("experiments/hierarchical.yaml", monkeypatch)) >= 3
    assert any(cut_plans("experiments/all_strategies.yaml", monkeypatch))
