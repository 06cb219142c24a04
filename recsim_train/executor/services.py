"""Shards: state, the requests they answer, and one server thread for each remote client loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsim_train.executor import kernels, kernels_sync
from recsim_train.executor.cache import fetch_rows, store_rows
from recsim_train.executor.kernels import Routed
from recsim_train.executor.masks import PooledMask, RealMasked
from recsim_train.executor.sparse import read_sparse, sparse_add, sparse_apply
from recsim_train.executor.state import DenseState, EmbeddingState
from recsim_train.executor.transport import Header, Kind, Port
from recsim_train.placement.plan import DenseShard, EmbeddingShard, Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.trace.record import Recorder, Span
from recsim_train.workload.shape import ID_BYTES, LENGTH_BYTES

EFFECTS = {
    Kind.LOOKUP: "serve_lookup",
    Kind.UPDATE: "serve_update",
    Kind.PULL: "serve_pull",
    Kind.PUSH: "serve_push",
    Kind.EXCHANGE: "serve_exchange",
    Kind.EXCHANGE_NEW: "serve_exchange",
    Kind.PUSH_SPARSE: "serve_push",
    Kind.FETCH: "serve_fetch",
    Kind.STORE: "serve_store",
}
ACKNOWLEDGED = torch.ones(1, dtype=torch.int64)
"""An acknowledgement has no content: it counts as a header, not as payload."""


class Together:
    """Waits for the gradients of some trainers, sums them, applies the mean once."""

    def __init__(self, trainers: range, timeout: float) -> None:
        self.trainers, self._timeout = trainers, timeout
        self._condition = threading.Condition()
        self._parts: dict[int, tuple[Tensor, Tensor]] = {}
        self._round = 0

    def submit(
        self, trainer: int, local: Tensor, gradient: Tensor, apply: Callable[[Tensor, Tensor], None]
    ) -> None:
        """Hand in one trainer's rows and gradient; returns when the sum has been applied.

        Raises TimeoutError when a trainer stays away.
        """
        with self._condition:
            mine = self._round
            self._parts[trainer] = (local, gradient)
            if len(self._parts) == len(self.trainers):
                # In trainer order, whatever the order of arrival: bit-identical repetition.
                parts = [self._parts[t] for t in sorted(self._parts)]
                apply(
                    torch.cat([p[0] for p in parts]),
                    torch.cat([p[1] for p in parts]).div_(len(self.trainers)),
                )
                self._parts = {}
                self._round += 1
                self._condition.notify_all()
                return
            if not self._condition.wait_for(lambda: self._round != mine, self._timeout):
                missing = sorted(set(self.trainers) - set(self._parts))
                names = ", ".join(f"trainer[{t}]" for t in missing)
                raise TimeoutError(f"no gradient from {names} within {self._timeout:g} s")


class EmbeddingServer:
    """One embedding shard. Threads of different clients call it at once, without locks."""

    def __init__(self, plan: Plan, shard: EmbeddingShard, *, rules_only: bool = False) -> None:
        assert plan.embedding is not None
        spec = plan.experiment
        self.shard = shard
        self.pooling = plan.embedding.service.pooling
        # A client of a remote shard needs to know its rules, not to hold its rows.
        held = () if rules_only else shard.slices
        self.state = EmbeddingState(spec.model, spec.training, spec.seed, held)
        self.width = shard.slices[0].width(spec.model.row_width)
        """Numbers of each row that it holds."""
        self.split = plan.embedding.split_tables
        tables = spec.model.tables
        self.sends_lengths = tuple(
            self.pooling == "server" and (tables[s.table].variable or s.table in self.split)
            for s in shard.slices
        )
        service = plan.embedding.service
        self.mask = (
            PooledMask(spec.model, len(shard.slices), service.keep, service.mask)
            if service.keep is not None
            else None
        )
        groups = [Together(trainers, spec.execution.timeout) for trainers in plan.together]
        self.together = {t: group for group in groups for t in group.trainers}
        """By trainer, with whose gradients its own are applied; empty: each on arrival."""

    def lookup(self, routed: Routed) -> tuple[Tensor, Tensor, Tensor | None]:
        """(answer, places of the ids in this shard, bag starts)."""
        local = self.state.local(routed.values, routed.counts)
        if self.pooling == "worker":
            return kernels.lookup_rows(self.state, local), local, None
        starts = routed.starts()
        return kernels.lookup_pooled(self.state, local, starts, routed.batch), local, starts

    def update(self, trainer: int, local: Tensor, starts: Tensor | None, gradient: Tensor) -> None:
        """Apply the gradient of an answer of `lookup`, at once or together with the others'."""
        if not self.together:
            if self.pooling == "worker":
                kernels.update_rows(self.state, local, gradient)
            else:
                kernels.update_pooled(self.state, local, starts, gradient)
            return
        flat = gradient.reshape(-1, gradient.shape[-1])
        if starts is not None:
            ends = torch.cat([starts[1:], torch.tensor([local.numel()])])
            flat = flat.repeat_interleave(ends - starts, dim=0)

        def apply(places: Tensor, rows: Tensor) -> None:
            kernels.update_rows(self.state, places, rows, distinct=False)

        self.together[trainer].submit(trainer, local, flat, apply)

    def unpack(self, header: Header, payload: Tensor) -> Routed:
        """Ids and lengths from a request's bytes."""
        total = sum(header.counts)
        values = payload[: total * ID_BYTES].view(torch.int64)
        lengths: list[Tensor | None] = []
        position = total * ID_BYTES
        for sent in self.sends_lengths:
            if not sent:
                lengths.append(None)
                continue
            stop = position + header.batch * LENGTH_BYTES
            # A copy, because a view of int32 must start at a multiple of its size.
            lengths.append(payload[position:stop].clone().view(torch.int32))
            position = stop
        return Routed(values, header.counts, tuple(lengths), header.batch)

    def pack(self, routed: Routed) -> list[Tensor]:
        """The tensors that a lookup request carries."""
        sent = [
            length.to(torch.int32)
            for length, wanted in zip(routed.lengths, self.sends_lengths, strict=True)
            if wanted and length is not None
        ]
        return [routed.values, *sent]


