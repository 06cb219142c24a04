"""What loops and shards say to each other: headers and payloads of every kind, there and back."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.config.experiment import (
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.link.tensors import as_bytes, split_bytes
from recsim_train.executor.net.sparse import RealSparse, cut_sparse, whole_places
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.routing import Routed
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import header_bytes

TABLES = (Table(rows=7), Table(rows=10, ids=3), Table(rows=6, ids=4, variable=True))
MODEL = Model(embedding_dim=4, bottom_mlp=(300, 4), top_mlp=(2, 1), tables=TABLES, dtype="float64")
INT = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": INT,
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False),
    "tuple[int, ...]": st.lists(INT, max_size=5).map(tuple),
}


def requests(kind: type[wire.ShardRequest]) -> st.SearchStrategy[wire.ShardRequest]:
    return st.builds(kind, *(VALUES[str(f.type)] for f in dataclasses.fields(kind)))


def plan_of(kind: str = "flat_ps", optimizer: str = "rowwise_adagrad", **options: Any) -> Plan:
    choice = StrategyChoice(kind=kind, options=options)
    spec = Experiment(
        name="wire",
        model=MODEL,
        roles=Roles(trainers=2, embedding_servers=2, dense_servers=2),
        placement=Placement(split_rows_above=0.2),
        training=Training(sparse_optimizer=optimizer),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def embedding_rules(plan: Plan) -> EmbeddingRules:
    assert plan.embedding is not None
    return EmbeddingRules(plan, plan.embedding.shards[0])


def dense_rules() -> DenseRules:
    plan = plan_of()
    assert plan.dense is not None
    return DenseRules(plan.experiment, plan.dense.shards[1])


@pytest.mark.parametrize("kind", wire.KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data(), padding=st.binary(max_size=16))
@settings(max_examples=40)
def test_a_header_says_what_was_asked(
    kind: type[wire.ShardRequest], data: st.DataObject, padding: bytes
) -> None:
    request = data.draw(requests(kind))
    header = wire.encode(request)
    read = wire.decode(header + padding)
    assert read == request
    assert [type(v) for v in vars(read).values()] == [type(v) for v in vars(request).values()]
    counts = getattr(request, "counts", None)
    scalars = len(dataclasses.fields(kind)) - (counts is not None)
    assert len(header) == 8 * (1 + scalars + (0 if counts is None else 1 + len(counts)))


def test_every_header_has_room() -> None:
    """Five numbers, and one for each slice of the largest shard: no more and no less."""
    plan = plan_of()
    assert plan.embedding is not None
    slots = max(len(shard.slices) for shard in plan.embedding.shards)
    assert header_bytes(plan) == 8 * (5 + slots)
    largest = wire.UpdateRequest(1, 2, 3, (4,) * slots), wire.ExchangeRequest(1, 0.5, 2, new=True)
    assert max(len(wire.encode(request)) for request in largest) == header_bytes(plan)
    assert max(len(dataclasses.fields(kind)) for kind in wire.KINDS) == 4


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\1\0",
        struct.pack("<2q", len(wire.KINDS), 0),
        struct.pack("<2q", -1, 0),
        wire.encode(wire.ExchangeRequest(1, 0.5, 2, new=True))[:-8],
        wire.encode(wire.LookupRequest(1, 2, (3, 4)))[:-8],
        struct.pack("<4q", wire.KINDS.index(wire.LookupRequest), 1, 2, -3),
    ],
    ids=["empty", "short", "above", "below", "no last field", "no last count", "negative count"],
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match=f"^{len(header)} bytes are no request's header: "):
        wire.decode(header)


def refused(request: Any, rules: list[Any], payload: torch.Tensor) -> None:
    for wrong in (payload[:-1], torch.cat([payload, payload[:1]])):
        with pytest.raises(ValueError, match=rf"^a payload of {wrong.numel()} bytes where \d+ are"):
            request.unpack(*rules, wrong)


@given(counts=st.data(), examples=st.integers(1, 5))
@settings(max_examples=30)
def test_ids_arrive_with_the_lengths_that_travel(counts: st.DataObject, examples: int) -> None:
    rules = embedding_rules(plan_of())
    slices = len(rules.shard.slices)
    assert sum(rules.sends_lengths) > 0
    bags = counts.draw(
        st.lists(
            st.lists(st.integers(0, 3), min_size=examples, max_size=examples),
            min_size=slices,
            max_size=slices,
        )
    )
    sizes = tuple(map(sum, bags))
    ids = np.arange(sum(sizes))
    sent = rules.sends_lengths
    lengths = np.array([bags[s] for s in np.flatnonzero(sent)], np.int32).reshape(-1)
    asked = Routed(ids, np.array(sizes), sent, lengths, examples)
    request = wire.LookupRequest(3, examples, sizes)
    payload = as_bytes(*request.parts(asked))
    assert payload.numel() == 8 * len(ids) + 4 * examples * sum(rules.sends_lengths)
    arrived = request.unpack(rules, payload)
    assert np.array_equal(arrived.values, ids)
    assert (arrived.sizes, arrived.batch) == (sizes, examples)
    assert np.array_equal(arrived.varying, sent)
    assert np.array_equal(arrived.lengths, lengths)
    refused(request, [rules], as_bytes(payload, torch.ones(1)))


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
@settings(max_examples=20)
def test_rows_arrive_with_their_ids(optimizer: str, counts: tuple[int, ...]) -> None:
    rules = embedding_rules(plan_of(optimizer=optimizer, pooling="worker"))
    counts = (*counts, 3, 0, 2, 1)[: len(rules.shard.slices)]
    width = 4 if optimizer == "sgd" else 5
    ids, rows = torch.arange(sum(counts)), torch.randn(sum(counts), width).double()
    fetch = wire.FetchRequest(0, counts)
    assert torch.equal(fetch.unpack(rules, as_bytes(ids))[0], ids)
    assert fetch.answer(rules).tensor.shape == rows.shape
    store = wire.StoreRequest(0, counts)
    for there, here in zip(store.unpack(rules, as_bytes(ids, rows)), (ids, rows), strict=True):
        assert torch.equal(there, here)
    update, gradient = wire.UpdateRequest(0, 0, 2, counts), torch.randn(sum(counts), 4).double()
    found = update.unpack(rules, as_bytes(ids, gradient))
    assert torch.equal(found[0], ids)
    assert torch.equal(found[1], gradient)
    assert wire.LookupRequest(0, 2, counts).answer(rules).tensor.shape == gradient.shape
    with pytest.raises(ValueError, match=r"^ids of \d+ slices at a shard of \d+$"):
        wire.FetchRequest(0, (*counts, 1)).unpack(rules, as_bytes(ids))
    refused(fetch, [rules], as_bytes(ids, torch.ones(1)))
    refused(store, [rules], as_bytes(ids, rows, torch.ones(1)))
    refused(update, [rules], as_bytes(ids, gradient, torch.ones(1)))


@pytest.mark.parametrize("mask", [None, "table", "sample"])
def test_gradients_of_vectors_arrive_in_the_form_of_what_travels(mask: str | None) -> None:
    compression = {"kind": "dct", "mode": "mp", "mp_density": 0.25, "mask": mask}
    rules = embedding_rules(plan_of(**({"compression": compression} if mask else {})))
    tables, examples = len(rules.shard.slices), 3
    shape = {
        None: (tables, examples, 4),
        "table": (tables * examples, 1),
        "sample": (examples, tables),
    }[mask]
    update, gradient = wire.UpdateRequest(0, 0, examples, ()), torch.randn(shape).double()
    ids, found = update.unpack(rules, as_bytes(gradient))
    assert not len(ids)
    assert torch.equal(found, gradient)
    refused(update, [rules], as_bytes(gradient))
    answer = wire.LookupRequest(0, examples, (2,) * tables).answer(rules).tensor
    assert answer.numel() == gradient.numel() * (1 if mask is None else 9)  # values and places


def test_values_of_a_dense_shard_arrive() -> None:
    rules = dense_rules()
    values = torch.randn(rules.shard.elements).double()
    push = wire.PushRequest(0, add=True)
    assert torch.equal(push.unpack(rules, as_bytes(values))[0], values)
    refused(push, [rules], as_bytes(values))
    exchange = wire.ExchangeRequest(0, 0.5, 3, new=False)
    assert torch.equal(exchange.unpack(rules, as_bytes(values[3:9]))[0], values[3:9])
    refused(exchange, [rules], as_bytes(values[3:9]))


@given(places=st.sets(st.integers(0, 1499), max_size=50))
@settings(max_examples=20)
def test_entries_of_a_dense_shard_arrive(places: set[int]) -> None:
    rules = dense_rules()
    fixed, found = whole_places(MODEL, 0, rules.shard.stop), torch.tensor(sorted(places)).long()
    sent = RealSparse(torch.empty(0), fixed.double(), found, torch.randn(len(found)).double())
    part = cut_sparse(MODEL, sent, rules.shard.start, rules.shard.stop)
    request = wire.SparsePushRequest(0, add=False, entries=len(part.places))
    read = request.unpack(rules, part.tensor)
    for name in ("whole", "places", "values"):
        assert torch.equal(getattr(read, name), getattr(part, name))
    refused(request, [rules], part.tensor)


@given(
    parts=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([torch.uint8, torch.int32, torch.float64]))
    )
)
def test_bytes_part_into_the_numbers_they_were(parts: list[tuple[int, torch.dtype]]) -> None:
    """Wherever numbers start, also where their type could not be looked at in place."""
    numbers = [torch.arange(count).to(kind) for count, kind in parts]
    payload = as_bytes(torch.empty(0, dtype=torch.uint8), *numbers)
    for there, here in zip(split_bytes(payload, *parts), numbers, strict=True):
        assert torch.equal(there, here)
        assert there.dtype == here.dtype
