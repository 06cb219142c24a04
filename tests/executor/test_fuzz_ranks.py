"""Whatever ranks, shards and readers are sent: no traceback, no crash, no wait without an end.

Real code on loopback sockets. What cannot be understood ends as an error that names who sent it, or
the connection is dropped; those who are honest are served beside it.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.data.batch import pack
from recsim_train.data.malformed import Malformed
from recsim_train.data.stream import open_stream
from recsim_train.executor import feed
from recsim_train.executor.link import connections
from recsim_train.executor.link.connections import ClientListener, connect
from recsim_train.executor.link.transport import Key, Port, address_said
from recsim_train.executor.part import Ending, LostPeerError, ProcessPart, Reading
from recsim_train.executor.process import agreement, board, parting
from recsim_train.executor.process.board import Board, FolderBoard, StoreBoard
from recsim_train.executor.process.parting import describe
from recsim_train.executor.queues import QueueFeed
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer, Serving
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import header_bytes
from recsim_train.trace.facts import Cached, CheckpointMade, ClockReading, Clocks
from recsim_train.trace.ledger import Sample
from recsim_train.trace.record import Iteration, Outcome, Recorder, Span, Sync, Total, TotalKey
from recsim_train.workload.compression import Tally

TOKEN = b"t" * connections.TOKEN_BYTES
LIMIT = 20.0
"""Seconds for what takes milliseconds, on a machine that has much else to do."""
bounded = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def plan_of(strategy: str, **roles: int) -> Plan:
    choice = StrategyChoice(kind=strategy)
    spec = Experiment(
        name="fuzz",
        model=Model(
            embedding_dim=4,
            bottom_mlp=(8, 4),
            top_mlp=(8, 1),
            tables=(Table(rows=40), Table(rows=50, ids=3, variable=True), Table(rows=60, ids=2)),
        ),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000)),
        roles=Roles(trainers=1, **roles),
        training=Training(batch_size=8, threads=1, steps=5, warmup_steps=0),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


# -- the handshake ---------------------------------------------------------------------------------

hello = st.builds(
    connections._HELLO.pack,
    st.sampled_from([connections._PROTOCOL, b"recsim/2", b""]),
    st.sampled_from([TOKEN, b"x" * connections.TOKEN_BYTES]),
    st.integers(8, 2**32 - 1),  # any client but the one that is due
    st.binary(max_size=16),
)
stranger = st.one_of(st.binary(max_size=200), hello, hello.map(lambda said: said[:-1]))


@bounded
@given(st.lists(st.tuples(stranger, st.booleans()), max_size=6))
def test_strangers_say_what_they_want_and_a_client_still_gets_in(
    monkeypatch: pytest.MonkeyPatch, said: list[tuple[bytes, bool]]
) -> None:
    monkeypatch.setattr(connections, "_PATIENCE", 3 * LIMIT)  # with any of them
    listener = ClientListener("127.0.0.1", TOKEN, [7], 24)
    host, port = listener.address.rsplit(":", 1)
    strangers = []
    for words, stays in said:
        one = socket.create_connection((host, int(port)), LIMIT)
        one.sendall(words)
        strangers.append(one)
        if not stays:
            one.close()
    asker = connect(listener.address, TOKEN, 7, LIMIT)
    answerer = listener.client(7)
    asker.ask(b"a" * 24, [])
    assert answerer.next() == (b"a" * 24, 0)
    for end in (asker, answerer, listener, *strangers):
        end.close()


# -- a shard's connection --------------------------------------------------------------------------

PLANS = {
    "pooled and dense": plan_of("flat_ps", embedding_servers=1, dense_servers=1),
    "rows": plan_of("scalefreectr", embedding_servers=1),
}
counts = st.lists(st.integers(-3, 40), max_size=5).map(tuple)
small = st.one_of(st.integers(-2, 40), st.sampled_from([2**40, -(2**40), 2**62]))
iteration = st.integers(-1, 3)
requests = st.one_of(
    st.builds(wire.StopRequest),
    st.builds(wire.LookupRequest, iteration, small, counts),
    st.builds(wire.UpdateRequest, iteration, small, small, counts),
    st.builds(wire.FetchRequest, iteration, counts),
    st.builds(wire.StoreRequest, iteration, counts),
    st.builds(wire.PullRequest, iteration),
    st.builds(wire.PushRequest, iteration, st.booleans()),
    st.builds(wire.SparsePushRequest, iteration, st.booleans(), small),
    st.builds(wire.ExchangeRequest, iteration, st.floats(), small, st.booleans()),
)
ids = st.lists(st.one_of(st.integers(-2, 70), st.just(2**40)), max_size=60)
payloads = st.one_of(
    st.binary(max_size=300),
    ids.map(lambda found: np.array(found, np.int64).tobytes()),
    st.tuples(ids, st.binary(max_size=64)).map(
        lambda parts: np.array(parts[0], np.int64).tobytes() + parts[1]
    ),
)


def header_of(plan: Plan, shard: int, request: bytes) -> bytes:
    return struct.pack("<Q", shard) + request[: header_bytes(plan)].ljust(header_bytes(plan), b"\0")


@st.composite
def messages(draw: st.DrawFn, plan: Plan) -> bytes:
    """A request as it travels, mostly with some of it changed."""
    head = header_of(
        plan,
        draw(st.sampled_from([0, 0, 0, 1, 2**63])),
        draw(st.one_of(requests.map(wire.encode), st.binary(max_size=80))),
    )
    payload = draw(payloads)
    size = draw(st.one_of(st.just(len(payload)), st.integers(0, 2**64 - 1)))
    whole = bytearray(struct.pack("<Q", size) + head + payload)
    for place, value in draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=2)
    ):
        whole[place] = value
    return bytes(whole)


def lookup(plan: Plan) -> bytes:
    """An honest one of a batch, so that updates have something to be of."""
    values = np.array([1] * 8 + [2] * 8 + [3] * 16, np.int64).tobytes()
    lengths = np.ones(8, np.int32).tobytes() if "scale" not in plan.strategy.kind else b""
    request = wire.encode(wire.LookupRequest(0, 8, (8, 8, 16)))
    payload = values + lengths
    return struct.pack("<Q", len(payload)) + header_of(plan, 0, request) + payload


@contextmanager
def shard(plan: Plan) -> Iterator[tuple[socket.socket, list[BaseException | None], Any]]:
    """A client's raw connection to a thread that serves it, and how that ends."""
    assert plan.embedding is not None
    servers: dict[Key, EmbeddingServer | DenseServer] = {
        ("embedding", 0): EmbeddingServer(plan, plan.embedding.shards[0])
    }
    if plan.dense is not None:
        servers["dense", 0] = DenseServer(plan, plan.dense.shards[0])
    listener = ClientListener("127.0.0.1", TOKEN, [0], 8 + header_bytes(plan))
    asker = connect(listener.address, TOKEN, 0, LIMIT)
    port = Port(listener, 0, "trainer[0]")
    client = "trainer[0].worker[0]", 0
    recorder = Recorder(0, 100, 100)
    serving = Serving("embedding_server[0]", *client, port, servers, recorder, time.monotonic)
    ends: list[BaseException | None] = []

    def serve() -> None:
        try:
            serving.run()
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asker._sock, ends, thread
    finally:
        asker.close()
        listener.close()
        thread.join(LIMIT)
        if port._answerer is not None:
            port._answerer.close()


