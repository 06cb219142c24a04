"""Rounded requests and lookups ahead compute what a loop with that rounding and staleness does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

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
    Training,
)
from recsim_train.executor.link.transport import Transport
from recsim_train.executor.net.model import initial_dense, initial_rows
from recsim_train.executor.shards import wire
from recsim_train.executor.shards.services import DenseServer
from recsim_train.executor.shards.stubs import DenseStub, EmbeddingStub, Near, Remote
from recsim_train.executor.shards.wire import DenseRules, EmbeddingRules
from recsim_train.executor.values import RealDense, RealIds, RealRows
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from tests.executor.by_hand import Given, Rows, gradients
from tests.executor.group_world import Fed, given
from tests.executor.keeping import execute_keeping
from tests.executor.test_equivalence import TABLES, distance

STEPS, RATE = 9, 0.1
Round = Callable[[Tensor], Tensor]


def to_float16(numbers: Tensor) -> Tensor:
    return torch.from_numpy(numbers.numpy().astype(np.float16).astype(np.float64))


def to_bfloat16(numbers: Tensor) -> Tensor:
    """The upper 16 bits of a float32, rounded to nearest, ties to even."""
    bits = numbers.numpy().astype(np.float32).view(np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32)
    return torch.from_numpy(kept.view(np.float32).astype(np.float64))


ROUND: dict[str, Round] = {
    "full": lambda numbers: numbers.clone(),
    "float16": to_float16,
    "bfloat16": to_bfloat16,
}


def plan_of(roles: Roles, choice: StrategyChoice, batch: int, **execution: object) -> Plan:
    net = {"embedding_dim": 4, "bottom_mlp": (8, 4), "top_mlp": (8, 1), "dtype": "float64"}
    model = Model(**net, tables=TABLES)
    training = Training(
        batch_size=batch, steps=STEPS, warmup_steps=0, dense_lr=RATE, sparse_lr=RATE
    )
    spec = Experiment(
        name="overlap",
        model=model,
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000)),
        roles=roles,
        training=training,
        execution=Execution(**execution),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def trained(plan: Plan, folder: Path) -> tuple[list[Tensor], dict[str, Tensor], Tensor]:
    """(tables, dense elements by shard, trainer 0's replica)."""
    folder.mkdir()
    execute_keeping(plan, folder)
    tables = [torch.full((t.rows, 4), torch.nan).double() for t in TABLES]
    dense: dict[str, Tensor] = {}
    replica = torch.empty(0)
    for path in sorted(folder.glob("*.pt")):
        for name, value in torch.load(path, weights_only=True).items():
            if name.startswith("embedding"):
                slices, held = value
                sizes = [stop - start for _, start, stop, *_ in slices]
                for (table, start, stop, *_), rows in zip(slices, held.split(sizes), strict=True):
                    tables[table][start:stop] = rows
            elif name.startswith("dense"):
                dense[name] = value[1]
            elif path.name == "trainer[0].pt":
                replica = value
    return tables, dense, replica


class Lookup:
    """One batch's vectors as they were when it was looked up, by whole bags or row by row."""

    def __init__(self, batch: Given, tables: list[Tensor], rounded: Round, pooling: str) -> None:
        self.batch, self.rounded, self.pooling = batch, rounded, pooling
        self.sizes = [len(table) for table in tables]
        held = tables if pooling == "server" else [rounded(table) for table in tables]
        self.pooled = []
        for table, bags in zip(held, batch.bags, strict=True):
            vectors = torch.stack([table[ids].sum(0) for ids in bags])
            self.pooled.append(rounded(vectors) if pooling == "server" else vectors)

    def learn(self, w: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Gradients: of the parameters; of every table, as its update arrives."""
        each = [[torch.tensor([i]) for i in range(len(bags))] for bags in self.batch.bags]
        alone = Given(self.batch.features, self.batch.labels, each)
        dense, vectors = gradients(w, self.pooled, alone, (8, 4), (8, 1))
        sent = []
        for size, bags, gradient in zip(self.sizes, self.batch.bags, vectors, strict=True):
            lines = self.rounded(gradient) if self.pooling == "server" else gradient
            table = torch.zeros(size, 4).double()
            for line, ids in zip(lines, bags, strict=True):
                for row in ids.tolist():
                    table[row] += line
            sent.append(table if self.pooling == "server" else self.rounded(table))
        return dense, sent


def start(plan: Plan) -> tuple[Rows, Tensor]:
    spec = plan.experiment
    tables = [
        initial_rows(spec.model, spec.seed, t, 0, table.rows) for t, table in enumerate(TABLES)
    ]
    return Rows(tables, RATE, adagrad=True), initial_dense(spec.model, spec.seed)


CASES = [
    # prefetch, type on the wire, pooling
    (0, "bfloat16", "server"),
    (0, "float16", "worker"),
    (1, "full", "server"),
    (2, "full", "worker"),
    (3, "bfloat16", "server"),
    (8, "float16", "server"),
    (STEPS - 1, "bfloat16", "worker"),
]


@pytest.mark.parametrize(("prefetch", "kind", "pooling"), CASES)
def test_one_downpour_worker_by_the_rule(
    prefetch: int, kind: str, pooling: str, tmp_path: Path
) -> None:
    plan = downpour(prefetch, pooling, wire=kind)
    wanted_tables, central = by_rule(plan, prefetch, kind, pooling)
    tables, shards, evaluated = trained(plan, tmp_path / "run")
    assert distance(torch.cat([shards[name] for name in sorted(shards)]), central) < 1e-12
    assert distance(evaluated, central) < 1e-12  # outside of training nothing is rounded
    for found, wanted in zip(tables, wanted_tables, strict=True):
        assert distance(found, wanted) < 1e-12


def downpour(prefetch: int, pooling: str, **execution: object) -> Plan:
    options = {"prefetch": prefetch, "pooling": pooling}
    choice = StrategyChoice(kind="flat_ps", options=options)
    return plan_of(Roles(embedding_servers=2, dense_servers=2), choice, 12, **execution)


def by_rule(plan: Plan, prefetch: int, kind: str, pooling: str) -> tuple[list[Tensor], Tensor]:
    """In step t the lookup of batch t + d is sent, then w is pulled, then batch t computed."""
    rounded = ROUND[kind]
    rows, central = start(plan)
    batches = [given(plan, batch) for batch in Fed(plan, 0).batches]
    looked: list[Lookup] = []
    for step in range(STEPS):
        for batch in batches[len(looked) : step + prefetch + 1]:
            looked.append(Lookup(batch, rows.tables, rounded, pooling))
        dense, sparse = looked[step].learn(rounded(central))
        rows.step(sparse)
        central -= RATE * rounded(dense)
    return rows.tables, central


@pytest.mark.parametrize(
    ("prefetch", "kind", "servers"),
    [
        (1, "full", 2),
        (2, "bfloat16", 2),
        (2, "full", 0),
    ],
)
def test_local_steps_of_several_trainers_by_the_rule(
    prefetch: int, kind: str, servers: int, tmp_path: Path
) -> None:
    """All trainers advance together: a lookup ahead misses d of their common updates, no more and
    no fewer, whoever is first."""
    choice = StrategyChoice(kind="localsgd", options={"every": 2, "prefetch": prefetch})
    roles = Roles(trainers=2, embedding_servers=servers)
    plan = plan_of(roles, choice, 8, wire=kind)
    rounded = ROUND[kind]
    rows, first = start(plan)
    replicas = [first, first.clone()]
    fed = [[given(plan, batch) for batch in Fed(plan, t).batches] for t in range(2)]
    looked: list[list[Lookup]] = []
    for step in range(STEPS):
        for batches in list(zip(*fed, strict=True))[len(looked) : step + prefetch + 1]:
            looked.append([Lookup(b, rows.tables, rounded, "server") for b in batches])
        learned = [x.learn(w) for x, w in zip(looked[step], replicas, strict=True)]
        rows.step([sum(parts) / 2 for parts in zip(*(g for _, g in learned), strict=True)])
        for w, (dense, _) in zip(replicas, learned, strict=True):
            w.sub_(RATE * dense)
        if step % 2 == 1 or step == STEPS - 1:
            mean = (replicas[0] + replicas[1]) / 2
            for w in replicas:
                w.copy_(mean)
    tables, _, replica = trained(plan, tmp_path / "run")
    assert distance(replica, replicas[0]) < 1e-12
    for found, wanted in zip(tables, rows.tables, strict=True):
        assert distance(found, wanted) < 1e-12


@pytest.mark.parametrize(("prefetch", "kind"), [(1, "full"), (2, "bfloat16")])
def test_a_group_of_hosts_by_the_rule(prefetch: int, kind: str, tmp_path: Path) -> None:
    """Hosts that share a net act as one trainer: their rows are equally old."""
    options = {"hosts": 2, "outer": "none", "prefetch": prefetch}
    choice = StrategyChoice(kind="hierarchical", options=options)
    plan = plan_of(Roles(trainers=2, embedding_servers=2), choice, 8, wire=kind)
    rows, w = start(plan)
    fed = [[given(plan, batch) for batch in Fed(plan, t).batches] for t in range(2)]
    looked: list[list[Lookup]] = []
    for step in range(STEPS):
        for batches in list(zip(*fed, strict=True))[len(looked) : step + prefetch + 1]:
            looked.append([Lookup(b, rows.tables, ROUND[kind], "server") for b in batches])
        learned = [x.learn(w) for x in looked[step]]
        rows.step([sum(parts) / 2 for parts in zip(*(g for _, g in learned), strict=True)])
        w -= RATE * (learned[0][0] + learned[1][0]) / 2
    tables, _, replica = trained(plan, tmp_path / "run")
    assert distance(replica, w) < 1e-12
    for found, wanted in zip(tables, rows.tables, strict=True):
        assert distance(found, wanted) < 1e-12


def test_each_rounding_and_each_staleness_learns_something_else() -> None:
    """So that what is compared above could fail."""
    plan = downpour(0, "server")
    learned = [
        torch.cat([*tables, central.view(-1, 1).expand(-1, 4)])
        for d, kind in [(0, "full"), (1, "full"), (2, "full"), (0, "float16"), (0, "bfloat16")]
        for tables, central in [by_rule(plan, d, kind, "server")]
    ]
    for number, one in enumerate(learned):
        assert all(distance(one, other) > 1e-6 for other in learned[:number])


def test_a_push_and_an_update_are_not_waited_for_while_their_server_is_busy() -> None:
    """A loop computes on beside them as soon as the system has taken them."""
    plan = downpour(1, "server")
    assert plan.dense is not None
    assert plan.embedding is not None
    store, patience = HashStore(), timedelta(seconds=20)
    shards = plan.embedding.shards[0], plan.dense.shards[0]
    client = Transport(plan, 0, store, patience, [])
    server = Transport(plan, 1, store, patience, [0])
    channels = [client.channel(0, 0, 1) for _ in shards]
    dense = DenseStub(
        [Remote(DenseRules(plan.experiment, shards[1]), channels[1])], torch.zeros(1).double()
    )
    embedding = EmbeddingStub([Remote(EmbeddingRules(plan, shards[0]), channels[0])])
    batches = Fed(plan, 0).batches[:3]
    for batch in batches:  # nobody reads what is sent, let alone answers
        assert isinstance(batch.ids, RealIds)
        embedding.lookup(batch.ids, 0)
        gradient = torch.ones(len(TABLES), batch.size, 4).double()
        assert embedding.update(RealRows(gradient, batch.ids), 0)()[0] is None
        pushed = torch.ones(plan.dense.shards[-1].stop).double()
        assert dense.push(RealDense(pushed), 0)()[0] is None
    port = server.port(0, 0)
    for _ in batches:
        for kind in (wire.LookupRequest, wire.UpdateRequest, wire.PushRequest):
            asked, header, size = port.next_request()
            assert (asked, type(wire.decode(header))) == (0, kind)
            port.payload(size)
    assert port._answerer is not None
    port._answerer.close()
    channels[0].asker.close()


class Memory:
    """A channel with so much room."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def room(self, size: int) -> np.ndarray:
        self.asked.append(size)
        return np.zeros(size, np.uint8)

    def request(self, *_: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("servers", "wire", "here", "room"),
    [
        (1, "full", False, True),
        (2, "full", False, False),
        (1, "float16", False, False),
        (1, "full", True, False),
    ],
)
def test_a_gradient_has_room_where_one_other_process_gets_it_as_it_is(
    servers: int, wire: str, here: bool, room: bool
) -> None:
    plan = downpour(1, "server")
    spec = plan.experiment
    roles = spec.roles.model_copy(update={"dense_servers": servers})
    rounded = spec.execution.model_copy(update={"wire": wire})
    spec = spec.model_copy(update={"roles": roles, "execution": rounded})
    plan = build_plan(spec, spec.strategies[0])
    assert plan.dense is not None
    memory = Memory()
    ends = [
        Near(DenseServer(plan, shard), 0) if here else Remote(DenseRules(spec, shard), memory)
        for shard in plan.dense.shards
    ]
    like = torch.zeros(plan.dense.shards[-1].stop).double()
    found = DenseStub(ends, like).room()
    assert (found is not None) == room
    assert memory.asked == [8 * len(like)] * room
    if found is not None:
        assert (found.shape, found.dtype) == (like.shape, like.dtype)
