"""Shards: state, the requests they answer, and one server thread for each remote client loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.errors import RunFailed
from recsim_train.executor.books import book, booked
from recsim_train.executor.link.tensors import narrow
from recsim_train.executor.link.transport import Key, Port
from recsim_train.executor.net import kernels
from recsim_train.executor.net.rows import Numbers
from recsim_train.executor.net.sparse import RealSparse, all_entries, sparse_add, sparse_apply
from recsim_train.executor.pools import beside_loops
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.cache import fetch_rows, store_rows
from recsim_train.executor.shards.routing import Routed
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.executor.worker import EACH_ITS_OWN, DenseState, EmbeddingState
from recsim_train.placement.plan import DenseShard, EmbeddingShard, Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.trace.ledger import REQUESTS, TRANSPORT
from recsim_train.trace.record import Recorder, Span

S = TypeVar("S")
MOST = 16
"""Lookups that are kept; where none is updated, as in evaluation, older ones are forgotten."""


class Lookups(Generic[S]):
    """By number, as client and shard count them alike."""

    def __init__(self) -> None:
        self._kept: dict[int, S] = {}
        self._next = 0

    def add(self, left: S) -> int:
        """What a lookup has ``left``; its number."""
        number = self._next
        self._kept[number], self._next = left, number + 1
        self._kept.pop(number - MOST, None)
        return number

    def of(self, number: int) -> S:
        """What was left by it; earlier ones are forgotten. Raises KeyError if it is."""
        left = self._kept[number]
        self._kept = {n: kept for n, kept in self._kept.items() if n >= number}
        return left

    def items(self) -> list[tuple[int, S]]:
        """Those that are kept, the newest first."""
        return list(reversed(self._kept.items()))


class Together:
    """Waits for the gradients of some trainers, and applies their mean once."""

    def __init__(self, trainers: range, timeout: float) -> None:
        self.trainers, self._timeout = trainers, timeout
        self._turn = threading.Lock()
        self._parts: dict[int, kernels.Part] = {}
        self._waiting: list[threading.Lock] = []
        """A lock for each thread that waits, held until all have come: a condition would wake each
        of them twice, the second time for the turn that nobody needs."""

    def submit(
        self, trainer: int, part: kernels.Part, apply: Callable[[list[kernels.Part]], None]
    ) -> None:
        """Hand in one trainer's part; returns when all have been applied.

        Raises TimeoutError when a trainer stays away, RunFailed for a second part of one trainer
        before all others have come.
        """
        with self._turn:
            if trainer in self._parts:
                raise RunFailed(
                    f"two loops of trainer[{trainer}] sent a gradient for one update that is "
                    'applied together (apply="together"): one loop of a trainer may send updates'
                )
            self._parts[trainer] = part
            if len(self._parts) == len(self.trainers):
                # In trainer order, whatever the order of arrival: bit-identical repetition.
                apply([self._parts[t] for t in sorted(self._parts)])
                self._parts = {}
                waiting, self._waiting = self._waiting, []
                for other in waiting:
                    other.release()
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        with booked(REQUESTS):
            if mine.acquire(timeout=self._timeout):
                return
            with self._turn:  # unless the last one came just now
                if not mine.locked():
                    return
                names = ", ".join(f"trainer[{t}]" for t in self.trainers if t not in self._parts)
                raise TimeoutError(f"no gradient from {names} within {self._timeout:g} s")


class EmbeddingServer:
    """One embedding shard. Threads of different clients call it at once, without locks."""

    def __init__(self, plan: Plan, shard: EmbeddingShard, *, draws: bool = True) -> None:
        spec = plan.experiment
        self.rules = EmbeddingRules(plan, shard)
        self.state = EmbeddingState(spec.model, spec.training, spec.seed, shard.slices, draws=draws)
        groups = [Together(trainers, spec.execution.timeout) for trainers in plan.together]
        self.together = {t: group for group in groups for t in group.trainers}
        """By trainer, with whose gradients its own are applied; empty: each on arrival."""

    def lookup(self, routed: Routed) -> tuple[Tensor, Numbers, Numbers]:
        """(answer, places of the ids in this shard, the bag of each)."""
        with booked("lookup_pooled" if self.rules.pooled else "lookup_rows"):
            if self.rules.pooled:
                return kernels.lookup_pooled(self.state, routed)
            return *kernels.lookup_rows(self.state, routed), EACH_ITS_OWN

    def update(self, trainer: int, local: Numbers, bags: Numbers, gradient: Tensor) -> None:
        """Apply the gradient of an answer of `lookup`, at once or together with the others'."""
        name = "update_pooled" if self.rules.pooled else "update_rows"
        if self.together:
            apply = booked(name)(partial(kernels.update_together, self.state))
            self.together[trainer].submit(trainer, (local, bags, gradient), apply)
        else:
            with booked(name):
                kernels.update_pooled(self.state, local, bags, gradient)

    @booked("fetch_rows")
    def fetch(self, ids: Numbers, counts: Numbers) -> Tensor:
        """Rows with their optimizer's state."""
        return fetch_rows(self.state, torch.from_numpy(self.state.local(ids, counts)))

    @booked("store_rows")
    def store(self, ids: Numbers, counts: Numbers, rows: Tensor) -> None:
        """Overwrite them."""
        store_rows(self.state, torch.from_numpy(self.state.local(ids, counts)), rows)