@pytest.mark.parametrize("which", PLANS)
@bounded
@given(data=st.data())
def test_a_shard_that_is_sent_anything_ends_with_who_sent_it_or_goes_on(
    which: str, data: st.DataObject
) -> None:
    plan = PLANS[which]
    sent = data.draw(st.lists(messages(plan), min_size=1, max_size=3))
    with shard(plan) as (sock, ends, thread):
        sock.sendall(lookup(plan))
        for message in sent:
            try:
                sock.sendall(message)
            except OSError:  # it has ended
                break
        sock.shutdown(socket.SHUT_WR)
        thread.join(LIMIT)
        assert not thread.is_alive()
    (end,) = ends
    if end is None or isinstance(end, LostPeerError):
        return  # it was told to stop, or the connection ended within a message or between two
    kind, sentence = describe(end)
    assert kind == "own"
    assert isinstance(end, RunFailed | ValueError), repr(end)
    assert "trainer[0]" in sentence
    assert "\n" not in sentence


def test_an_honest_lookup_is_answered_and_its_update_applied() -> None:
    """What the fuzzing starts from is understood."""
    for plan in PLANS.values():
        with shard(plan) as (sock, ends, thread):
            sock.sendall(lookup(plan))
            sock.settimeout(LIMIT)
            assert struct.unpack("<Q", sock.recv(8, socket.MSG_WAITALL))[0] > 0
            sock.shutdown(socket.SHUT_WR)
            thread.join(LIMIT)
        assert isinstance(ends[0], LostPeerError)


