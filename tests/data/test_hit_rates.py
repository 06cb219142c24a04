"""Hit rates of `data describe` are those of a run; the replay repeats itself where it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsim_train.config.errors import UserError
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
from recsim_train.data import replay as replays
from recsim_train.data.mixcache import CacheTooSmall
from recsim_train.data.profile import hit_rates, profile_stream
from recsim_train.data.replay import FewerCaches, Replay, check_cache
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan

MODEL = Model(
    embedding_dim=4,
    bottom_mlp=(8, 4),
    top_mlp=(8, 1),
    tables=(
        Table(rows=3000),
        Table(rows=40),
        Table(rows=500, ids=3),
        Table(rows=90, ids=2, variable=True),
    ),
)
DATA = Data(synthetic=Synthetic(rows=5000), eval_rows=10)
BATCHES = 40


def plan_of(
    trainers: int = 1,
    batch: int = 64,
    *,
    rows: int = 4990,
    warmup: int = BATCHES // 2,
    steps: int | None = None,
    **options: object,
) -> Plan:
    choice = StrategyChoice(kind="scalefreectr", options=options)
    data = Data(synthetic=Synthetic(rows=rows + DATA.eval_rows), eval_rows=DATA.eval_rows)
    spec = Experiment(
        name="rates",
        model=MODEL,
        data=data,
        roles=Roles(trainers=trainers, embedding_servers=2),
        training=Training(batch_size=batch, steps=steps or BATCHES - warmup, warmup_steps=warmup),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def test_a_profiled_hit_rate_is_that_of_the_run() -> None:
    found: Any = profile_stream(MODEL, DATA, 64, BATCHES)["cache"]
    sizes = found["sizes"]
    rates = [size["hit_rate"] for size in sizes]
    assert rates == sorted(rates)
    assert 0.1 < rates[0] < rates[-1] < 1.0
    for size in sizes[:3]:
        replay = Replay(plan_of(cache_rows=size["cache_rows"]))
        figures = replay.figures(BATCHES - BATCHES // 2, BATCHES)
        assert figures.hit_rate == pytest.approx(size["hit_rate"], abs=1e-4)


def test_the_smallest_working_cache_is_what_two_batches_need() -> None:
    found: Any = profile_stream(MODEL, DATA, 64, BATCHES)["cache"]
    need = found["two_steps"]
    assert Replay(plan_of(cache_rows=need)).figures(0, BATCHES).hit_rate is not None
    with pytest.raises(CacheTooSmall, match=f"at least {need:,}"):
        Replay(plan_of(cache_rows=need - 1)).figures(0, BATCHES)


def test_a_size_that_two_batches_overflow_has_no_rate() -> None:
    sizes: Any = hit_rates(MODEL, map(np.arange, (10, 10, 10, 40)))["sizes"]
    assert [(s["cache_rows"], s["hit_rate"]) for s in sizes[:3]] == [
        (11, None),
        (22, None),
        (44, 0.4),
    ]


def test_a_replay_cut_short_repeats_its_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Replay(plan_of(trainers=2, batch=32, cache_rows=400))
    monkeypatch.setattr(replays, "_REPLAYED_IDS", 1)
    short = Replay(plan_of(trainers=2, batch=32, cache_rows=400))
    assert (whole.complete, short.complete) == (True, False)
    assert [short.step(i) for i in range(4)] == [whole.step(i) for i in range(4)]
    assert [short.step(i) for i in (4, 5, 6)] == [short.step(i) for i in (2, 3, 2)]
    assert "first 4 steps" in short.warnings(2)[0]


def test_of_fewer_trainers_there_are_some_of_all() -> None:
    whole = Replay(plan_of(trainers=6, batch=32, cache_share=1.0))
    some = FewerCaches(whole, 2)
    assert some.slots == (whole.slots[0], whole.slots[3])
    step = whole.step(2)
    assert some.step(2).trainers == (step.trainers[0], step.trainers[3])
    assert some.step(2).unique == step.unique
    assert some.figures(0, 3).probed < whole.figures(0, 3).probed


def test_what_two_trainers_own_adds_up_to_the_union() -> None:
    replay = Replay(plan_of(trainers=2, batch=32, cache_share=1.0))
    for index in range(5):
        step = replay.step(index)
        assert sum(t.owned for t in step.trainers) == step.unique <= step.ids
        assert all(len(t.missing) == 2 for t in step.trainers)
        before = replay.step(index - 1).trainers if index else None
        for k, t in enumerate(step.trainers):
            assert sum(t.kept) == sum(t.missing) + (sum(before[k].kept) if before else 0)


def test_a_cache_that_can_not_start_is_the_users_error() -> None:
    check_cache(plan_of(cache_share=1.0))
    replay = Replay(plan_of(), roomy=True)
    needed = sum(replay.step(1).trainers[0].kept)
    check_cache(plan_of(cache_rows=needed))
    with pytest.raises(UserError, match=rf"cache of {needed - 1} rows .* need {needed} rows"):
        check_cache(plan_of(cache_rows=needed - 1))
