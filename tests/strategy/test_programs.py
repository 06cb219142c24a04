"""What strategies ask for, effect by effect, without any world behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from typing import Any

import pytest

from recsim_train.config.validate import of_field
from recsim_train.strategy.allreduce import AllReduceSGD
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.effects import Compute, Effect, NextBatch
from recsim_train.strategy.flat_ps import FlatPS
from recsim_train.strategy.localsgd import LocalSGD
from recsim_train.strategy.options import option_schemas
from recsim_train.strategy.registry import create, register, schemas, strategies
from recsim_train.strategy.values import (
    Batch,
    Dense,
    Features,
    Gradients,
    Ids,
    OpaqueValueError,
    Rows,
)


def drive(program: Coroutine[Effect[Any], Any, None], batches: int) -> list[str]:
    """Answer every effect with empty values; return what was asked, in order."""
    asked: list[str] = []
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
        if isinstance(effect, Compute):
            asked.append(effect.operation.name)
            gradients = Gradients(Dense(), Rows())
            answer = gradients if effect.operation.name == "forward_backward" else Dense()
        else:
            asked.append(type(effect).__name__)
            answer = Dense()


def worker(strategy: Strategy) -> Coroutine[Effect[Any], Any, None]:
    return strategy.program("worker")


LEARN = ["Lookup", "forward_backward", "Update"]


def test_downpour_pulls_and_pushes_every_iteration() -> None:
    assert drive(worker(FlatPS()), 2) == ["Pull", "load", *LEARN, "Push"] * 2


def test_downpour_k_steps_locally_and_exchanges_each_kth_iteration() -> None:
    local = [*LEARN, "apply", "accumulate"]
    assert drive(worker(FlatPS(every=3)), 4) == [
        "Pull", "load", *local, *local, *local, "drain", "Push",
        "Pull", "load", *local, "drain", "Push",
    ]  # fmt: skip


def test_foreground_easgd_exchanges_each_kth_iteration() -> None:
    local = [*LEARN, "apply"]
    elastic = ["snapshot", "Exchange", "subtract", "Synced"]
    assert drive(worker(FlatPS(mode="easgd", every=2)), 3) == [*local, *local, *elastic, *local]


def test_worker_pooling_sends_unique_ids() -> None:
    assert drive(worker(FlatPS(pooling="worker")), 1)[2] == "deduplicate"


def test_allreduce_steps_on_the_mean_gradient() -> None:
    assert drive(worker(AllReduceSGD()), 1) == [*LEARN, "AllReduce", "apply"]


AVERAGED = ["snapshot", "AllReduce", "interpolate", "Synced"]


@pytest.mark.parametrize("left", [0, 1])
def test_local_sgd_averages_gradients_first_then_weights(left: int) -> None:
    """After the last batch what has been stepped since is averaged, if anything has."""
    shared, local = [*LEARN, "AllReduce", "apply", "Synced"], [*LEARN, "apply"]
    assert drive(worker(LocalSGD(every=2, switch=1)), 5 + left) == [
        *shared, *local, *local, *AVERAGED, *local, *local, *AVERAGED,
        *left * [*local, *AVERAGED],
    ]  # fmt: skip


def test_local_sgd_whose_steps_all_average_gradients_never_averages_weights() -> None:
    assert "snapshot" not in drive(worker(LocalSGD(switch=3)), 3)


@pytest.mark.parametrize(
    "look",
    [bool, float, int, len, list, lambda v: v > 0, lambda v: v == 0, lambda v: v[0]],
)
def test_values_refuse_to_be_looked_into(look: Any) -> None:
    with pytest.raises(OpaqueValueError, match="may not branch on a tensor"):
        look(Dense())


def test_options_are_the_dataclass_fields() -> None:
    found = option_schemas(FlatPS).model_fields
    assert list(found) == ["prefetch", "mode", "every", "alpha", "pooling", "compression"]
    assert of_field(found["mode"]).words == "one of 'downpour', 'easgd'"
    assert of_field(found["every"]).words == "an integer of at least 1"
    options = [option for kind in schemas().values() for option in kind.model_fields.values()]
    assert all(option.description for option in options)


def test_a_strategy_of_a_third_party_is_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsim_train.strategy.registry._registered", {})

    @dataclasses.dataclass
    class Mine(Strategy):
        kind = "mine_for_this_test"
        summary = "nothing"
        source = "this test"

    register(Mine)
    choice = dataclasses.make_dataclass("C", ["kind", "options"])("mine_for_this_test", {})
    assert isinstance(create(choice), Mine)
    assert "mine_for_this_test" in strategies()

    @dataclasses.dataclass
    class Other(Strategy):
        kind = "flat_ps"

    with pytest.raises(ValueError, match="exists already"):
        register(Other)