def test_a_payload_that_is_claimed_takes_no_memory_before_it_comes() -> None:
    plan = PLANS["rows"]
    with shard(plan) as (sock, ends, thread):
        sock.sendall(struct.pack("<Q", (1 << 40) - 1) + header_of(plan, 0, b"\1"))
        sock.sendall(b"x" * 1000)
        sock.shutdown(socket.SHUT_WR)
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert isinstance(ends[0], LostPeerError)


# -- a reader's messages ---------------------------------------------------------------------------

READ = plan_of("allreduce", embedding_servers=1, readers=1)


@pytest.fixture(scope="module")
def pair() -> list[dist.ProcessGroupGloo]:
    """Trainer and reader over gloo, in one process."""
    store, groups = HashStore(), [None, None]
    limit = timedelta(seconds=LIMIT)

    def make(rank: int) -> None:
        groups[rank] = dist.ProcessGroupGloo(PrefixStore("fuzz", store), rank, 2, limit)

    threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return groups  # type: ignore[misc]


def honest() -> bytes:
    spec = READ.experiment
    stream = open_stream(
        spec.model,
        spec.data,
        batch_size=8,
        positions=(0,),
        total=1,
        iterations=1,
        seed=1,
    )
    return pack(next(iter(stream)).batch).tobytes()


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    whole = bytearray(honest())
    at = st.one_of(st.integers(0, 31), st.integers(0, len(whole) - 1))
    for place, value in draw(st.lists(st.tuples(at, st.integers(0, 255)), max_size=3)):
        whole[place] = value
    return bytes(whole[: draw(st.one_of(st.just(len(whole)), st.integers(1, len(whole))))])


@bounded
@given(st.one_of(batches(), st.binary(min_size=1, max_size=400)))
def test_a_trainer_that_is_sent_anything_for_a_batch_ends_with_who_sent_it(
    pair: list[dist.ProcessGroupGloo], content: bytes
) -> None:
    (loop,) = READ.feeding
    queue = QueueFeed(4, lambda: False)
    trainer, reader = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.dist, "recv", _receive)
        thread = feed.receive_in_thread(READ, loop, queue, trainer, 0)
        said = torch.tensor([len(content)])
        reader.send([said], 0, 0).wait()
        reader.send([torch.frombuffer(bytearray(content), dtype=torch.uint8)], 0, 1).wait()
        try:
            batch = queue.next()
            assert batch is not None
            assert batch.size == READ.examples
            reader.send([torch.tensor([0])], 0, 0).wait()
        except RunFailed as error:
            assert str(error).startswith("reader[0] sent no batch: ")  # noqa: PT017
        thread.join(LIMIT)
        assert not thread.is_alive()


