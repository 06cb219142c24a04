"""What each effect does in the simulated world: who is asked, and what comes back.

Every function is a process that returns (answer, name in the records or None for no record, payload
bytes). What it costs is said in services.py, collectives.py, cache.py and net.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from recsim_train.placement.segments import Segment
from recsim_train.sim import cache, compression
from recsim_train.sim.accounts import WAITING
from recsim_train.sim.arguments import ARGUMENTS
from recsim_train.sim.cache import CACHE_OPERATIONS
from recsim_train.sim.collectives import GroupRuntime
from recsim_train.sim.ghosts import (
    GhostDense,
    GhostFeatures,
    GhostIds,
    GhostRows,
)
from recsim_train.sim.kernel import Handover, Steps
from recsim_train.sim.loop import LoopState
from recsim_train.sim.pricing import plus
from recsim_train.sim.readers import SOURCE
from recsim_train.sim.services import DenseRuntime, EmbeddingRuntime
from recsim_train.strategy import effects
from recsim_train.strategy.values import Batch, Block, Gradients
from recsim_train.trace.record import Sync

if TYPE_CHECKING:
    from recsim_train.sim.runtime import Runtime


def _next_batch(run: Runtime, loop: LoopState, _: effects.NextBatch) -> Steps:
    if loop.queue is None:
        raise TypeError(f"loop {loop.loop.loop!r} does not consume batches: it has no queue")
    if loop.paced_by is None:
        run.begin_iteration(loop)
    loop.waiting = "a core"
    yield run.world.work(loop, run.world.overhead(), "next_batch")
    if loop.iteration >= run.iterations:
        loop.iteration = run.iterations
        return None, None, 0
    loop.waiting = "a batch from its reader queue"
    yield from run.world.wait_for_others(loop, loop.queue.get())
    ids, unique = run.counts.batch_counts(loop.position, loop.iteration)
    size = run.plan.examples
    ghost = GhostIds(loop.position, loop.iteration, ids, unique)
    return Batch(size, ghost, GhostFeatures(size)), SOURCE, 0


def _compute(run: Runtime, loop: LoopState, effect: effects.Compute[object]) -> Steps:
    name, arguments = effect.operation.name, effect.arguments
    if run.cache is not None and name in CACHE_OPERATIONS:
        return (yield from run.cache.compute(loop, name, arguments)), name, 0
    wanted = ARGUMENTS.get(name)
    if wanted is None:
        raise KeyError(f"no such operation: {name!r}")
    if len(arguments) != len(wanted) or not all(map(isinstance, arguments, wanted)):
        given = ", ".join(type(a).__name__ for a in arguments)
        raise TypeError(f"Compute({name}): {effect.operation.summary}; got ({given})")
    if name in compression.ARGUMENTS:
        loop.waiting = "a core"
        seconds, answer = compression.perform(run, loop, name, arguments)
        work = plus(run.world.overhead(), seconds)
        yield run.world.work(loop, work, name)
        return answer, name, 0
    net = run.nets.get(loop.loop.trainer) if name.startswith("net_") else None
    if net is None and name.startswith("net_"):
        raise TypeError(f"Compute({name}): the strategy's topology asks for no net")
    cut = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], int) else 0
    segment = Segment() if net is None else net.segment(name, cut)
    # the last ones: where rows are an argument, those that are really at hand
    counted = next((a for a in map(_ids_of, reversed(arguments)) if a is not None), None)
    seconds = run.pricing.operation(
        name,
        pieces=segment.pieces,
        numbers=segment.numbers,
        pooling=run.plan.embedding.service.pooling if run.plan.embedding else "server",
        ids=0 if counted is None else counted.ids,
        unique=0 if counted is None else counted.unique,
        tables=len(run.world.model.tables),
        elements=run.elements if net is None else net.elements_of(name),
    )
    loop.waiting = "a core"
    work = plus(run.world.overhead(), seconds)
    yield run.world.work(loop, work, name)
    if net is not None:
        return net.result(name, arguments), name, 0
    return _result(run, name, arguments), name, 0


def _result(run: Runtime, name: str, arguments: tuple[object, ...]) -> object:
    if name == "deduplicate":
        (ids,) = arguments
        assert isinstance(ids, GhostIds)
        return GhostIds(ids.position, ids.batch, ids.ids, ids.unique, distinct=True)
    if name == "forward_backward":
        rows = arguments[1]
        assert isinstance(rows, GhostRows)
        return Gradients(
            GhostDense(run.elements, run.elements * run.bytes),
            rows.as_gradient(),
        )
    if name in ("snapshot", "drain", "towards", "block_step"):
        return GhostDense(run.elements, run.elements * run.bytes)
    return None


def _embedding_service(run: Runtime, name: str) -> EmbeddingRuntime:
    if run.embedding is None or run.embedding.name != name:
        raise KeyError(f"the strategy's topology has no embedding service {name!r}")
    return run.embedding


def _dense_service(run: Runtime, name: str) -> DenseRuntime:
    if run.dense is None or run.dense.name != name:
        raise KeyError(f"the strategy's topology has no dense service {name!r}")
    return run.dense


def _lookup(run: Runtime, loop: LoopState, effect: effects.Lookup) -> Steps:
    service = _embedding_service(run, effect.service)
    answer, payload = yield from service.lookup(loop, effect.ids)
    return answer, effect.service, payload


def _update(run: Runtime, loop: LoopState, effect: effects.Update) -> Steps:
    service = _embedding_service(run, effect.service)
    answer, payload = yield from service.update(loop, effect.gradient)
    return answer, effect.service, payload


def _fetch(run: Runtime, loop: LoopState, effect: effects.Fetch) -> Steps:
    service = _embedding_service(run, effect.service)
    answer, payload = yield from cache.fetch(service, loop, effect.ids)
    return answer, effect.service, payload


def _store(run: Runtime, loop: LoopState, effect: effects.Store) -> Steps:
    service = _embedding_service(run, effect.service)
    payload = yield from cache.store(service, loop, effect.rows)
    return None, effect.service, payload


def _pull(run: Runtime, loop: LoopState, effect: effects.Pull) -> Steps:
    answer, payload = yield from _dense_service(run, effect.service).pull(loop)
    return answer, effect.service, payload


def _push(run: Runtime, loop: LoopState, effect: effects.Push) -> Steps:
    service = _dense_service(run, effect.service)
    answer, payload = yield from service.push(loop, effect.gradient)
    return answer, effect.service, payload


def _exchange(run: Runtime, loop: LoopState, effect: effects.Exchange) -> Steps:
    service = _dense_service(run, effect.service)
    answer, payload = yield from service.exchange(loop, effect.parameters, effect.central)
    return answer, effect.service, payload


def _all_reduce(run: Runtime, loop: LoopState, effect: effects.AllReduce[Block]) -> Steps:
    answer, payload = yield from _group(run, loop, effect.group).all_reduce(loop, effect.value)
    return answer, effect.group, payload


def _all_gather(run: Runtime, loop: LoopState, effect: effects.AllGather) -> Steps:
    answer, payload = yield from _group(run, loop, effect.group).all_gather(loop, effect.value)
    return answer, effect.group, payload


def _all_to_all(run: Runtime, loop: LoopState, effect: effects.AllToAll) -> Steps:
    answer, payload = yield from _group(run, loop, effect.group).all_to_all(loop, effect.parts)
    return answer, effect.group, payload


def _agree(run: Runtime, loop: LoopState, effect: effects.Agree) -> Steps:
    if loop.background:
        run.begin_iteration(loop)
    if effect.group is None:
        yield run.world.work(loop, run.world.overhead(), "agree")
        return bool(effect.yes), "", 0
    group = _group(run, loop, effect.group)
    answer = yield from group.agree(loop, effect.yes)
    return answer, effect.group, 0


def _group(run: Runtime, loop: LoopState, name: str) -> GroupRuntime:
    group = run.groups.get((name, loop.loop.trainer))
    if group is None:
        raise KeyError(f"the strategy's topology has no group {name!r}")
    return group


def _queue(run: Runtime, loop: LoopState, name: str) -> Handover:
    queue = run.queues.get((name, loop.loop.trainer))
    if queue is None:
        raise KeyError(f"the strategy's topology has no queue {name!r}")
    return queue


def _put(run: Runtime, loop: LoopState, effect: effects.Put) -> Steps:
    queue = _queue(run, loop, effect.queue)
    yield run.world.work(loop, run.world.overhead(), "put")
    loop.waiting = f"room in queue {effect.queue!r}"
    start = run.kernel.now
    yield from queue.put(effect.item)
    loop.account.now[WAITING] += run.kernel.now - start
    return None, effect.queue, 0


def _take(run: Runtime, loop: LoopState, effect: effects.Take) -> Steps:
    queue = _queue(run, loop, effect.queue)
    if loop.paced_by == effect.queue:
        run.begin_iteration(loop)
    yield run.world.work(loop, run.world.overhead(), "take")
    loop.waiting = f"an item of queue {effect.queue!r}"
    start = run.kernel.now
    item = yield from queue.take()
    loop.account.now[WAITING] += run.kernel.now - start
    if item is None and loop.paced_by == effect.queue:
        loop.iteration = run.iterations
        return None, None, 0
    return item, effect.queue, 0


def _now(run: Runtime, loop: LoopState, _: effects.Now) -> Steps:
    yield run.world.work(loop, run.world.overhead(), "now")
    return run.kernel.now, "", 0


def _synced(run: Runtime, loop: LoopState, _: effects.Synced) -> Steps:
    run.ledger.syncs.append(Sync(loop.name, loop.iteration, run.kernel.now))
    yield from ()
    return None, None, 0


def _ids_of(value: object) -> GhostIds | None:
    """The ids that a value is about, if it is about any."""
    ids: object = value.ids if isinstance(value, Batch | GhostRows) else value
    return ids if isinstance(ids, GhostIds) else None


PERFORM: dict[type, Callable[..., Steps]] = {
    effects.NextBatch: _next_batch,
    effects.Compute: _compute,
    effects.Lookup: _lookup,
    effects.Update: _update,
    effects.Fetch: _fetch,
    effects.Store: _store,
    effects.Pull: _pull,
    effects.Push: _push,
    effects.Exchange: _exchange,
    effects.AllReduce: _all_reduce,
    effects.AllGather: _all_gather,
    effects.AllToAll: _all_to_all,
    effects.Agree: _agree,
    effects.Put: _put,
    effects.Take: _take,
    effects.Now: _now,
    effects.Synced: _synced,
}

NAMES = {kind: re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in PERFORM}
