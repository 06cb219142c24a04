"""Fetch and Store: rows with their optimizer's state between a loop and all shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recsim_train.executor import kernels
from recsim_train.executor.cache import fetch_rows, store_rows
from recsim_train.executor.transport import Header, Kind, Port, join, size_of
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.workload.shape import ID_BYTES, stored_row_bytes

if TYPE_CHECKING:
    from recsim_train.executor.services import EmbeddingServer
    from recsim_train.executor.stubs import EmbeddingStub


def fetch(stub: EmbeddingStub, ids: RealIds, iteration: int) -> tuple[RealRows, int]:
    """Rows of distinct ids and the payload bytes that this side sent.

    Shards that hold none of them are not asked.
    """
    routed = [kernels.route_ids(ids, e.shard.slices, stub.split) for e in stub.ends]
    pending = stub.new_pending()
    state = stub.ends[0].server.state
    width = stored_row_bytes(state.model, state.training) // state.rows.element_size()
    answers = [state.rows.new_empty((part.values.numel(), width)) for part in routed]
    for end, part, answer in zip(stub.ends, routed, answers, strict=True):
        if end.channel is not None and part.values.numel():
            end.channel.expect(pending, answer)
            header = Header(Kind.FETCH, iteration, size_of(part.values), counts=part.counts)
            end.channel.request(pending, header, part.values)
    for place, (end, part) in enumerate(zip(stub.ends, routed, strict=True)):
        if end.channel is None:
            here = end.server.state
            answers[place] = fetch_rows(here, here.local(part.values, part.counts))
    pending.wait()
    parts = [
        (end.shard.slices, part.counts, answer)
        for end, part, answer in zip(stub.ends, routed, answers, strict=True)
    ]
    return kernels.assemble_rows(state.model, ids, parts), pending.bytes


def store(stub: EmbeddingStub, rows: RealRows, iteration: int) -> int:
    """Overwrite rows at the shards, which acknowledge; the payload bytes that were sent."""
    routed = [kernels.route_ids(rows.ids, e.shard.slices, stub.split) for e in stub.ends]
    slices = [(e.shard.slices, r.counts) for e, r in zip(stub.ends, routed, strict=True)]
    pieces = kernels.route_gradient(rows, slices)
    pending = stub.new_pending()
    for end, part, piece in zip(stub.ends, routed, pieces, strict=True):
        if end.channel is not None and part.values.numel():
            end.channel.expect(pending, torch.empty(1, dtype=torch.int64))
            payload = join([part.values, piece])
            header = Header(Kind.STORE, iteration, size_of(payload), counts=part.counts)
            end.channel.request(pending, header, payload)
    for end, part, piece in zip(stub.ends, routed, pieces, strict=True):
        if end.channel is None:
            here = end.server.state
            store_rows(here, here.local(part.values, part.counts), piece)
    pending.wait()
    return pending.bytes


def serve(server: EmbeddingServer, port: Port, header: Header, payload: Tensor) -> int:
    """A shard's answer to a FETCH or a STORE; the payload bytes that it sent."""
    state = server.state
    cut = sum(header.counts) * ID_BYTES
    local = state.local(payload[:cut].view(torch.int64), header.counts)
    if header.kind == Kind.FETCH:
        return port.answer(fetch_rows(state, local))
    values = payload[cut:].view(state.rows.dtype).view(len(local), -1)
    store_rows(state, local, values)
    # no payload: an acknowledgement has no content
    port.answer(torch.ones(1, dtype=torch.int64))
    return 0
