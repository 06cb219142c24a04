"""What strategies with DCT ask for, effect by effect."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import (
    Experiment,
    Model,
    StrategyChoice,
    Table,
)
from recsim_train.placement.build import build_plan
from recsim_train.strategy.allreduce import AllReduceSGD
from recsim_train.strategy.base import EmbeddingService, Strategy
from recsim_train.strategy.compression import DCT, Compression, NoCompression
from recsim_train.strategy.effects import Compute, Effect, NextBatch
from recsim_train.strategy.flat_ps import FlatPS
from recsim_train.strategy.parts import parts, register_part
from recsim_train.strategy.registry import create
from recsim_train.strategy.values import Batch, Dense, Features, Gradients, Ids, Rows


def asked(strategy: Strategy, batches: int) -> list[str]:
    """Names of the effects and operations of one worker, in order."""
    program: Coroutine[Effect[Any], Any, None] = strategy.program("worker")
    found: list[str] = []
    answer: Any = None
    number = -1
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return found
        answer = Dense()
        if isinstance(effect, NextBatch):
            number += 1
            answer = Batch(4, Ids(), Features(), number) if number < batches else None
        elif isinstance(effect, Compute):
            found.append(effect.operation.name)
            if effect.operation.name == "forward_backward":
                answer = Gradients(Dense(), Rows())
        else:
            found.append(type(effect).__name__)


LEARN = ["Lookup", "forward_backward", "Update"]
FRESH, STALE = ["threshold", "sparsify"], ["sparsify"]


def test_downpour_sparsifies_each_push_and_renews_the_threshold_every_l() -> None:
    step = ["Pull", "load", *LEARN]
    wanted = [
        *step, *FRESH, "Push", *step, *STALE, "Push", *step, *STALE, "Push", *step, *FRESH, "Push",
    ]  # fmt: skip
    assert asked(FlatPS(compression=DCT(refresh=3, ramp=False)), 4) == wanted


def test_downpour_k_counts_pushes_not_iterations() -> None:
    found = asked(FlatPS(every=2, compression=DCT(refresh=2, ramp=False)), 8)
    ends = [i for i, name in enumerate(found) if name == "Push"]
    assert ["threshold" in found[max(0, i - 2) : i] for i in ends] == [True, False, True, False]


def test_all_reduce_gathers_what_is_left() -> None:
    exchange = ["sparsify", "AllGather", "densify", "apply"]
    found = asked(AllReduceSGD(compression=DCT(refresh=2)), 3)
    assert found == [
        *LEARN, "threshold", *exchange, *LEARN, "threshold", *exchange, *LEARN, "threshold",
        *exchange,
    ]  # fmt: skip


@pytest.mark.parametrize("compression", [NoCompression(), DCT(mode="mp")])
def test_without_dp_nothing_changes(compression: Compression) -> None:
    assert asked(FlatPS(compression=compression), 2) == asked(FlatPS(), 2)
    assert asked(AllReduceSGD(compression=compression), 2) == asked(AllReduceSGD(), 2)
    assert "Push" in asked(FlatPS(), 1)
    assert "AllReduce" in asked(AllReduceSGD(), 1)


def test_thresholds_are_renewed_at_powers_of_two_until_the_first_refresh() -> None:
    fresh = [n for n in range(41) if DCT(refresh=20).refreshes(n)]
    assert fresh == [0, 1, 2, 4, 8, 16, 20, 40]
    assert [n for n in range(41) if DCT(refresh=20, ramp=False).refreshes(n)] == [0, 20, 40]


@pytest.mark.parametrize(
    ("mode", "sparse", "keep"), [("dp", True, None), ("mp", False, 0.05), ("both", True, 0.05)]
)
def test_modes_reach_the_topology(mode: Any, sparse: bool, keep: float | None) -> None:
    for made, effect in (
        (FlatPS(compression=DCT(mode=mode)), "push"),
        (AllReduceSGD(compression=DCT(mode=mode)), "all_gather"),
    ):
        topology = made.topology(1)
        assert topology.thresholded == (effect if sparse else None)
        (embedding,) = [s for s in topology.services if isinstance(s, EmbeddingService)]
        assert embedding.keep == keep


def plan(kind: str, **options: Any) -> object:
    choice = StrategyChoice(kind=kind, options=options)
    model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=9),))
    return build_plan(Experiment(name="x", model=model, strategies=(choice,)), choice)


def test_what_does_not_fit_together_is_known_before_anything_starts() -> None:
    for algorithm in ("ma", "bmuf"):
        with pytest.raises(UserError, match=f"{algorithm} averages the parameters themselves"):
            plan("shadowsync", algorithm=algorithm, compression={"kind": "dct"})
    with pytest.raises(UserError, match="central new is unknown to a worker"):
        plan(
            "shadowsync",
            algorithm={"kind": "easgd", "central": "new"},
            compression={"kind": "dct"},
        )
    with pytest.raises(UserError, match=r"hierarchical composes compression\.mode mp only"):
        plan("hierarchical", hosts=1, compression={"kind": "dct"})
    assert plan("flat_ps", mode="easgd", compression={"kind": "dct"})
    assert plan("shadowsync", compression={"kind": "dct", "mode": "both"})
    for kind in ("flat_ps", "allreduce"):
        for mode in ("mp", "both"):
            part = {"kind": "dct", "mode": mode}
            with pytest.raises(UserError, match=f"{kind}: compression.mode {mode} masks pooled"):
                plan(kind, pooling="worker", compression=part)
    assert plan("flat_ps", mode="easgd", compression={"kind": "dct", "mode": "mp"})
    assert plan("allreduce", pooling="worker", compression={"kind": "dct"})


def test_a_part_of_a_third_party_is_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsim_train.strategy.parts._registered", {})

    class Mine(NoCompression):
        kind = "mine_for_this_test"

    register_part(Mine)
    assert parts("compression")["mine_for_this_test"] is Mine
    made = create(
        StrategyChoice(kind="flat_ps", options={"compression": {"kind": "mine_for_this_test"}})
    )
    assert isinstance(vars(made)["compression"], Mine)

    class Other(NoCompression):
        kind = "dct"

    with pytest.raises(ValueError, match="a compression named 'dct' exists already"):
        register_part(Other)
