"""The compiled solver under the engine, against what queueing theory says."""

from __future__ import annotations

import random

import pytest

from recsim_train.sim.engine import Engine, Steps
from recsim_train.sim.queues import Mailbox


def test_waiting_at_a_server_of_fixed_service_time_follows_pollaczek_and_khinchine() -> None:
    busy, service, count = 0.5, 0.5, 60_000
    engine = Engine()
    kind = engine.fluid.kind([(engine.fluid.resource("core", 1.0), 1.0)])
    inbox, stream = Mailbox(engine), random.Random(7)
    gaps = [stream.expovariate(busy / service) for _ in range(count)]
    waits: list[float] = []

    def arrive() -> Steps:
        for gap in gaps:
            yield engine.timeout(gap)
            inbox.put(engine.now)

    def serve() -> Steps:
        for _ in range(count):
            came = yield inbox.get()
            waits.append(engine.now - came)
            yield engine.activity(kind, service)

    engine.process(arrive())
    engine.process(serve())
    engine.run()
    expected = [0.0]
    for gap in gaps[1:]:
        expected.append(max(0.0, expected[-1] + service - gap))  # Lindley's recursion
    assert waits == pytest.approx(expected, rel=1e-9, abs=1e-9 * engine.now)
    # the mean of so many waits is within some two per cent of the expectation
    assert sum(waits) / count == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.05)


def test_sharing_a_processor_takes_as_long_as_theory_says() -> None:
    busy, service, count = 0.6, 0.5, 60_000
    engine = Engine()
    kind = engine.fluid.kind([(engine.fluid.resource("core", 1.0), 1.0)])
    stream = random.Random(3)
    stays = []

    def visit() -> Steps:
        came = engine.now
        yield engine.activity(kind, service)
        stays.append(engine.now - came)

    def arrive() -> Steps:
        for _ in range(count):
            yield engine.timeout(stream.expovariate(busy / service))
            engine.process(visit())

    engine.process(arrive())
    engine.run()
    assert sum(stays) / count == pytest.approx(service / (1 - busy), rel=0.03)