class DenseServer:
    """One shard of the central dense parameters. Threads of different clients call it at once.

    Whatever reads and changes the copy takes turns: of two additions at the same time one could be
    lost, and with it a move that a replica has made already; and two elastic differences from the
    same central values would together carry the copy too far. A pull does not wait: it may find a
    part of the copy before a change and the rest after it.
    """

    def __init__(self, plan: Plan, shard: DenseShard) -> None:
        spec = plan.experiment
        self.rules = DenseRules(spec, shard)
        held = shard.start, shard.stop, central_order(plan)
        loops = len(plan.training)
        self.state = DenseState(spec.model, spec.training, spec.seed, *held, loops=loops)
        self._turn = threading.Lock()

    @booked("dense_read")
    def pull(self, values: Tensor) -> None:
        """Copy them to ``values``, of the same process."""
        kernels.dense_read(self.state, values)

    def push(self, value: Tensor, *, add: bool) -> None:
        """Step with a gradient [shard's elements], or add a difference."""
        with self._turn, booked("dense_apply"):
            if add:
                self.state.values.add_(value)
            else:
                kernels.dense_apply(self.state, value)

    def push_sparse(self, part: RealSparse, *, add: bool) -> None:
        """The same with some entries."""
        shard = self.rules.shard
        entries = all_entries(self.rules.model, part, shard.start, shard.stop)
        with self._turn, booked("sparse_apply"):
            (sparse_add if add else sparse_apply)(self.state, *entries)

    def exchange(self, parameters: Tensor, request: wire.ExchangeRequest) -> Tensor:
        """The elastic difference of the part of the copy that is asked."""
        name = "dense_elastic_new" if request.new else "dense_elastic"
        elastic = kernels.dense_elastic_new if request.new else kernels.dense_elastic
        with self._turn, booked(name):
            return elastic(self.state, parameters, request.alpha, request.start)


def central_order(plan: Plan) -> Tensor | None:
    """Which parameter each element of the central copy is; None: the same."""
    net = plan.net
    if not isinstance(net, TaggedNet):
        return None
    ranges = [cut for host in range(net.hosts) for cut in net.answered(host)]
    return torch.cat([torch.arange(start, stop) for start, stop in ranges])


