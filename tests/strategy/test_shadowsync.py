"""What ShadowSync asks for, effect by effect, without any world behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recsim_train.strategy.base import Place, Program
from recsim_train.strategy.effects import (
    AllReduce,
    Barrier,
    Compute,
    Effect,
    Exchange,
    NextBatch,
    NextRound,
    Progress,
)
from recsim_train.strategy.flat_ps import FlatPS
from recsim_train.strategy.hierarchical import Hierarchical
from recsim_train.strategy.shadowsync import ShadowSync
from recsim_train.strategy.synchronisers import Bmuf, Easgd, ModelAveraging
from recsim_train.strategy.values import Batch, Dense, Features, Gradients, Ids, Rows

LEARN = ["Lookup", "forward_backward", "Update", "apply"]


KINDS = {"easgd": Easgd, "ma": ModelAveraging, "bmuf": Bmuf}


def loop(strategy: ShadowSync | FlatPS, name: str, threads: int = 1) -> Program:
    strategy.place = Place(threads=threads)
    assert name in {made.name for made in strategy.topology(threads).loops}
    return strategy.program(name)


def ask(
    program: Program,
    *,
    batches: int = 0,
    last: Sequence[bool] = (),
    present: Sequence[int] = (),
    reached: Sequence[int] = (),
) -> list[Effect[Any]]:
    """Answer every effect; return all of them but NextBatch, in order."""
    asked: list[Effect[Any]] = []
    votes, members, ended = iter(last), iter(present), iter(reached)
    answer: Any = None
    number = -1
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return asked
        if isinstance(effect, NextBatch):
            number += 1
            answer = Batch(4, Ids(), Features(), number) if number < batches else None
            continue
        asked.append(effect)
        if isinstance(effect, NextRound):
            answer = next(votes)
        elif isinstance(effect, Barrier):
            answer = next(members)
        elif isinstance(effect, Progress):
            answer = next(ended, 0)
        elif isinstance(effect, Compute) and effect.operation.name == "forward_backward":
            answer = Gradients(Dense(), Rows())
        else:
            answer = Dense()


def names(effects: Sequence[Effect[Any]]) -> list[str]:
    return [e.operation.name if isinstance(e, Compute) else type(e).__name__ for e in effects]


@pytest.mark.parametrize("algorithm", ["easgd", "ma", "bmuf"])
def test_a_worker_of_shadow_mode_does_not_synchronise(algorithm: Any) -> None:
    strategy = ShadowSync(algorithm=KINDS[algorithm]())
    assert names(ask(loop(strategy, "worker"), batches=3)) == LEARN * 3


ROUNDS = {
    "easgd": ["NextRound", "snapshot", "Exchange", "subtract", "Synced"],
    "ma": ["NextRound", "snapshot", "AllReduce", "interpolate", "Synced"],
    "bmuf": ["NextRound", "snapshot", "AllReduce", "block_step", "interpolate", "Synced"],
}


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_shadow_goes_round_until_all_agree_and_once_more(algorithm: Any) -> None:
    block = {"block_lr": 0.5, "block_momentum": 0.75} if algorithm == "bmuf" else {}
    strategy = ShadowSync(algorithm=KINDS[algorithm](alpha=0.25, **block), gap=0)
    asked = ask(loop(strategy, "shadow"), last=[False, False, True])
    assert names(asked) == ROUNDS[algorithm] * 3
    assert {e.group for e in asked if isinstance(e, AllReduce | NextRound)} == (
        {None} if algorithm == "easgd" else {"trainers"}
    )
    shares = [e.arguments[1] for e in asked if isinstance(e, Compute) and len(e.arguments) == 2]
    assert shares == ([] if algorithm == "easgd" else [0.25, 0.25, 1.0])
    steps = [e.arguments[1:] for e in asked if isinstance(e, Compute) and len(e.arguments) == 3]
    assert steps == ([(0.5, 0.75)] * 3 if algorithm == "bmuf" else [])


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_shadow_awaits_the_gap_after_each_round(algorithm: Any) -> None:
    """Of two threads together, from what they had done when the last wait was over."""
    strategy = ShadowSync(algorithm=KINDS[algorithm](), gap=3)
    asked = ask(
        loop(strategy, "shadow", threads=2), last=[False, False, False, True], reached=[6, 20, 26]
    )
    assert names(asked) == [*ROUNDS[algorithm], "Progress"] * 4
    assert [e.iterations for e in asked if isinstance(e, Progress)] == [6, 12, 26, 32]


def test_the_gap_by_default_is_below_the_foregrounds() -> None:
    assert ShadowSync().gap == Hierarchical().gap == 4 < ShadowSync().every


def test_a_shadow_says_yes_when_all_its_workers_have_ended() -> None:
    strategy = ShadowSync()
    said = []
    for _ in range(3):
        first = ask(loop(strategy, "shadow", threads=2), last=[True])[0]
        assert isinstance(first, NextRound)
        said.append(first.last)
        ask(loop(strategy, "worker", threads=2), batches=1)
    assert said == [False, False, True]


@pytest.mark.parametrize("central", ["old", "new"])
def test_foreground_easgd_is_the_same_as_that_of_flat_ps(central: Any) -> None:
    ours = ShadowSync(sync="foreground", every=2, algorithm=Easgd(alpha=0.25, central=central))
    theirs = FlatPS(mode="easgd", every=2, alpha=0.25)
    asked = [ask(loop(s, "worker"), batches=5) for s in (ours, theirs)]
    assert names(asked[0]) == names(asked[1])
    exchanges = [e for e in asked[0] if isinstance(e, Exchange)]
    assert [(e.alpha, e.central) for e in exchanges] == [(0.25, central)] * 2
    assert [made.name for made in ours.topology(2).loops] == ["worker"]


@pytest.mark.parametrize("algorithm", ["ma", "bmuf"])
def test_foreground_averages_stop_all_workers(algorithm: Any) -> None:
    strategy = ShadowSync(algorithm=KINDS[algorithm](), sync="foreground", every=2)
    worker = ask(loop(strategy, "worker"), batches=5, present=[1] * 4)
    stop = ["Barrier", "Barrier"]
    assert names(worker) == [*LEARN * 2, *stop, *LEARN * 2, *stop, *LEARN]
    # two threads: both stop, one ends, the other stops alone and ends; then the others are met
    meeting = ask(
        loop(strategy, "meeting", threads=2),
        last=[False, False, False, True],
        present=[3, 3, 2, 2, 1, 1, 1, 1],
    )
    average = ROUNDS[algorithm][1:]
    assert names(meeting) == ["NextRound", "Barrier", *average, "Barrier"] * 4
    assert [e.last for e in meeting if isinstance(e, NextRound)] == [False, False, False, True]


def test_only_elastic_averaging_needs_dense_servers() -> None:
    for algorithm, services in (("easgd", 2), ("ma", 1), ("bmuf", 1)):
        for sync in ("shadow", "foreground"):
            strategy = ShadowSync(algorithm=KINDS[algorithm](), sync=sync)
            assert len(strategy.topology(3).services) == services


def test_the_evaluated_weights() -> None:
    assert names(ask(ShadowSync().finish())) == ["Pull", "load"]
    assert names(ask(ShadowSync(algorithm=ModelAveraging()).finish())) == []
