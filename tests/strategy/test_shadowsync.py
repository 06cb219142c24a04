"""What ShadowSync asks for, effect by effect, without any world behind it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from recsim_train.strategy.base import Program
from recsim_train.strategy.effects import (
    Agree,
    AllReduce,
    Compute,
    Effect,
    Exchange,
    NextBatch,
    Put,
    Take,
)
from recsim_train.strategy.flat_ps import FlatPS
from recsim_train.strategy.shadowsync import ShadowSync
from recsim_train.strategy.values import Batch, Dense, Features, Gradients, Ids, Rows

LEARN = ["Lookup", "forward_backward", "Update", "apply"]


def loop(strategy: ShadowSync | FlatPS, name: str, threads: int = 1) -> Program:
    return next(made.program for made in strategy.topology(threads).loops if made.name == name)


def ask(
    program: Coroutine[Effect[Any], Any, None],
    *,
    batches: int = 0,
    agree: Sequence[bool] = (),
    take: Sequence[object] = (),
) -> list[Effect[Any]]:
    """Answer every effect; return all of them but NextBatch, in order."""
    asked: list[Effect[Any]] = []
    votes, items = iter(agree), iter(take)
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return asked
        if isinstance(effect, NextBatch):
            batches -= 1
            answer = Batch(4, Ids(), Features()) if batches >= 0 else None
            continue
        asked.append(effect)
        if isinstance(effect, Agree):
            answer = next(votes)
        elif isinstance(effect, Take):
            answer = next(items)
        elif isinstance(effect, Compute) and effect.operation.name == "forward_backward":
            answer = Gradients(Dense(), Rows())
        else:
            answer = Dense()


def names(effects: Sequence[Effect[Any]]) -> list[str]:
    return [e.operation.name if isinstance(e, Compute) else type(e).__name__ for e in effects]


@pytest.mark.parametrize("algorithm", ["easgd", "ma", "bmuf"])
def test_a_worker_of_shadow_mode_does_not_synchronise(algorithm: Any) -> None:
    strategy = ShadowSync(algorithm=algorithm)
    assert names(ask(loop(strategy, "worker")(), batches=3)) == LEARN * 3


ROUNDS = {
    "easgd": ["Agree", "snapshot", "Exchange", "subtract", "Synced"],
    "ma": ["Agree", "snapshot", "AllReduce", "interpolate", "Synced"],
    "bmuf": ["Agree", "snapshot", "AllReduce", "block_step", "interpolate", "Synced"],
}


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_shadow_goes_round_until_all_agree_and_once_more(algorithm: Any) -> None:
    strategy = ShadowSync(algorithm=algorithm, alpha=0.25, block_lr=0.5, block_momentum=0.75)
    asked = ask(loop(strategy, "shadow")(), agree=[False, False, True])
    assert names(asked) == ROUNDS[algorithm] * 3
    assert {e.group for e in asked if isinstance(e, AllReduce | Agree)} == (
        {None} if algorithm == "easgd" else {"trainers"}
    )
    shares = [e.arguments[1] for e in asked if isinstance(e, Compute) and len(e.arguments) == 2]
    assert shares == ([] if algorithm == "easgd" else [0.25, 0.25, 1.0])
    steps = [e.arguments[1:] for e in asked if isinstance(e, Compute) and len(e.arguments) == 3]
    assert steps == ([(0.5, 0.75)] * 3 if algorithm == "bmuf" else [])


def test_a_shadow_says_yes_when_all_its_workers_have_ended() -> None:
    strategy = ShadowSync()
    worker, shadow = (loop(strategy, name, threads=2) for name in ("worker", "shadow"))
    said = []
    for _ in range(3):
        first = ask(shadow(), agree=[True])[0]
        assert isinstance(first, Agree)
        said.append(first.yes)
        ask(worker(), batches=1)
    assert said == [False, False, True]


@pytest.mark.parametrize("central", ["old", "new"])
def test_foreground_easgd_is_the_same_as_that_of_flat_ps(central: Any) -> None:
    ours = ShadowSync(sync="foreground", every=2, alpha=0.25, central=central)
    theirs = FlatPS(mode="easgd", every=2, alpha=0.25)
    asked = [ask(loop(s, "worker")(), batches=5) for s in (ours, theirs)]
    assert names(asked[0]) == names(asked[1])
    exchanges = [e for e in asked[0] if isinstance(e, Exchange)]
    assert [(e.alpha, e.central) for e in exchanges] == [(0.25, central)] * 2
    assert [made.name for made in ours.topology(2).loops] == ["worker"]


@pytest.mark.parametrize("algorithm", ["ma", "bmuf"])
def test_foreground_averages_stop_all_workers(algorithm: Any) -> None:
    strategy = ShadowSync(algorithm=algorithm, sync="foreground", every=2)
    worker = ask(loop(strategy, "worker")(), batches=5, take=[None, None])
    stop = ["Put", "Take"]
    assert names(worker) == [*LEARN * 2, *stop, *LEARN * 2, *stop, *LEARN, "Put"]
    queues = [e.queue for e in worker if isinstance(e, Put | Take)]
    assert queues == ["stopped", "go, odd", "stopped", "go, even", "stopped"]
    # two threads: both stop, one ends, the other stops alone and ends; then the others are met
    stops = [True, True, False, True, False]
    meeting = ask(
        loop(strategy, "meeting", threads=2)(), agree=[False, False, False, True], take=stops
    )
    average = ROUNDS[algorithm][1:]
    assert names(meeting) == [
        "Agree", "Take", "Take", *average, "Put", "Put",
        "Agree", "Take", "Take", *average, "Put",
        "Agree", "Take", *average,
        "Agree", *average,
    ]  # fmt: skip
    assert [e.yes for e in meeting if isinstance(e, Agree)] == [False, False, False, True]


def test_only_elastic_averaging_needs_dense_servers() -> None:
    for algorithm, services in (("easgd", 2), ("ma", 1), ("bmuf", 1)):
        for sync in ("shadow", "foreground"):
            strategy = ShadowSync(algorithm=algorithm, sync=sync)  # type: ignore[arg-type]
            assert len(strategy.topology(3).services) == services


def test_the_evaluated_weights() -> None:
    assert names(ask(ShadowSync().finish())) == ["Pull", "load"]
    assert names(ask(ShadowSync(algorithm="ma").finish())) == []
