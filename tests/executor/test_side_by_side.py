"""Shards are asked and heard side by side: none waits for another, and no link for nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from recsim_train.config.experiment import (
    Data,
    Execution,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.link import connections
from recsim_train.executor.link.transport import Transport
from recsim_train.executor.process.role import first_shard
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.services import EmbeddingServer, Serving
from recsim_train.executor.shards.stubs import DenseStub, EmbeddingStub, Finish, Near, Remote
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.executor.values import RealDense, RealIds, RealRows
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Recorder
from tests.clock import by_the_clock, first_in_line, tried_anew
from tests.executor.linked import Links

BATCH, DIM, ROWS = 49_152, 64, 50
LARGE = BATCH * DIM * 4
"""Bytes of a shard's answer, and of the gradient of one: 12.6 MB, more than buffers hold."""
PATIENCE = timedelta(seconds=60)


def plan_of(kind: str, dim: int = DIM, batch: int = BATCH, **roles: int) -> Plan:
    """A table for each of two embedding servers."""
    tables = (Table(rows=ROWS), Table(rows=ROWS))
    spec = Experiment(
        name="side by side",
        model=Model(embedding_dim=dim, bottom_mlp=(8, dim), top_mlp=(8, 1), tables=tables),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000)),
        roles=Roles(embedding_servers=2, **roles),
        training=Training(batch_size=batch, steps=2, warmup_steps=0),
        execution=Execution(shared_memory=False, timeout="60 s"),
        strategies=(StrategyChoice(kind=kind),),
    )
    return build_plan(spec, spec.strategies[0])


def ids_of(batch: int) -> RealIds:
    values = torch.arange(2 * batch) % ROWS
    return RealIds(values, (0, batch, 2 * batch), (None, None), batch)


class Two:
    """A client of two servers, which do what the test does."""

    def __init__(self, plan: Plan) -> None:
        store = HashStore()
        # rank 0 makes the run's token
        self.client = Transport(plan, 0, store, PATIENCE, [])
        servers = [Transport(plan, 1 + n, store, PATIENCE, [0]) for n in range(2)]
        self.channels = [self.client.channel(0, n, 1 + n) for n in range(2)]
        self.ports = [server.port(0, 0) for server in servers]
        self.pool = ThreadPoolExecutor(3)

    def close(self) -> None:
        for channel in self.channels:
            channel.asker.close()
        for port in self.ports:
            (port._answerer or port._listener.client(0)).close()
        self.pool.shutdown()

    def taken(self, server: int) -> tuple[wire.ShardRequest, bytes]:
        """The next request there, whole."""
        _, header, size = self.ports[server].next_request()
        content = self.ports[server].payload(size).numpy().tobytes()
        return wire.decode(header), content

    def within(self, work: Callable[[], object], seconds: float = 20.0) -> Future[object]:
        """It ends in that time."""
        done = self.pool.submit(work)
        done.result(seconds)
        return done


@contextmanager
def two(plan: Plan) -> Iterator[Two]:
    made = Two(plan)
    try:
        yield made
    finally:
        made.close()


def embedding_stub(plan: Plan, world: Two, first: int) -> EmbeddingStub:
    assert plan.embedding is not None
    shards = zip(plan.embedding.shards, world.channels, strict=True)
    ends = [Remote(EmbeddingRules(plan, shard), channel) for shard, channel in shards]
    return EmbeddingStub(ends, first=first)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("slow", [0, 1])
def test_an_answer_that_comes_first_is_taken_first(
    monkeypatch: pytest.MonkeyPatch, slow: int, first: int
) -> None:
    monkeypatch.setattr(connections, "BUFFER_BYTES", 64 << 10)
    plan, fast = plan_of("allreduce"), 1 - slow
    with two(plan) as world:
        stub, ids = embedding_stub(plan, world, first), ids_of(BATCH)
        looked = world.pool.submit(lambda: stub.lookup(ids, 0)())  # noqa: PLW0108  # there, too
        answers = [torch.rand(1, BATCH, DIM), torch.rand(1, BATCH, DIM)]
        for server in range(2):
            request, _ = world.taken(server)
            assert isinstance(request, wire.LookupRequest)
        # more than the buffers hold: it ends when it is read, long before the other answers
        world.within(lambda: world.ports[fast].answer(answers[fast]))
        assert not looked.done()
        world.within(lambda: world.ports[slow].answer(answers[slow]))
        rows, _ = looked.result(20)
    assert isinstance(rows, RealRows)
    by_table = {s.table: n for n, shard in enumerate(plan.embedding.shards) for s in shard.slices}  # type: ignore[union-attr]
    wanted = torch.cat([answers[by_table[table]] for table in range(2)])
    assert torch.equal(rows.tensor, wanted)