class ShardTalk:
    """One client's requests to one shard: what is kept from one to the next."""

    def __init__(self, server: Any, trainer: int, rules: Any) -> None:
        """``server``: `EmbeddingServer` or `DenseServer`; ``rules``: by which requests travel."""
        self.server, self.trainer, self.rules = server, trainer, rules
        self._lookups: Lookups[tuple[Numbers, Numbers, Tensor | None, int]] = Lookups()
        """(places of the ids, the bag of each, places of the values that a mask let pass,
        examples)."""

    def answer(self, request: wire.ShardRequest, content: Any) -> Any:
        """Do what is asked; a tensor, or None where there is nothing to say. Raises ValueError for
        what does not fit what was asked before."""
        server, rules = self.server, self.rules
        match request:
            case wire.PullRequest():
                return narrow(server.state.values, request.kind(rules))
            case wire.PushRequest():
                server.push(*content, add=request.add)
            case wire.SparsePushRequest():
                server.push_sparse(content, add=request.add)
            case wire.ExchangeRequest():
                return server.exchange(*content, request)
            case wire.LookupRequest():
                answer, local, bags = server.lookup(content)
                masked = None if rules.mask is None else rules.mask.mask(answer)
                passed = None if masked is None else masked.places
                self._lookups.add((local, bags, passed, request.examples))
                return narrow(answer, request.kind(rules)) if masked is None else masked.tensor
            case wire.UpdateRequest():
                *ids, gradient = content
                local, bags, passed, examples = self._lookups.of(request.lookup)
                if request.examples != examples:
                    raise ValueError(f"a gradient of {request.examples} examples, not {examples}")
                if rules.mask is not None:
                    gradient = rules.mask.unpick(gradient, passed)
                elif not rules.pooled:
                    local = server.state.local(ids[0].numpy(), np.array(request.counts))
                server.update(self.trainer, local, bags, gradient)
                return wire.ACKNOWLEDGED if rules.acknowledged else None
            case wire.FetchRequest():
                return server.fetch(content[0].numpy(), np.array(request.counts))
            case wire.StoreRequest():
                server.store(content[0].numpy(), np.array(request.counts), content[1])
                return wire.ACKNOWLEDGED
        return None


_HANDLING = booked(REQUESTS)
_CANNOT = ValueError, LookupError, RuntimeError, ArithmeticError, MemoryError, AssertionError
"""What comes of a request that does not fit the shard."""


class Serving:
    """The loop of one server thread: requests that arrive at one port, strictly in order."""

    def __init__(
        self,
        instance: str,
        client: str,
        trainer: int,
        port: Port,
        servers: Mapping[Key, EmbeddingServer | DenseServer],
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        """``client``: whose requests, for records; ``trainer``: its own, by which sums are in
        order."""
        self.instance, self.client, self.port = instance, client, port
        self.recorder, self.clock = recorder, clock
        self.talks = {k: ShardTalk(s, trainer, s.rules) for k, s in servers.items()}
        self._at: wire.ShardRequest | None = None
        """The request at hand."""
        self.header_bytes = 0
        """What travelled beside payload so far."""

    @property
    def waiting(self) -> str:
        """What it waits for, or is at."""
        request = self._at  # the serving thread changes it
        at = "for the next request" if request is None else f"in {request.effect}"
        return f"{at} of {self.client}"

    def run(self) -> None:
        """Serve until the client says stop."""
        while True:
            shard, header, size = self.port.next_request()
            begin = self.clock()
            payload = self.port.payload(size)
            with _HANDLING:
                try:
                    request = wire.decode(header)
                    if isinstance(request, wire.StopRequest):
                        # whatever came before it has been done: who evaluates finds it
                        self.port.answer(wire.ACKNOWLEDGED)
                        return
                    self._serve(self.talks[request.service, shard], request, payload, begin)
                except _CANNOT as error:
                    name = type(error).__name__
                    raise RunFailed(
                        f"{self.instance} cannot do what {self.client} asks: {name}: {error}"
                    ) from error

    def _serve(
        self, talk: ShardTalk, request: wire.ShardRequest, payload: Tensor, begin: float
    ) -> None:
        self._at = request
        answer = talk.answer(request, request.unpack(talk.rules, payload))
        if answer is not None:
            self.port.answer(answer)
        sent = 0 if answer is None or answer is wire.ACKNOWLEDGED else answer.nbytes
        self.header_bytes = self.port.head_bytes
        if request.iteration >= 0:
            effect, times = f"serve_{request.effect}", (begin, self.clock())
            where = (self.instance, self.client, request.iteration)
            self.recorder.add(Span(*where, effect, request.service, *times, sent))
        self._at = None


def serve_in_thread(serving: Serving, failed: Callable[[BaseException], None]) -> threading.Thread:
    """Start a server thread; what ends it early is handed to ``failed``."""
    run = book("server", TRANSPORT)(serving.run)  # until something else is booked
    return beside_loops(run, f"serve {serving.client}", failed)