@bounded
@given(st.one_of(st.integers(-(2**63), -1), st.integers(2**50, 2**63 - 1)))
def test_a_size_that_cannot_be_is_no_batch(pair: list[dist.ProcessGroupGloo], size: int) -> None:
    (loop,) = READ.feeding
    queue = QueueFeed(4, lambda: False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.dist, "recv", _receive)
        thread = feed.receive_in_thread(READ, loop, queue, pair[0], 0)
        pair[1].send([torch.tensor([size])], 0, 0).wait()
        with pytest.raises(RunFailed, match=r"^reader\[0\] sent no batch: "):
            queue.next()
        thread.join(LIMIT)
        assert not thread.is_alive()


def _receive(tensor: torch.Tensor, source: int, group: Any, tag: int) -> None:
    group.recv([tensor], 1, tag).wait()


# -- the store -------------------------------------------------------------------------------------

json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)
word = st.fixed_dictionaries(
    {
        "name": st.one_of(st.text(max_size=9), json_like),
        "machine": st.one_of(st.text(max_size=9), json_like),
        "address": st.one_of(st.just("10.0.0.1"), json_like),
        "deputy": st.one_of(st.integers(), json_like),
        "terms": st.one_of(st.dictionaries(st.text(), st.text()), json_like),
    }
)
ending = st.fixed_dictionaries(
    {
        "name": st.one_of(st.text(), json_like),
        "kind": st.one_of(st.text(), json_like),
        "sentence": st.one_of(st.text(), json_like),
        "waits": st.one_of(st.lists(st.text(), max_size=2), json_like),
    }
)


def _json(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


@pytest.fixture(scope="module")
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=LIMIT), wait_for_workers=False)


numbers = iter(range(10**9))


@bounded
@given(st.one_of(st.binary(max_size=200), json_like.map(_json), word.map(_json)))
def test_any_word_of_a_rank_is_understood_or_named(store: TCPStore, said: bytes) -> None:
    here = PrefixStore(str(next(numbers)), store)
    here.set("word/1", said)  # type: ignore[arg-type]
    try:
        found = agreement.read_word("b (rank 1)", here.get("word/1"))
    except RunFailed as error:
        assert str(error).startswith("b (rank 1) said in the store what")  # noqa: PT017
        return
    assert all(isinstance(value, str) for value in found.terms.values())


@bounded
@given(
    st.one_of(st.binary(max_size=200), json_like.map(_json), ending.map(_json)),
    st.one_of(st.binary(), json_like.map(_json)),
)
def test_any_ending_and_any_part_of_another_rank_leaves_a_sentence(
    store: TCPStore, said: bytes, part: bytes
) -> None:
    here = PrefixStore(str(next(numbers)), store)
    there = StoreBoard(lambda: here)
    for key, content in (("left-1", said), ("part-1", part)):
        here.set(f"{key}/0", content)  # type: ignore[arg-type]
        here.set(key, "1")
    parting.leave(there, 0, Ending("", "peer", "lost the connection to b (rank 1)"))
    end = parting.part_ways(here, there, ["a (rank 0)", "b (rank 1)"], 0, hosting=False)
    assert end.kept_here
    assert end.sentence.startswith(("a (rank 0)", "b (rank 1)"))
    assert [*end.parts] == []


@bounded
@given(st.one_of(st.binary(max_size=40), st.integers().map(lambda n: f"127.0.0.1:{n}".encode())))
def test_any_address_is_one_or_named(said: bytes) -> None:
    try:
        host, _, port = address_said(said, "dense_server[0]").rpartition(":")
    except RunFailed as error:
        assert str(error).startswith("dense_server[0] left ")  # noqa: PT017
        return
    socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    assert 0 < int(port) < 65536


class Touches:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_that_lies_in_the_store_is_run(store: TCPStore, tmp_path: Path) -> None:
    here = PrefixStore(str(next(numbers)), store)
    content = pickle.dumps(Touches(tmp_path / "run by rank 0"))
    for said in (content, hashlib.sha256(content).digest() + content):
        here.set("part-0/0", said)  # type: ignore[arg-type]
        for count in ("1", "0", "2", "-1", "x", "", "99999"):
            here.set("part-0", count)
            assert parting.get_part(StoreBoard(lambda: here), 0) is None
    assert [*tmp_path.iterdir()] == []


