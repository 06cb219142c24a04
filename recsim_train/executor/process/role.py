"""One role instance: its threads, its shards, its loops, from groups made to last message sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from recsim_train.checkpoints.going_on import NONE_KEPT, Keeping
from recsim_train.executor.books import Books, book, set_pace
from recsim_train.executor.checkpoint.keeper import Keeper
from recsim_train.executor.checkpoint.state import RoleState
from recsim_train.executor.feed import ReaderProcess, read_in_thread, receive_in_thread
from recsim_train.executor.link.gloo import Collective
from recsim_train.executor.link.transport import Key, Transport
from recsim_train.executor.modelled import ModelledCompute, install
from recsim_train.executor.part import EmulatedRoles, ProcessPart, Reading
from recsim_train.executor.pools import make_pool
from recsim_train.executor.process import clocks
from recsim_train.executor.process.attend import attend, in_thread, schedule
from recsim_train.executor.process.evaluate import evaluate
from recsim_train.executor.process.peers import Peers
from recsim_train.executor.queues import QueueFeed, ThreadBarrier, ThreadProgress, ThreadQueue
from recsim_train.executor.runtime import LoopContext, run_loop
from recsim_train.executor.shards.services import (
    DenseServer,
    EmbeddingServer,
    Serving,
    central_order,
    serve_in_thread,
)
from recsim_train.executor.shards.stubs import DenseStub, EmbeddingStub, Near, Remote
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.executor.worker import MixCache, Replica, Worker
from recsim_train.placement.plan import Instance, LoopId, Plan
from recsim_train.strategy.base import DENSE, EMBEDDING, Loop
from recsim_train.strategy.registry import create
from recsim_train.trace.facts import ClockReading, Clocks
from recsim_train.trace.ledger import COLLECTIVES, RUNTIME, TRANSPORT
from recsim_train.trace.record import Outcome, Recorder

EVALUATOR = "evaluator[0]"
_LOOK = 0.25
"""Seconds between two looks of the main thread at the others: each takes a core from them."""
FOREVER = timedelta(days=30)
"""Servers wait for requests as long as their clients live; clients wait ``execution.timeout``."""


class Role:
    """What one process does in a run. Made on the main thread, after ``init_process_group``."""

    def __init__(
        self,
        plan: Plan,
        instance: Instance,
        store: Store,
        peers: Peers,
        emulated: EmulatedRoles | None = None,
        keeping: Keeping = NONE_KEPT,
        beside: Callable[[], Store] | None = None,
        *,
        scheduled: bool = False,
    ) -> None:
        """``emulated``: None, where roles run on this machine itself; ``beside``: makes another
        connection to the store, for checkpoints; ``scheduled``: as `ProcessPart.sched_batch`."""
        self.modelled: ModelledCompute | None = None
        if emulated:
            self.modelled = install(emulated[instance.name], plan.experiment.seed)
            set_pace(self.modelled)
        self.plan, self.instance, self.store, self.peers = plan, instance, store, peers
        self.keeping, self.scheduled = keeping, scheduled
        self.keeper: Keeper | None = None
        self.started = False
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.timeout = timedelta(seconds=plan.experiment.execution.timeout)
        peers.tell = self.fail
        self.books = Books(instance.role, waits=emulated is not None)
        # Every rank makes every group, in one order.
        self.feed_group = self._group(FOREVER) if plan.of_role("reader") else None
        self.books.claim(TRANSPORT)
        self.collectives: dict[str, Collective] = {}
        for group in plan.groups:
            ranks = [member.trainer for member in group.members]
            made = self._group(self.timeout, ranks) if len(ranks) > 1 else None
            place = group.place(instance.index)
            if instance.role == "trainer" and place >= 0:
                self.collectives[group.name] = Collective(made, len(ranks), place)
        self.books.claim(COLLECTIVES)
        self.queues = {
            local.name: ThreadQueue(
                local.capacity,
                self._stopped.is_set,
                lambda: sum(thread.is_alive() for thread in self.loop_threads) <= 1,
            )
            for local in plan.topology.queues
        }
        self.barriers = {
            local.name: ThreadBarrier(
                sum(loop.loop in local.loops for loop in plan.loops(instance.index)),
                self._stopped.is_set,
            )
            for local in plan.topology.barriers
        }
        trains = (x.name for x in plan.loops(instance.index) if plan.loop(x.loop).training)
        self.progress = ThreadProgress(trains, self._stopped.is_set)
        self.cache: MixCache | None = None
        if plan.topology.cache is not None and instance.role == "trainer":
            self.cache = MixCache(plan, instance.index, keeping.first)
        self.recorders: list[Recorder] = []
        self._kept = [0]
        """Spans of all of them."""
        self.servings: list[Serving] = []
        self.contexts: list[LoopContext] = []
        self._given: dict[LoopId, SimpleQueue[LoopContext]] = {}
        """Where each loop's thread gets what it works on."""
        self.reader: ReaderProcess | None = None
        self.readings: list[Reading] = []
        self.quality: dict[str, float | None] = {}
        self.servers: dict[Key, EmbeddingServer | DenseServer] = {}
        for rows in plan.embedding.shards if plan.embedding else ():
            if rows.host == instance:
                self.servers[EMBEDDING, rows.index] = EmbeddingServer(
                    plan, rows, draws=keeping.begin is None
                )
        for dense in plan.dense.shards if plan.dense else ():
            if dense.host == instance:
                self.servers[DENSE, dense.index] = DenseServer(plan, dense)
        rank, askers = plan.rank(instance), [number for number, _, _ in self._askers()]
        self.transport = Transport(plan, rank, store, self.timeout, askers, peers.labels)
        schedule("SCHED_OTHER")
        shards = self.servers.values()
        self.state = RoleState(plan, instance, shards, self.cache, self.contexts)
        if keeping.folder is not None and beside is not None:
            stopped = self._stopped.is_set
            self.keeper = Keeper(plan, instance, keeping, beside(), self.state, stopped, self.fail)
        self.threads: list[threading.Thread] = []
        self.loop_threads: list[threading.Thread] = []
        self.clock: Callable[[], float] = time.monotonic
        self.began = 0.0
        """As `Outcome` has it."""
        self._clock_before: ClockReading | None = None
        self._clock_after: ClockReading | None = None
        self._busy_at_start = time.process_time()
        self._busy: float | None = None

    def _group(self, limit: timedelta, ranks: list[int] | None = None) -> dist.ProcessGroup:
        group: dist.ProcessGroup = attend(
            lambda: dist.new_group(ranks, timeout=limit), self.peers.check
        )
        return group

    # -- clients and servers ---------------------------------------------------------------

    @property
    def clients(self) -> list[tuple[int, str, int]]:
        """(number, name, trainer) of everyone who asks shards: all loops, then the evaluator."""
        loops = [(n, loop.name, loop.trainer) for n, loop in enumerate(self.plan.all_loops)]
        return [*loops, (len(loops), f"trainer[0].{EVALUATOR}", 0)]

    def _recorder(self, *, background: bool = False) -> Recorder:
        training, cap = self.plan.experiment.training, self.plan.experiment.execution.max_spans
        recorder = Recorder(
            training.warmup_steps, training.steps, cap, background=background, kept=self._kept
        )
        self.recorders.append(recorder)
        return recorder

    def _askers(self) -> list[tuple[int, str, int]]:
        """The clients that ask shards here from another process."""
        embedding = self.plan.embedding
        own = embedding is not None and embedding.service.access == "own"
        loops = len(self.plan.all_loops)
        return [
            (number, name, trainer)
            for number, name, trainer in self.clients
            if not (self.instance.role == "trainer" and trainer == self.instance.index)
            and any(not own or k[0] == DENSE or number >= loops for k in self.servers)
        ]

    def serve(self) -> None:
        """A thread for each remote client."""
        background = {loop.name for loop in self.plan.background}
        for number, name, trainer in self._askers():
            rank = self.plan.rank(self.plan.of_role("trainer")[trainer])
            serving = Serving(
                self.instance.name,
                name,
                trainer,
                self.transport.port(number, rank),
                self.servers,
                self._recorder(background=name in background),
                self.clock,
            )
            self.servings.append(serving)
            self.threads.append(serve_in_thread(serving, self.fail))

    def _ends(
        self, number: int, service: str, shards: Sequence[EmbeddingRules | DenseRules]
    ) -> list[Any]:
        """Where a client finds shards: in this process, or over a channel to another."""
        ends: list[object] = []
        for rules in shards:
            key, rank = (service, rules.shard.index), self.plan.rank(rules.shard.host)
            if (server := self.servers.get(key)) is not None:
                ends.append(Near(server, self.instance.index))
            else:
                ends.append(Remote(rules, self.transport.channel(number, rules.shard.index, rank)))
        return ends

    def _embedding_stub(self, number: int) -> EmbeddingStub | None:
        plan = self.plan
        if plan.embedding is None:
            return None
        own = plan.embedding.service.access == "own" and number < len(plan.all_loops)
        shards = [s for s in plan.embedding.shards if not own or s.host == self.instance]
        rules = [EmbeddingRules(plan, shard) for shard in shards]
        ends = self._ends(number, EMBEDDING, rules)
        return EmbeddingStub(ends, whole=not own, first=first_shard(plan, number))

    def _dense_stub(self, number: int, like: torch.Tensor) -> DenseStub | None:
        if self.plan.dense is None:
            return None
        rules = [DenseRules(self.plan.experiment, shard) for shard in self.plan.dense.shards]
        ends = self._ends(number, DENSE, rules)
        return DenseStub(ends, like, central_order(self.plan), first=first_shard(self.plan, number))

    def _context(
        self,
        number: int,
        label: str,
        replica: Replica,
        feed: QueueFeed | None,
        definition: Loop,
        *,
        record: bool,
    ) -> LoopContext:
        pooling = self.plan.embedding.service.pooling if self.plan.embedding else "server"
        dense = self._dense_stub(number, replica.parameters)
        worker = Worker(replica, pooling, self.plan.net, self._host(), self.cache, number)
        if dense is not None:
            worker.room = dense.room
        return LoopContext(
            instance=self.instance.name,
            label=label,
            definition=definition,
            topology=self.plan.topology,
            worker=worker,
            feed=feed,
            embedding=self._embedding_stub(number),
            dense=dense,
            collectives=self.collectives,
            clock=self.clock,
            recorder=self._recorder(background=definition.background) if record else None,
            queues=self.queues,
            barriers=self.barriers,
            progress=self.progress,
            done=0 if definition.background else self.keeping.first,
            halts=None if self.keeper is None else self.keeper.halts,
        )

    # -- the run ---------------------------------------------------------------------------

    def start(self, limit: float) -> None:
        """All threads up to the common start, within ``limit`` seconds, then go."""
        self.state.restore_shards(self.keeping)
        if self.instance.role == "trainer":
            self._begin_loops()
        self.peers.meet("ready", limit)
        begin, self._clock_before = attend(_common_start, self.peers.check)
        self.began = begin - (0.0 if self._clock_before is None else self._clock_before.ahead)
        self.clock = lambda: time.monotonic() - begin
        self.peers.begin()
        self.started = True
        self._busy_at_start = time.process_time()
        self.books.begin(self.clock)
        self.serve()
        if self.instance.role == "reader":
            assert self.feed_group is not None
            self.reader = ReaderProcess(
                self.plan,
                self.instance.name,
                self.feed_group,
                self.clock,
                self._recorder,
                self.fail,
                self._stopped.is_set,
                self.keeping.first,
            )
            self.readings.append(self.reader.reading)
            self.threads += self.reader.start()
        if self.instance.role == "trainer":
            self.replica = self.state.replica = Replica.of(self.plan, self._host())
            self.strategy = create(self.plan.used, self.plan.place(self.instance.index))
            for loop in self.plan.loops(self.instance.index):
                context = self._context(
                    self.plan.all_loops.index(loop),
                    loop.label,
                    self.replica,
                    self._feed(loop),
                    self.plan.loop(loop.loop),
                    record=True,
                )
                self.contexts.append(context)
            self.state.restore_trainer(self.keeping)
            for loop, context in zip(self._given, self.contexts, strict=True):
                self._given[loop].put(context)
        if self.keeper is not None:
            self.keeper.start()
        self.books.mark()  # making all this is no part of a step

    def _host(self) -> int:
        return 0 if self.plan.net is None else self.plan.host(self.instance.index)

    def _feed(self, loop: LoopId) -> QueueFeed | None:
        if loop not in self.plan.feeding:
            return None
        first, waits = self.keeping.first, self.plan.experiment.data.queue_batches
        feed = QueueFeed(waits, self._stopped.is_set)
        if self.feed_group is not None:
            self.threads.append(receive_in_thread(self.plan, loop, feed, self.feed_group, first))
        else:
            self.readings.append(Reading())
            self.threads.append(read_in_thread(self.plan, loop, feed, self.readings[-1], first))
        return feed

    def _begin_loops(self) -> None:
        """Start the loops' threads, which make their pools and wait for what they work on."""
        for number, loop in enumerate(self.plan.all_loops):
            if loop.trainer == self.instance.index:
                given = self._given[loop] = SimpleQueue()
                ready = threading.Event()
                body = partial(self._loop, loop, number, given, ready)
                self.loop_threads.append(in_thread(body, loop.label))
                ready.wait()
        torch.set_num_threads(1)

    def _loop(
        self,
        loop: LoopId,
        number: int,
        given: SimpleQueue[LoopContext],
        ready: threading.Event,
    ) -> None:
        try:
            pool = make_pool(self.plan.threads_of(self.plan.loop(loop.loop)))
            with book("loop", RUNTIME, pool):
                ready.set()
                run_loop(given.get(), self.strategy.program(loop.loop))
                self.transport.stop(number)
        except BaseException as error:
            self.fail(error)
        finally:
            ready.set()

    def fail(self, error: BaseException) -> None:
        """Remember the first failure of any thread."""
        with self._lock:
            if self.failure is None:
                self.failure = error
        self._stopped.set()

    def join(self, threads: list[threading.Thread], tick: Callable[[], None]) -> None:
        """Until the threads have ended. Raises the first failure of any thread of the process."""
        while going := [thread for thread in threads if thread.is_alive()]:
            going[0].join(_LOOK)
            self._tick(tick)
        self._tick(tick)

    def _tick(self, tick: Callable[[], None]) -> None:
        if self.failure is not None:
            raise self.failure
        self.books.tick()
        tick()

    def finish(self, tick: Callable[[], None]) -> None:
        """Wait for all trainers, evaluate at trainer 0, let servers end."""
        if self.instance.role == "trainer":
            self.join(self.loop_threads, tick)
            self.books.mark()  # nor is what follows
            self._busy = time.process_time() - self._busy_at_start
            self.store.set(f"done/{self.instance.index}", "1")
            if self.instance.index == 0:
                waiting = [f"done/{t.index}" for t in self.plan.of_role("trainer")]
                self.peers.wait(waiting, lambda: self._tick(tick))
                replica = self.replica
                if replica.names is not None:  # a part of the net cannot be evaluated
                    replica = Replica(replica.model, replica.training, replica.seed)
                context = self._context(
                    len(self.plan.all_loops),
                    EVALUATOR,
                    replica,
                    None,
                    Loop(EVALUATOR, consumes_batches=False),
                    record=False,
                )
                if self.modelled is None:  # else nothing was learned
                    run_loop(context, self.strategy.finish())
                    self.state.evaluated = replica.parameters
                    self.quality = evaluate(self.plan, context)
                self.transport.stop(len(self.plan.all_loops))
        self.join(self.threads, tick)
        if self.keeper is not None:
            self.keeper.finish(self.state.at_the_end())
        self.peers.meet("over")

    def read_clock(self) -> None:
        """After `finish`, of all ranks: how this one's clock differs from rank 0's by now."""
        self._clock_after = attend(clocks.read, self.peers.check)

    # -- results ---------------------------------------------------------------------------

    def waits(self) -> list[str]:
        """Who waits for what, one line for each loop and server thread."""
        lines = [f"{c.instance}.{c.label}: {c.waiting}" for c in self.contexts]
        return lines + [f"{s.instance}: {s.waiting}" for s in self.servings]

    def part(self) -> ProcessPart:
        """This process's part of the result; valid at any time."""
        found = Outcome([], {}, [], 0, self.plan.experiment.training.steps, began=self.began)
        for recorder in self.recorders:
            done = found.rounds if recorder.background else found.iterations
            done += list(recorder.iterations)
            found.spans += list(recorder.spans)
            found.syncs += list(recorder.syncs)
            found.totals.update(recorder.totals)
            found.dropped_spans += recorder.dropped_spans
        for name, value in self.quality.items():
            setattr(found, name, value)
        busy = time.process_time() - self._busy_at_start if self._busy is None else self._busy
        tallies = [c.worker.residual.tallies for c in self.contexts]
        tallies += [c.embedding.tallies for c in self.contexts if c.embedding is not None]
        asked = [s.header_bytes for s in self.servings if not s.client.endswith(EVALUATOR)]
        fed = [] if self.reader is None else self.reader.header_bytes.values()
        before = self._clock_before
        return ProcessPart(
            instance=self.instance.name,
            records=found,
            cpu_seconds=busy,
            samples=[*self.books.samples, self.books.sample()],
            tallies=[dict(counted) for counted in tallies],
            readings=self.readings,
            header_bytes=sum([*asked, *fed]),
            cache=None if self.cache is None else self.cache.figures(),
            clocks=None if before is None else Clocks(before, self._clock_after),
            checkpoints=[] if self.keeper is None else list(self.keeper.made),
            sched_batch=self.scheduled,
        )


def _common_start() -> tuple[float, ClockReading | None]:
    """Time 0 of the run on this process's monotonic clock: rank 0's reading; and how that clock
    differs from its own."""
    offset = clocks.read()
    said = torch.tensor(time.monotonic(), dtype=torch.float64)
    dist.broadcast(said, src=0)
    return float(said) + (0.0 if offset is None else offset.ahead), offset


def first_shard(plan: Plan, client: int) -> int:
    """With which shard a client begins, counted round: neither the first loops of all trainers nor
    all loops of one begin with the same."""
    trainers = [loop.trainer for loop in plan.all_loops]
    trainer = trainers[client] if client < len(trainers) else 0
    return trainer + client - trainers.index(trainer)