class DenseServer:
    """One shard of the central dense parameters. Threads of different clients call it at once.

    Whatever reads and changes the copy takes turns: of two additions at the same time one could be
    lost, and with it a move that a replica has made already; and two elastic differences from the
    same central values would together carry the copy too far. A pull does not wait: it may find a
    part of the copy before a change and the rest after it.
    """

    def __init__(self, plan: Plan, shard: DenseShard) -> None:
        spec = plan.experiment
        self.shard, self.model = shard, spec.model
        order = central_order(plan)
        cut = (shard.start, shard.stop)
        self.state = DenseState(spec.model, spec.training, spec.seed, *cut, order)
        self._turn = threading.Lock()

    def push(self, value: Tensor, *, add: bool) -> None:
        """Step with a gradient [shard's elements], or add a difference."""
        with self._turn:
            if add:
                self.state.values.add_(value)
            else:
                kernels.dense_apply(self.state, value)

    def push_sparse(self, places: Tensor, values: Tensor, *, add: bool) -> None:
        """The same with entries [entries] at ``places``, which count from the shard's start."""
        with self._turn:
            (sparse_add if add else sparse_apply)(self.state, places, values)

    def exchange(self, parameters: Tensor, alpha: float, start: int, *, new: bool) -> Tensor:
        """The elastic difference of a part of the copy from element ``start`` of the shard on."""
        elastic = kernels_sync.dense_elastic_new if new else kernels_sync.dense_elastic
        with self._turn:
            return elastic(self.state, parameters, alpha, start)


def central_order(plan: Plan) -> Tensor | None:
    """Which parameter each element of the central copy is; None: the same."""
    net = plan.net
    if not isinstance(net, TaggedNet):
        return None
    ranges = [cut for host in range(net.hosts) for cut in net.answered(host)]
    return torch.cat([torch.arange(start, stop) for start, stop in ranges])


@dataclass(slots=True)
class Client:
    """Who is served by a thread: for records and for summing in trainer order."""

    name: str
    trainer: int


