"""Drives one loop of a strategy with real tensors: the executor's answer to every effect."""

from __future__ import annotations

import inspect
import queue
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from recsim_train.executor import row_transfer
from recsim_train.executor.collectives import Collective
from recsim_train.executor.compress import RealSparse
from recsim_train.executor.kernels import Worker
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.stubs import DenseStub, EmbeddingStub
from recsim_train.executor.values import RealBlock, RealDense, RealIds, RealParts, RealRows
from recsim_train.strategy import effects
from recsim_train.strategy.base import Loop
from recsim_train.strategy.effects import Effect
from recsim_train.strategy.values import Batch
from recsim_train.trace.record import Iteration, Recorder, Span, Sync


class Feed(Protocol):
    """Where a loop's batches come from."""

    def next(self) -> Batch | None:
        """The next batch; None after the last."""


class NotAnEffectError(TypeError):
    """A strategy awaited something that no world can answer."""


def line_of(program: Coroutine[Any, Any, Any]) -> str:
    """file:line at which a suspended program waits, in its innermost frame."""
    place = "?"
    inner: object = program
    while inspect.iscoroutine(inner) and inner.cr_frame is not None:
        code = inner.cr_frame
        if "/strategy/effects.py" not in code.f_code.co_filename:
            place = f"{code.f_code.co_filename.rsplit('/', 1)[-1]}:{code.f_lineno}"
        inner = inner.cr_await
    return place


