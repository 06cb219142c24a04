"""The three loops of ScaleFreeCTR, effect by effect, without any world behind them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from recsim_train.strategy.effects import (
    END,
    AllReduce,
    Close,
    Compute,
    Effect,
    NextBatch,
    NextItem,
    Put,
    Take,
)
from recsim_train.strategy.scalefreectr import ScaleFreeCTR
from recsim_train.strategy.values import (
    Batch,
    Dense,
    Features,
    Gradients,
    Ids,
    Parts,
    Probe,
    Rows,
    Slots,
)

BATCH = Batch(4, Ids(), Features(), 0)
RESULTS: dict[str, object] = {
    "virtual_ids": Ids(),
    "probe": Probe(Slots(), Ids()),
    "forward_backward": Gradients(Dense(), Rows()),
}


def drive(program: Coroutine[Effect[Any], Any, None], items: dict[str, list[object]]) -> list[str]:
    """What a loop asks for, in order; ``items``: what it finds in its queues."""
    asked: list[str] = []
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return asked
        answer = Rows()
        match effect:
            case NextBatch():
                answer = items["reader"].pop(0)
            case Take() | NextItem():
                answer = items[effect.queue].pop(0)
                asked.append(f"Take {effect.queue}")
            case Put():
                asked.append(f"Put {effect.queue}")
            case Close():
                asked.append(f"Close {effect.queue}")
            case Compute():
                asked.append(effect.operation.name)
                answer = RESULTS.get(effect.operation.name, Rows())
            case AllReduce():
                asked.append(f"AllReduce {effect.op} {type(effect.value).__name__}")
                answer = effect.value
            case _:
                asked.append(type(effect).__name__)
                answer = Parts() if asked[-1] == "AllGather" else Rows()


def test_the_loader_turns_ids_into_virtual_ones_of_the_global_batch() -> None:
    assert drive(ScaleFreeCTR().loader(), {"reader": [BATCH, None]}) == [
        "row_numbers", "AllGather", "virtual_ids", "Put virtual", "Close virtual",
    ]  # fmt: skip


PREPARE = ["probe", "Fetch", "fill", "Store", "Put ready"]


@pytest.mark.parametrize(("cache", "ahead"), [(True, 2), (False, 1)])
def test_the_manager_waits_for_the_step_whose_rows_may_leave(cache: bool, ahead: int) -> None:
    found = drive(
        ScaleFreeCTR(cache=cache).manager(),
        {"virtual": [*[(BATCH, Ids())] * 4, END], "done": [True] * 4},
    )
    free = ["Take virtual", *PREPARE] * ahead
    waiting = ["Take virtual", "Take done", *PREPARE] * (4 - ahead)
    assert found == [*free, *waiting, "Take virtual", "Close ready"]


LEARN = ["cached_rows", "AllReduce sum Rows", "forward_backward", "AllReduce mean Rows"]
STEP = ["AllReduce mean Dense", "apply"]


def test_the_worker_steps_on_the_sum_of_all_caches_and_writes_back_at_the_end() -> None:
    assert drive(ScaleFreeCTR().worker(), {"ready": [(BATCH, Slots()), END]}) == [
        "Take ready", *LEARN, "update_cached", "Put done", *STEP, "Take ready", "flush", "Store",
    ]  # fmt: skip


def test_without_a_cache_the_worker_writes_back_before_the_next_fetch() -> None:
    assert drive(ScaleFreeCTR(cache=False).worker(), {"ready": [(BATCH, Slots()), END]}) == [
        "Take ready", *LEARN, "update_cached", "flush", "Store", "Put done", *STEP, "Take ready",
    ]  # fmt: skip