class Serving:
    """The loop of one server thread: requests of one client to one shard, strictly in order."""

    def __init__(
        self,
        instance: str,
        client: Client,
        port: Port,
        server: EmbeddingServer | DenseServer,
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        self.instance, self.client, self.port = instance, client, port
        self.server, self.recorder, self.clock = server, recorder, clock
        self._last: tuple[Tensor, Tensor | None] | None = None
        self._masked: RealMasked | None = None
        self.waiting = "for the first request"

    def run(self) -> None:
        """Serve until the client says stop."""
        while True:
            self.waiting = f"for the next request of {self.client.name}"
            header = self.port.next_request()
            if header.kind == Kind.STOP:
                return
            self.waiting = f"in {header.kind.name.lower()} of {self.client.name}"
            begin = self.clock()
            if isinstance(self.server, EmbeddingServer):
                sent, name = self._embedding(self.server, header), "embedding"
            else:
                sent, name = self._dense(self.server, header), "dense"
            if header.iteration >= 0:
                effect = EFFECTS[header.kind]
                span = Span(
                    self.instance,
                    self.client.name,
                    header.iteration,
                    effect,
                    name,
                    begin,
                    self.clock(),
                    sent,
                )
                self.recorder.add(span)

    def _embedding(self, server: EmbeddingServer, header: Header) -> int:
        state = server.state
        buffer = torch.empty(header.payload_bytes, dtype=torch.uint8)
        payload = self.port.payload(buffer)
        if header.kind in (Kind.FETCH, Kind.STORE):
            return self._rows(state, header, payload)
        if header.kind == Kind.LOOKUP:
            answer, local, starts = server.lookup(server.unpack(header, payload))
            self._last = (local, starts)
            if server.mask is not None:
                self._masked = server.mask.mask(answer)
                return self.port.answer(self._masked.tensor)
            return self.port.answer(answer)
        if server.pooling == "worker":
            cut = sum(header.counts) * ID_BYTES
            values = payload[:cut].view(torch.int64)
            local, starts = state.local(values, header.counts), None
            gradient = payload[cut:].view(state.rows.dtype).view(-1, state.rows.shape[1])
        else:
            assert self._last is not None
            local, starts = self._last
            gradient = payload.view(state.rows.dtype)
            if server.mask is not None:
                assert self._masked is not None
                places = self._masked.places
                gradient = server.mask.unpick(gradient.view(places.shape), places)
            gradient = gradient.view(len(state.slices), header.batch, state.rows.shape[1])
        server.update(self.client.trainer, local, starts, gradient)
        if server.together:
            self.port.answer(ACKNOWLEDGED)
        return 0

    def _rows(self, state: EmbeddingState, header: Header, payload: Tensor) -> int:
        """Rows with their optimizer's state: handed out, or overwritten."""
        cut = sum(header.counts) * ID_BYTES
        local = state.local(payload[:cut].view(torch.int64), header.counts)
        if header.kind == Kind.FETCH:
            return self.port.answer(fetch_rows(state, local))
        values = payload[cut:].view(state.rows.dtype).view(len(local), -1)
        store_rows(state, local, values)
        self.port.answer(ACKNOWLEDGED)
        return 0

    def _dense(self, server: DenseServer, header: Header) -> int:
        if header.kind == Kind.PULL:
            return self.port.answer(kernels.dense_read(server.state))
        if header.kind == Kind.PUSH_SPARSE:
            payload = self.port.payload(torch.empty(header.payload_bytes, dtype=torch.uint8))
            cut = (server.shard.start, server.shard.stop)
            part = read_sparse(server.model, payload, header.batch, *cut)
            server.push_sparse(*part, add=bool(header.alpha))
            return 0
        count = header.payload_bytes // server.state.values.element_size()
        received = self.port.payload(server.state.values.new_empty(count))
        if header.kind == Kind.PUSH:
            server.push(received, add=bool(header.alpha))
            return 0
        new = header.kind == Kind.EXCHANGE_NEW
        return self.port.answer(server.exchange(received, header.alpha, header.batch, new=new))


def serve_in_thread(serving: Serving, failed: Callable[[BaseException], None]) -> threading.Thread:
    """Start a server thread; what ends it early is handed to ``failed``."""

    def body() -> None:
        torch.set_num_threads(1)
        try:
            serving.run()
        except BaseException as error:
            failed(error)

    thread = threading.Thread(target=body, name=f"serve {serving.client.name}", daemon=True)
    thread.start()
    return thread


def elapsed_clock(start: float) -> Callable[[], float]:
    """Seconds since ``start`` on the machine's monotonic clock."""
    return lambda: time.monotonic() - start


def hosted(plan: Plan, instance: str) -> Sequence[EmbeddingShard | DenseShard]:
    """The shards that a process holds, embedding first."""
    found: list[EmbeddingShard | DenseShard] = []
    if plan.embedding:
        found += [s for s in plan.embedding.shards if s.host.name == instance]
    if plan.dense:
        found += [s for s in plan.dense.shards if s.host.name == instance]
    return found
