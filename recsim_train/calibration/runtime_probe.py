"""The probe of the runtime: what effects and requests cost besides kernels and messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from recsim_train.calibration.grid import MEBI, Setting, training
from recsim_train.config.experiment import (
    Execution,
    Experiment,
    Roles,
    StrategyChoice,
)
from recsim_train.executor import kernels, wire
from recsim_train.executor.bits import as_bytes
from recsim_train.executor.perform import run_loop
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.services import Client, DenseServer, EmbeddingServer, Serving
from recsim_train.executor.transport import Key, Service, size_of
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.strategy.effects import Now
from recsim_train.trace.record import Recorder

_SETTING = Setting(16, 8, (32,), (16,), (64,), 2 * MEBI)
_BATCH = 64


def small_plan(elements_of: Setting = _SETTING) -> Plan:
    """One trainer, one embedding server, one dense server."""
    experiment = Experiment(
        name="calibration",
        model=elements_of.model(),
        roles=Roles(trainers=1, embedding_servers=1, dense_servers=1),
        training=training("sgd"),
        execution=Execution(shared_memory=False),
        strategies=(StrategyChoice(kind="flat_ps"),),
    )
    return build_plan(experiment, experiment.strategies[0])


def measure(*, quick: bool) -> dict[str, list[float]]:
    """Seconds per effect and per request, one value for each repeat."""
    count, repeats = (300, 3) if quick else (2000, 9)
    plan = small_plan()
    return {
        "effect": [_effects(plan, count) for _ in range(repeats)],
        "request": [(_pushes(plan, count) + _lookups(plan, count)) / 2 for _ in range(repeats)],
    }


def _recorder() -> Recorder:
    return Recorder(warmup=0, steps=1 << 30, max_spans=1 << 30)


def _effects(plan: Plan, count: int) -> float:
    model = plan.experiment.model
    worker = Worker(Replica(model, plan.experiment.training, 1), "server")
    context = LoopContext(
        instance="trainer[0]",
        label="worker[0]",
        definition=plan.loop("worker"),
        topology=plan.topology,
        worker=worker,
        feed=None,
        embedding=None,
        dense=None,
        collectives={},
        clock=time.monotonic,
        recorder=_recorder(),
    )

    async def program() -> None:
        for _ in range(count):
            await Now()

    begin = time.thread_time()
    run_loop(context, program())
    return (time.thread_time() - begin) / count


class _Script:
    """A port at which ``count`` times the same is asked, without any transport."""

    def __init__(self, key: Key, request: wire.Request, payload: Tensor, count: int) -> None:
        self._key, self._request, self._payload, self._left = key, request, payload, count

    head_bytes = 0

    def next_request(self) -> tuple[Key, bytes, int]:
        self._left -= 1
        request = self._request if self._left >= 0 else wire.StopRequest()
        return self._key, wire.encode(request), size_of(self._payload)

    def payload(self, _: int) -> Tensor:
        return self._payload

    def answer(self, _: Tensor) -> None:
        pass


def _serve(
    server: EmbeddingServer | DenseServer, request: wire.Request, payload: Tensor, count: int
) -> float:
    """Thread CPU seconds of serving one such request."""
    key = Service.EMBEDDING if isinstance(server, EmbeddingServer) else Service.DENSE, 0
    port = _Script(key, request, payload, count)
    client = Client("trainer[0].worker[0]", 0)
    serving = Serving("server[0]", client, port, {key: server}, _recorder(), time.monotonic)
    begin = time.thread_time()
    serving.run()
    return (time.thread_time() - begin) / count


def _alone(call: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        begin = time.thread_time()
        call()
        times.append(time.thread_time() - begin)
    return median(times)


def _pushes(plan: Plan, count: int) -> float:
    assert plan.dense is not None
    server = DenseServer(plan, plan.dense.shards[0])
    gradient = torch.zeros_like(server.state.values)
    kernel = _alone(lambda: kernels.dense_apply(server.state, gradient), count)
    asked = _serve(server, wire.PushRequest(0, add=False), as_bytes(gradient), count)
    return max(0.0, asked - kernel)


def _lookups(plan: Plan, count: int) -> float:
    assert plan.embedding is not None
    server = EmbeddingServer(plan, plan.embedding.shards[0])
    tables = len(server.state.slices)
    ids = torch.randint(0, _SETTING.rows, (tables * _BATCH,))
    request = wire.LookupRequest(0, _BATCH, (_BATCH,) * tables)
    packed = as_bytes(ids)
    routed = request.unpack(server.rules, packed)
    kernel = _alone(lambda: server.lookup(routed), count)
    return max(0.0, _serve(server, request, packed, count) - kernel)