def snake(name: str) -> str:
    """AllReduce -> all_reduce."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


EFFECT_NAMES = {effect: snake(effect.__name__) for effect in effects.EFFECTS}


def _never() -> bool:
    return False


async def _no_program() -> None:
    """Of a loop that is driven from outside."""


@dataclass(slots=True)
class LoopContext:
    """All that one loop's thread uses; nothing of it is shared with other threads but the replica
    inside ``worker`` and local shards."""

    instance: str
    label: str
    worker: Worker
    feed: Feed | None
    embedding: EmbeddingStub | None
    dense: DenseStub | None
    collectives: dict[str, Collective]
    clock: Callable[[], float]
    recorder: Recorder | None
    definition: Loop = field(default_factory=lambda: Loop("loop", _no_program))
    queues: dict[str, queue.Queue[object]] = field(default_factory=dict)
    """Between the loops of this trainer."""
    stopped: Callable[[], bool] = _never
    iteration: int = -1
    done: int = 0
    """Finished iterations, for progress."""
    ended: bool = False
    """Whether its data are over, so that no iteration is open."""
    acted: bool = False
    """Of a background loop: whether anything but `Agree` happened in this round."""
    waiting: str = "not started"
    _began: float = field(default=0.0)


def run_loop(context: LoopContext, program: Coroutine[Effect[Any], Any, None]) -> None:
    """Drive a program to its end. Errors of effects are thrown into it first."""
    answer: object = None
    failure: Exception | None = None
    while True:
        try:
            effect: object = program.send(answer) if failure is None else program.throw(failure)
        except StopIteration:
            if context.definition.background and context.acted:
                finish_iteration(context, context.clock())
            return
        answer, failure = None, None
        if not isinstance(effect, Effect):
            where = line_of(program)
            program.close()
            raise NotAnEffectError(
                f"{where}: a strategy may await effects only, not {type(effect).__name__}"
            )
        context.waiting = f"{EFFECT_NAMES[_base(effect)]} at {line_of(program)}"
        try:
            answer = perform(context, effect)
        except Exception as error:  # the program may handle it
            failure = error


def _base(effect: Effect[Any]) -> type[Effect[Any]]:
    return next(kind for kind in effects.EFFECTS if isinstance(effect, kind))


def perform(context: LoopContext, effect: Effect[Any]) -> object:
    """Answer one effect and record its span."""
    begin = context.clock()
    if isinstance(effect, effects.NextBatch):
        return _next_batch(context, begin)
    if _begins(context.definition, effect):
        finish_iteration(context, begin)
        context.iteration += 1
        context._began = begin
    context.acted = not isinstance(effect, effects.Agree)
    if isinstance(effect, effects.Synced):
        if context.recorder is not None:
            loop = f"{context.instance}.{context.label}"
            context.recorder.syncs.append(Sync(loop, context.iteration, begin))
        return None
    name, sent, answer = _answer(context, effect)
    if isinstance(effect, effects.Take) and answer is None and _begins(context.definition, effect):
        context.ended = True
        return None
    if context.recorder is not None:
        span = Span(
            context.instance,
            context.label,
            context.iteration,
            EFFECT_NAMES[_base(effect)],
            name,
            begin,
            context.clock(),
            sent,
        )
        context.recorder.add(span)
    return answer


def _begins(loop: Loop, effect: Effect[Any]) -> bool:
    """Whether an iteration of a loop without batches, or a round of it, begins with ``effect``."""
    if isinstance(effect, effects.Agree):
        return loop.background
    return isinstance(effect, effects.Take) and loop.paced_by == effect.queue


def _next_batch(context: LoopContext, begin: float) -> Batch | None:
    if context.definition.paced_by is None:
        finish_iteration(context, begin)
    assert context.feed is not None
    batch = context.feed.next()
    context.iteration += 1  # also at the end: what is done after the last step is not part of it
    if batch is None:
        context.ended = True
        return None
    context._began = begin
    if context.recorder is not None:
        context.recorder.add(
            Span(
                context.instance,
                context.label,
                context.iteration,
                "next_batch",
                "reader",
                begin,
                context.clock(),
                0,
            )
        )
    return batch


def finish_iteration(context: LoopContext, now: float) -> None:
    """Close the iteration that was open, if any."""
    if context.iteration < 0 or context.recorder is None or context.ended:
        return
    if not (context.definition.trains or context.definition.background):
        return
    context.done = context.iteration + 1
    context.recorder.iterations.append(
        Iteration(
            f"{context.instance}.{context.label}",
            context.iteration,
            context._began,
            now,
            context.worker.loss,
        )
    )


def _answer(context: LoopContext, effect: Effect[Any]) -> tuple[str, int, object]:
    """(name, payload bytes sent by this side, answer)."""
    iteration = context.iteration if context.recorder is not None else -1
    match effect:
        case effects.Compute():
            kernel = KERNELS[effect.operation.name]
            return effect.operation.name, 0, kernel(context.worker, *effect.arguments)
        case effects.Lookup():
            assert context.embedding is not None
            assert isinstance(effect.ids, RealIds)
            rows, sent = context.embedding.lookup(effect.ids, iteration)
            return effect.service, sent, rows
        case effects.Update():
            assert context.embedding is not None
            assert isinstance(effect.gradient, RealRows)
            return effect.service, context.embedding.update(effect.gradient, iteration), None
        case effects.Fetch():
            assert context.embedding is not None
            assert isinstance(effect.ids, RealIds)
            rows, sent = row_transfer.fetch(context.embedding, effect.ids, iteration)
            return effect.service, sent, rows
        case effects.Store():
            assert context.embedding is not None
            assert isinstance(effect.rows, RealRows)
            return (
                effect.service,
                row_transfer.store(context.embedding, effect.rows, iteration),
                None,
            )
        case effects.Pull():
            assert context.dense is not None
            dense, sent = context.dense.pull(iteration)
            return effect.service, sent, dense
        case effects.Push():
            assert context.dense is not None
            assert isinstance(effect.gradient, RealDense | RealSparse)
            return (
                effect.service,
                context.dense.push(effect.gradient, iteration, add=effect.add),
                None,
            )
        case effects.Exchange():
            assert context.dense is not None
            assert isinstance(effect.parameters, RealDense)
            dense, sent = context.dense.exchange(
                effect.parameters, effect.alpha, iteration, new=effect.central == "new"
            )
            return effect.service, sent, dense
        case effects.AllReduce():
            assert isinstance(effect.value, RealDense | RealBlock | RealRows)
            collective = context.collectives[effect.group]
            return effect.group, *collective.all_reduce(effect.value, effect.op)
        case effects.AllGather():
            assert isinstance(effect.value, RealDense | RealBlock)
            return effect.group, *context.collectives[effect.group].all_gather(effect.value)
        case effects.AllToAll():
            assert isinstance(effect.parts, RealParts)
            return effect.group, *context.collectives[effect.group].all_to_all(effect.parts)
        case effects.Agree():
            if effect.group is None:
                return "", 0, bool(effect.yes)
            return effect.group, 0, context.collectives[effect.group].agree(effect.yes)
        case effects.Put():
            _until(
                context, lambda limit: context.queues[effect.queue].put(effect.item, timeout=limit)
            )
            return effect.queue, 0, None
        case effects.Take():
            return (
                effect.queue,
                0,
                _until(context, lambda limit: context.queues[effect.queue].get(timeout=limit)),
            )
        case effects.Now():
            return "clock", 0, context.clock()
        case _:
            raise NotAnEffectError(f"the executor has no answer to {type(effect).__name__}")


def _until(context: LoopContext, action: Callable[[float], object]) -> object:
    """Wait on a local queue as long as the process has not failed."""
    while True:
        try:
            return action(0.2)
        except (queue.Full, queue.Empty):
            if context.stopped():
                raise TimeoutError("another loop of this process failed") from None


class QueueFeed:
    """Batches from a bounded queue that a reader thread fills; None ends it, errors are raised."""

    def __init__(self, capacity: int, stopped: Callable[[], bool]) -> None:
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(capacity)
        self._stopped = stopped

    def put(self, item: Batch | BaseException | None) -> bool:
        """Wait for room; False when the run is over."""
        while not self._stopped():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def next(self) -> Batch | None:
        """The next batch. Raises what the reader raised."""
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item
