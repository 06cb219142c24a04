"""Gradients of several trainers that make one update at a shard."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recsim_train.config.errors import RunFailed
from recsim_train.executor import books
from recsim_train.executor.net import kernels
from recsim_train.executor.shards import services
from recsim_train.executor.shards.services import Together
from recsim_train.trace.ledger import REQUESTS
from tests.clock import until


def part_of(number: int) -> kernels.Part:
    return np.array([number]), np.array([0]), torch.tensor([float(number)])


def test_each_round_is_applied_once_by_trainer_and_nobody_is_let_go_before() -> None:
    trainers, rounds = range(2, 6), 400
    together = Together(trainers, timeout=30.0)
    applied: list[list[int]] = []
    seen: dict[int, list[int]] = {t: [] for t in trainers}

    def apply(parts: list[kernels.Part]) -> None:
        applied.append([int(places[0]) for places, _, _ in parts])

    def client(trainer: int) -> None:
        for k in range(rounds):
            if (trainer + k) % 5 == 0:
                time.sleep(1e-4)  # now one is last, now another
            together.submit(trainer, part_of(100 * k + trainer), apply)
            seen[trainer].append(len(applied))

    with ThreadPoolExecutor(len(trainers)) as pool:
        for waiting in [pool.submit(client, trainer) for trainer in trainers]:
            waiting.result(60)
    assert applied == [[100 * k + t for t in trainers] for k in range(rounds)]
    for counts in seen.values():
        # let go after its own round, and nobody can apply the next one without it
        assert counts == list(range(1, rounds + 1))


def test_a_second_gradient_of_one_trainer_is_not_taken_for_the_first() -> None:
    together, applied = Together(range(2), timeout=20.0), []

    def apply(parts: list[kernels.Part]) -> None:
        applied.append([int(places[0]) for places, _, _ in parts])

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(together.submit, 0, part_of(10), apply)
        until(lambda: together._waiting)
        with pytest.raises(RunFailed, match=r"two loops of trainer\[0\] .*together"):
            together.submit(0, part_of(20), apply)
        together.submit(1, part_of(11), apply)
        waiting.result(20)
    assert applied == [[10, 11]]


def test_who_stays_away_is_named() -> None:
    together = Together(range(3), timeout=0.2)
    with ThreadPoolExecutor(2) as pool:
        begin = time.monotonic()
        waiting = [pool.submit(together.submit, t, part_of(t), lambda _: None) for t in (0, 2)]
        for one in waiting:
            with pytest.raises(TimeoutError, match=r"no gradient from trainer\[1\] within 0.2 s"):
                one.result(20)
        assert 0.2 <= time.monotonic() - begin < 10


def test_a_round_that_is_being_applied_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    together, applying = Together(range(2), timeout=20.0), threading.Event()
    lock = threading.Lock

    class Over:
        """A lock of one that waits, whose time is over while the round is applied."""

        def __init__(self) -> None:
            self._lock = lock()
            self.release, self.locked = self._lock.release, self._lock.locked

        def acquire(self, timeout: float = -1.0) -> bool:
            return self._lock.acquire() if timeout < 0 else not applying.wait(timeout)

    def slow(parts: list[kernels.Part]) -> None:
        applying.set()
        time.sleep(0.2)  # the other one looks meanwhile

    monkeypatch.setattr(services, "threading", SimpleNamespace(Lock=Over))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(together.submit, 0, part_of(0), slow)
        until(lambda: together._waiting)
        together.submit(1, part_of(1), slow)
        waiting.result(20)


def test_waiting_is_booked_as_a_servers_own_work() -> None:
    kept = books.Books("embedding_server")
    together, apart = Together(range(2), timeout=20.0), threading.Event()

    def client(trainer: int) -> None:
        with books.book("server", "transport"), books.booked("update_pooled"):
            if trainer:
                apart.wait(20)
                time.sleep(0.05)
            together.submit(trainer, part_of(trainer), lambda _: None)

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client, trainer) for trainer in range(2)]
        apart.set()
        for one in waiting:
            one.result(20)
    booked = kept.sample().booked
    assert 0.0 < booked["embedding_server", REQUESTS, "server"] < 0.02