def part_of_all_kinds() -> ProcessPart:
    """Nothing in it has its default."""
    records = Outcome(
        iterations=[Iteration("trainer[0].worker[1]", 3, 0.1, 1 / 3, math.nan)],
        totals={TotalKey("trainer[0]", "worker[1]", "compute", "a, b"): Total(3, 0.3, 1 << 60)},
        spans=[Span("trainer[0]", "worker[1]/1", 3, "lookup", "embedding", 0.1, 2 / 3, 512)],
        dropped_spans=2,
        steps=7,
        loss=math.inf,
        auc=0.1 + 0.2,
        normalized_entropy=-math.inf,
        rounds=[Iteration("trainer[0].background[0]", 1, 0.2, 0.7)],
        syncs=[Sync("trainer[0].background[0]", 1, 0.7)],
    )
    booked = {("trainer", "a, b", "loop"): 1 / 7, ("trainer", "runtime", "loop"): 0.5}
    first = [(3, "day_0, line 4: column 1: '2'"), (8, "day_0, line 9")]
    malformed = Malformed({"label": 2}, {"label": first}, 50, [[1, 9], [0, 0]], 60)
    return ProcessPart(
        instance="trainer[0]",
        records=records,
        cpu_seconds=1 / 3,
        samples=[Sample(0.1, 0.2, {}), Sample(1.1, 0.9, booked, 1.5, 0.1, 0.2, (1.0, 2.0))],
        tallies=[{}, {"gradients": Tally(9, 3, 36, 24)}],
        readings=[Reading(malformed, 2, 50)],
        header_bytes=77,
        cache=Cached((4, 0), 9, 3, 1, 0.666667),
        clocks=Clocks(ClockReading(1.5, 1e-5), ClockReading(1.6, 2e-5)),
        checkpoints=[CheckpointMade(20, 0.1, 2 / 3, 1 << 40, "the disk is full")],
        sched_batch=True,
    )