def pushed(plan: Plan, world: Two, first: int) -> tuple[Callable[[], Finish], list[bytes]]:
    """A push of a gradient to two dense shards; what each of them is to get."""
    assert plan.dense is not None
    shards = plan.dense.shards
    ends = [
        Remote(DenseRules(plan.experiment, shard), channel)
        for shard, channel in zip(shards, world.channels, strict=True)
    ]
    gradient = torch.rand(shards[-1].stop)
    stub = DenseStub(ends, gradient, first=first)
    due = [gradient[shard.start : shard.stop].numpy().tobytes() for shard in shards]
    return (lambda: stub.push(RealDense(gradient), 0)), due


def updated(plan: Plan, world: Two, first: int) -> tuple[Callable[[], Finish], list[bytes]]:
    """An update of two tables; what each shard is to get."""
    assert plan.embedding is not None
    stub, ids = embedding_stub(plan, world, first), ids_of(BATCH)
    looking = world.pool.submit(lambda: stub.lookup(ids, 0)())  # noqa: PLW0108  # there, too
    for server in range(2):
        world.taken(server)
        world.ports[server].answer(torch.zeros(1, BATCH, DIM))
    looking.result(20)
    gradient = torch.rand(2, BATCH, DIM)
    tables = [shard.slices[0].table for shard in plan.embedding.shards]
    due = [gradient[table].numpy().tobytes() for table in tables]
    return (lambda: stub.update(RealRows(gradient, ids), 0)), due


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("effect", ["push", "update"])
def test_a_server_that_does_not_read_keeps_nothing_from_the_other(
    monkeypatch: pytest.MonkeyPatch, effect: str, slow: int, first: int
) -> None:
    monkeypatch.setattr(connections, "BUFFER_BYTES", 64 << 10)
    fast = 1 - slow
    if effect == "push":  # as many dense parameters as make the same bytes
        plan, make = plan_of("flat_ps", dim=400_000, batch=8, dense_servers=2), pushed
    else:
        plan, make = plan_of("allreduce"), updated
    with two(plan) as world:
        send, due = make(plan, world, first)
        assert min(map(len, due)) > 12e6
        sending = world.pool.submit(send)
        got = {}

        def take(server: int) -> None:
            got[server] = world.taken(server)[1]

        world.within(lambda: take(fast))
        assert not sending.done()
        world.within(lambda: take(slow))
        sending.result(20)
    assert [got[0], got[1]] == due


def test_a_request_is_on_its_way_before_a_shard_here_is_waited_for() -> None:
    """As updates are, that are applied when those of all trainers have come."""
    plan = plan_of("allreduce")
    assert plan.embedding is not None
    read = threading.Event()

    class Here(EmbeddingServer):
        def update(self, *_: object) -> None:
            assert read.wait(20)

    with two(plan) as world:
        ends = [
            Near(Here(plan, plan.embedding.shards[0]), 0),
            Remote(EmbeddingRules(plan, plan.embedding.shards[1]), world.channels[1]),
        ]
        stub, ids = EmbeddingStub(ends), ids_of(BATCH)
        looking = world.pool.submit(stub.lookup(ids, 0))
        world.taken(1)
        world.ports[1].answer(torch.zeros(1, BATCH, DIM))
        rows, _ = looking.result(20)
        sending = world.pool.submit(lambda: stub.update(rows, 0))
        world.within(lambda: world.taken(1))
        read.set()
        sending.result(20)


def test_neither_the_trainers_nor_the_loops_of_one_begin_with_the_same_shard() -> None:
    plan = plan_of("flat_ps", trainers=3)
    numbers = {(loop.trainer, loop.copy): n for n, loop in enumerate(plan.all_loops)}
    firsts = {who: first_shard(plan, number) % 3 for who, number in numbers.items()}
    trainers = sorted({trainer for trainer, _ in firsts})
    assert sorted(firsts[trainer, 0] for trainer in trainers) == [0, 1, 2]
    spec = plan.experiment
    training = spec.training.model_copy(update={"threads": 3})
    plan = build_plan(spec.model_copy(update={"training": training}), spec.strategies[0])
    loops = [n for n, loop in enumerate(plan.all_loops) if loop.trainer == 1]
    assert sorted(first_shard(plan, number) % 3 for number in loops) == [0, 1, 2]


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_loop_asks_in_turn_from_its_first_shard_on(first: int) -> None:
    plan, asked = plan_of("flat_ps", dense_servers=3), []
    assert plan.dense is not None

    class Noted:
        def __init__(self, place: int) -> None:
            self.place = place

        def request(self, *_: object) -> None:
            asked.append(self.place)

    ends = [
        Remote(DenseRules(plan.experiment, shard), Noted(place))  # type: ignore[arg-type]
        for place, shard in enumerate(plan.dense.shards)
    ]
    stub = DenseStub(ends, torch.zeros(plan.dense.shards[-1].stop), first=first)
    stub.push(RealDense(torch.zeros(plan.dense.shards[-1].stop)), 0)
    assert asked == [(first + k) % 3 for k in range(3)]


