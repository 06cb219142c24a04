"""The compiled solver under the kernel, against what queueing theory says."""

from __future__ import annotations

import random

import pytest

from recsim_train.sim.kernel import Kernel, Mailbox, Steps


def test_waiting_at_a_server_of_fixed_service_time_follows_pollaczek_and_khinchine() -> None:
    busy, service, count = 0.5, 0.5, 60_000
    kernel = Kernel()
    kind = kernel.fluid.kind([(kernel.fluid.resource("core", 1.0), 1.0)])
    inbox, stream = Mailbox(kernel), random.Random(7)
    gaps = [stream.expovariate(busy / service) for _ in range(count)]
    waits: list[float] = []

    def arrive() -> Steps:
        for gap in gaps:
            yield kernel.timeout(gap)
            inbox.put(kernel.now)

    def serve() -> Steps:
        for _ in range(count):
            came = yield inbox.get()
            waits.append(kernel.now - came)
            yield kernel.activity(kind, service)

    kernel.process(arrive())
    kernel.process(serve())
    kernel.run()
    expected = [0.0]
    for gap in gaps[1:]:
        expected.append(max(0.0, expected[-1] + service - gap))  # Lindley's recursion
    assert waits == pytest.approx(expected, rel=1e-9, abs=1e-9 * kernel.now)
    # the mean of so many waits is within some two per cent of the expectation
    assert sum(waits) / count == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.05)


def test_sharing_a_processor_takes_as_long_as_theory_says() -> None:
    busy, service, count = 0.6, 0.5, 60_000
    kernel = Kernel()
    kind = kernel.fluid.kind([(kernel.fluid.resource("core", 1.0), 1.0)])
    stream = random.Random(3)
    stays = []

    def visit() -> Steps:
        came = kernel.now
        yield kernel.activity(kind, service)
        stays.append(kernel.now - came)

    def arrive() -> Steps:
        for _ in range(count):
            yield kernel.timeout(stream.expovariate(busy / service))
            kernel.process(visit())

    kernel.process(arrive())
    kernel.run()
    assert sum(stays) / count == pytest.approx(service / (1 - busy), rel=0.03)