@pytest.mark.parametrize("chunk", [4 << 20, 100, None], ids=["in one", "in many", "files"])
def test_a_part_is_read_as_it_was_left(
    store: TCPStore, tmp_path: Path, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = PrefixStore(str(next(numbers)), store)
    files: Board = FolderBoard(tmp_path)
    there = StoreBoard(lambda: here) if chunk is not None else files
    monkeypatch.setattr(board, "_CHUNK", chunk or 1)
    parting.leave(there, 3, Ending("", "finished", ""), part_of_all_kinds())
    found = parting.get_part(there, 3)
    assert found is not None
    assert repr(found) == repr(part_of_all_kinds())  # NaN is not equal to itself
    assert found.records.totals == part_of_all_kinds().records.totals
    assert found.samples == part_of_all_kinds().samples
    assert parting.words_left(there, ["", "", "", "d"]) == {
        3: Ending("d", "finished", "", measured=True)
    }


def test_a_part_that_was_promised_is_waited_for(store: TCPStore) -> None:
    here = PrefixStore(str(next(numbers)), store)
    there, labels = StoreBoard(lambda: here), ["a", "b"]
    promised = Ending("", "peer", "another rank left the run", measured=True)
    there.put("left-1", TypeAdapter(Ending).dump_json(promised))
    left_later = threading.Timer(0.5, parting.leave, (there, 1, promised, part_of_all_kinds()))
    left_later.start()
    parting.leave(there, 0, Ending("", "own", "it failed"), part_of_all_kinds())
    end = parting.part_ways(here, there, labels, 0, hosting=False)
    left_later.join()
    assert end.kept_here
    assert end.sentence == "a failed: it failed"
    assert len(end.parts) == 2


def test_a_part_of_more_than_may_be_is_none(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = PrefixStore(str(next(numbers)), store)
    there = StoreBoard(lambda: here)
    monkeypatch.setattr(board, "_CHUNK", 8)
    parting.leave(there, 3, Ending("", "finished", ""), part_of_all_kinds())
    assert parting.get_part(there, 3) is not None
    monkeypatch.setattr(board, "_MOST", 100)
    assert parting.get_part(there, 3) is None


def test_another_job_s_id_is_told_whatever_it_is(store: TCPStore, tmp_path: Path) -> None:
    from recsim_train.executor.link.rendezvous import Rank

    me = Rank(1, 2, "127.0.0.1", 1, "mine", 0, keeps_store=False)
    for said in (b"\xff\xfe", b"", b"id another"):
        here = PrefixStore(str(next(numbers)), store)
        here.set("recsim-train/job", said)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="are of another job"):
            agreement.claim(here, here, me, lambda: None, 1.0)


# -- what the fuzzing meets seldom -----------------------------------------------------------------


def _said(plan: Plan, request: wire.ShardRequest, payload: bytes) -> str:
    """How the shard ends that is sent this after an honest lookup."""
    with shard(plan) as (sock, ends, thread):
        sock.sendall(lookup(plan))
        head = header_of(plan, 0, wire.encode(request))
        sock.sendall(struct.pack("<Q", len(payload)) + head + payload)
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert isinstance(ends[0], RunFailed)
    return str(ends[0])


def test_a_negative_number_of_ids_is_refused() -> None:
    payload = np.ones(32, np.int64).tobytes() + np.ones(8, np.int32).tobytes()
    for plan in PLANS.values():
        said = _said(plan, wire.LookupRequest(0, 8, (19, -3, 16)), payload)
        assert "embedding_server[0] cannot do what trainer[0].worker[0] asks: ValueError: " in said
        assert "ids of 3 slices" in said


@pytest.mark.parametrize("examples", [4, 16])
def test_a_gradient_of_other_examples_than_its_lookup_is_refused(examples: int) -> None:
    payload = np.ones(3 * examples * 4, np.float32).tobytes()
    said = _said(PLANS["pooled and dense"], wire.UpdateRequest(0, 0, examples, ()), payload)
    assert f"a gradient of {examples} examples, not 8" in said


@pytest.mark.parametrize("wrong", [60, -1, 2**40])
def test_an_id_beyond_its_table_is_no_batch(wrong: int) -> None:
    content = np.frombuffer(bytearray(honest()), np.uint8)
    ids_of = content[32:].view(np.uint8)[: 8 * int(content[:32].view(np.int64)[2])].view(np.int64)
    assert feed.received(READ, torch.from_numpy(content.copy())).size == 8
    ids_of[-1] = wrong  # of the last table, which has 60 rows
    with pytest.raises(ValueError, match="an id that is in no table"):
        feed.received(READ, torch.from_numpy(content))


@pytest.mark.parametrize("length", [2**31 - 1, -1])
def test_a_bag_of_more_ids_than_were_sent_is_no_batch_and_takes_no_memory(length: int) -> None:
    content = np.frombuffer(bytearray(honest()), np.uint8)
    lengths_of = content[-4 * int(content[:32].view(np.int64)[3]) :].view(np.int32)
    assert feed.received(READ, torch.from_numpy(content.copy())).size == 8
    lengths_of[:] = length
    with pytest.raises(ValueError, match=r"\d+ ids where -?\d+ are due"):
        feed.received(READ, torch.from_numpy(content))


def test_only_what_is_on_this_machine_must_fit_into_it() -> None:
    from recsim_train.config.cluster import Host
    from recsim_train.sim.host.memory_check import check_machine

    def host(memory: str) -> Host:
        return Host.model_validate({"cores": 2, "memory": memory, "nic": "1 GB/s"})

    plan = PLANS["pooled and dense"]
    whole = check_machine(plan, host("1 TB")).uses
    least = min(whole, key=lambda use: use.needed)
    small = host(f"{least.needed * 1.01:.0f} B")
    assert [use.name for use in check_machine(plan, small, [least.instance]).uses] == [least.name]
    with pytest.raises(UserError, match="all processes together need "):
        check_machine(plan, small)
    with pytest.raises(UserError, match="the 2 processes of this machine need "):
        check_machine(plan, small, plan.instances[:2])