RATE = 5e6
"""Bytes a second of each host's link, each way."""
TOLERANCE = 0.12
"""Set before anything was measured. A server after the other takes 28 % and more."""
TRAINERS = 3


class Seen:
    """A store in which a client finds its links instead of the servers."""

    def __init__(self, store: HashStore, links: Links, client: int) -> None:
        self.store, self.links, self.client = store, links, client

    def get(self, key: str) -> bytes:
        _, _, server = key.partition("/")
        if server.isdigit():
            return f"127.0.0.1:{self.links.ports[self.client, int(server) - 1]}".encode()
        return self.store.get(key)


@pytest.mark.slow
@tried_anew()
def test_three_trainers_use_the_links_of_two_servers_as_wide_as_they_are() -> None:
    """Lookup and update each take what the bytes of all trainers take through one server's link."""
    plan = plan_of("allreduce", trainers=TRAINERS)
    assert plan.embedding is not None
    store = HashStore()
    Transport(plan, 0, store, PATIENCE, [])
    ports, clients = {}, range(TRAINERS)
    for index, shard in enumerate(plan.embedding.shards):
        server = EmbeddingServer(plan, shard)
        transport = Transport(plan, 1 + index, store, PATIENCE, clients)
        ports[index] = int(store.get(f"requests/{1 + index}").decode().rpartition(":")[2])
        for client in clients:
            recorder = Recorder(warmup=0, steps=1 << 30, max_spans=1)
            who = f"trainer[{client}].worker[0]", client
            port, held = transport.port(client, 0), {("embedding", index): server}
            serving = Serving("server", *who, port, held, recorder, time.monotonic)
            threading.Thread(target=served, args=[serving], daemon=True).start()
    links = Links(ports, TRAINERS, RATE)
    begin_together = threading.Barrier(TRAINERS)
    spent: dict[str, list[float]] = {"lookup": [], "update": []}
    found: dict[int, Tensor] = {}

    def train(client: int) -> None:
        first_in_line()
        transport = Transport(plan, 10 + client, Seen(store, links, client), PATIENCE, [])  # type: ignore[arg-type]
        ends = [
            Remote(EmbeddingRules(plan, shard), transport.channel(client, index, 1 + index))
            for index, shard in enumerate(plan.embedding.shards)  # type: ignore[union-attr]
        ]
        stub, ids = EmbeddingStub(ends, first=first_shard(plan, client)), ids_of(BATCH)
        for _ in range(2):
            begin_together.wait(60)
            start = time.monotonic()
            rows, _ = stub.lookup(ids, 0)()
            looked = time.monotonic()
            spent["lookup"].append(looked - start)
            found[client] = rows.tensor
            begin_together.wait(60)
            start = time.monotonic()
            stub.update(RealRows(torch.ones_like(rows.tensor), ids), 0)()
            spent["update"].append(time.monotonic() - start)
        transport.stop(client)
        for end in ends:
            end.channel.asker.close()

    try:
        with ThreadPoolExecutor(TRAINERS) as pool:
            for done in [pool.submit(train, client) for client in clients]:
                done.result(120)
    finally:
        links.close()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    ids = BATCH * 8
    closed = {"lookup": TRAINERS * (ids + LARGE) / RATE, "update": TRAINERS * LARGE / RATE}
    for effect, seconds in spent.items():
        # of two rounds, each of which ends with its slowest trainer: load only ever adds
        rounds = np.array(seconds).reshape(2, TRAINERS)
        taken = rounds.max(1).min()
        assert closed[effect] * 0.97 < taken, (effect, rounds)  # no load makes a link wider
        with by_the_clock():
            assert taken < closed[effect] * (1 + TOLERANCE), (effect, rounds)


def served(serving: Serving) -> None:
    first_in_line()
    with suppress(ConnectionError):
        serving.run()
    assert serving.port._answerer is not None
    serving.port._answerer.close()
