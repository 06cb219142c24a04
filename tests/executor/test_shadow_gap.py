"""Waiting for training's progress, in real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.executor.queues import QueueFeed, ThreadProgress
from recsim_train.executor.runtime import LoopContext, run_loop
from recsim_train.strategy.base import EmbeddingService, Loop, Topology
from recsim_train.strategy.effects import NextRound, Progress, batches
from recsim_train.strategy.values import Batch, Features, Ids
from tests.clock import LIMIT, until


def begun(body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


class Watched:
    """Two workers with a queue each and a shadow that awaits ``wanted`` counts, in threads."""

    def __init__(self, wanted: tuple[int, ...]) -> None:
        loops = Loop("worker", copies=2), Loop("shadow", consumes_batches=False)
        topology = Topology(loops=loops, services=(EmbeddingService(),))
        names = ("worker[0]", "worker[1]", "shadow[0]")
        progress = ThreadProgress(f"trainer[0].{name}" for name in names[:2])
        self.feeds = [QueueFeed(100, lambda: False) for _ in range(2)]
        self.answers: list[int] = []

        async def worker() -> None:
            async for _ in batches():
                pass

        async def shadow() -> None:
            await NextRound(last=True)
            for count in wanted:
                self.answers.append(await Progress(count))

        self.threads = []
        for number, name in enumerate(names):
            trains = number < 2
            context = LoopContext(
                instance="trainer[0]",
                label=name,
                definition=loops[not trains],
                topology=topology,
                worker=None,  # type: ignore[arg-type]  # nothing is computed
                feed=self.feeds[number] if trains else None,
                embedding=None,
                dense=None,
                collectives={},
                clock=time.monotonic,
                recorder=None,
                progress=progress,
            )
            program: Any = worker if trains else shadow
            self.threads.append(begun(lambda c=context, p=program: run_loop(c, p())))

    def give(self, worker: int, count: int) -> None:
        for _ in range(count):
            self.feeds[worker].put(Batch(1, Ids(), Features(), 0))

    def end(self, worker: int) -> None:
        self.feeds[worker].put(None)


def test_a_shadow_goes_on_after_so_many_iterations_of_all_workers() -> None:
    job = Watched((4, 8, 100))
    job.give(0, 3)
    time.sleep(0.05)
    assert job.answers == []
    job.give(1, 1)  # the fourth of both together
    until(lambda: job.answers == [4])
    job.give(1, 5)
    until(lambda: len(job.answers) == 2)
    assert 8 <= job.answers[1] <= 9
    job.end(0)
    time.sleep(0.05)
    assert len(job.answers) == 2  # the other one still trains
    job.end(1)
    until(lambda: job.answers[2:] == [9])
    for thread in job.threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_a_wait_for_what_is_already_done_returns_at_once() -> None:
    progress = ThreadProgress(["worker"])
    for _ in range(3):
        progress.ended()
    assert progress.wait(2) == progress.wait(3) == 3


def test_a_wait_ends_when_another_loop_has_failed() -> None:
    stopped = threading.Event()
    progress = ThreadProgress(["worker"], stopped.is_set)
    failed: list[Exception] = []

    def wait() -> None:
        with pytest.raises(TimeoutError, match="another loop of this process failed") as caught:
            progress.wait(1)
        failed.append(caught.value)

    thread = begun(wait)
    stopped.set()
    thread.join(LIMIT)
    assert len(failed) == 1


def test_who_waits_costs_nothing_meanwhile() -> None:
    """It sleeps until its count is there: no iteration before that wakes it up."""
    progress, cpu = ThreadProgress(["worker"]), []

    def wait() -> None:
        start = time.thread_time()
        progress.wait(100_000)
        cpu.append(time.thread_time() - start)

    thread = begun(wait)
    for _ in range(100_000):
        progress.ended()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert cpu[0] < 0.01
