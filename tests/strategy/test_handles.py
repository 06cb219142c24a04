"""Started requests: what a loop may do with handles, in whichever world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recsim_train.strategy.base import EMBEDDING, TRAINERS, EmbeddingService, Group, Loop, Topology
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.driver import Driver
from recsim_train.strategy.effects import (
    AllReduce,
    Compute,
    Effect,
    Handle,
    Lookup,
    NextBatch,
    Now,
    Pull,
    Start,
    Wait,
)
from recsim_train.strategy.operations import SNAPSHOT
from recsim_train.strategy.values import Dense, Ids, Rows

TOPOLOGY = Topology((Loop("worker"),), (EmbeddingService(),), (Group(TRAINERS, "worker"),))


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.did_: list[tuple[str, str, int, float, float, int, int]] = []

    def begins(self, iteration: int, now: float) -> None: ...

    def ends(self, iteration: int, began: float, now: float) -> None: ...

    def over(self) -> None: ...

    def synced(self, iteration: int, now: float) -> None: ...

    def did(
        self,
        effect: Effect[Any],
        iteration: int,
        began: float,
        now: float,
        sent: int,
        number: int = 0,
    ) -> None:
        self.did_.append((effect.kind, effect.about, iteration, began, now, sent, number))


def drive(worker: Callable[[], Awaitable[None]], waits: list[str] | None = None) -> Heard:
    """Every effect takes a second; a lookup sends 7 bytes and brings rows."""
    seconds = 0.0
    heard = Heard()

    async def program() -> None:
        await worker()

    loop = TOPOLOGY.loops[0]
    driver = Driver("w", loop, TOPOLOGY, program(), lambda: seconds, heard)
    while (effect := driver.next()) is not None:
        if waits is not None:
            waits.append(driver.waiting)
        seconds += 1.0
        if isinstance(effect, Wait):
            driver.answered(*effect.handle.under_way)
        elif isinstance(effect, Start):
            driver.answered((Rows(), 7))
        else:
            driver.answered(object(), 7 if isinstance(effect, Lookup) else 0)
    return heard


def line(text: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        (number,) = [n for n, read in enumerate(file, 1) if read.rstrip().endswith(f"# {text}")]
    return f"test_handles.py:{number}"


async def start() -> Handle[Rows]:
    return await Start(Lookup(EMBEDDING, Ids()))  # start


def test_a_started_request_is_recorded_beside_the_loop_from_start_to_wait() -> None:
    async def worker() -> None:
        await NextBatch()
        first = await start()
        second = await start()
        await NextBatch()
        rows: Rows = await Wait(first)
        third = await Start(Lookup(EMBEDDING, Ids()))
        assert isinstance(rows, Rows)
        await Wait(third)
        await Wait(second)

    did = drive(worker).did_
    assert [d for d in did if d[-1] == 0] == [
        ("next_batch", "reader", 0, 0.0, 1.0, 0, 0),
        ("start", "lookup", 0, 1.0, 2.0, 0, 0),
        ("start", "lookup", 0, 2.0, 3.0, 0, 0),
        ("next_batch", "reader", 1, 3.0, 4.0, 0, 0),
        ("wait", "lookup", 1, 4.0, 5.0, 0, 0),
        ("start", "lookup", 1, 5.0, 6.0, 0, 0),
        ("wait", "lookup", 1, 6.0, 7.0, 0, 0),
        ("wait", "lookup", 1, 7.0, 8.0, 0, 0),
    ]
    assert [d for d in did if d[-1]] == [  # the lowest lane that is free
        ("lookup", EMBEDDING, 0, 1.0, 5.0, 7, 1),
        ("lookup", EMBEDDING, 1, 5.0, 7.0, 7, 1),
        ("lookup", EMBEDDING, 0, 2.0, 8.0, 7, 2),
    ]


def test_who_waits_for_a_started_request_says_where_it_was_started() -> None:
    async def worker() -> None:
        handle = await start()
        await Wait(handle)  # the wait

    waits: list[str] = []
    drive(worker, waits)
    assert waits[1] == f"wait for the Lookup started at {line('start')}, at {line('the wait')}"


async def twice() -> None:
    handle = await start()
    await Wait(handle)
    await Wait(handle)  # twice


async def no_handle() -> None:
    await Wait(Rows())  # type: ignore[arg-type]  # no handle


async def no_request() -> None:
    await Start(Now())  # type: ignore[arg-type]  # no request


async def computes() -> None:
    await Start(Compute(SNAPSHOT))  # type: ignore[arg-type]  # computes


async def meets() -> None:
    await Start(AllReduce(Dense(), TRAINERS))  # type: ignore[arg-type]  # meets


async def no_service() -> None:
    await Start(Pull("dense"))  # no service


async def left() -> None:
    await start()


KINDS = "Start needs a request to a service (Lookup, Update, Fetch, Store, Pull, Push, Exchange)"


@pytest.mark.parametrize(
    ("worker", "where", "says"),
    [
        (twice, "twice", "ValueError: the Lookup started at {} has been waited for already"),
        (no_handle, "no handle", "TypeError: Wait needs a Handle, which Start answers with, not"),
        (no_request, "no request", f"TypeError: {KINDS}, not Now"),
        (computes, "computes", f"TypeError: {KINDS}, not Compute"),
        (meets, "meets", f"TypeError: {KINDS}, not AllReduce"),
        (no_service, "no service", "KeyError: \"Pull: the strategy's topology gives loop 'worker'"),
    ],
)
def test_misuse_names_the_line(worker: Any, where: str, says: str) -> None:
    with pytest.raises(StrategyError) as caught:
        drive(worker)
    said = f"w failed at {line(where)}: {says.replace('{}', line('start'))}"
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_handle_of_another_loop_is_refused() -> None:
    async def other() -> None:
        kept.append(await start())
        await Wait(kept[0])

    async def worker() -> None:
        await start()
        await Wait(kept[0])

    kept: list[Handle[Rows]] = []
    drive(other)
    with pytest.raises(StrategyError, match="or is another loop's"):
        drive(worker)


def test_a_request_that_nobody_waits_for_is_an_error() -> None:
    with pytest.raises(StrategyError) as caught:
        drive(left)
    assert str(caught.value) == f"w never waits for the Lookup started at {line('start')}"
