"""Cost counts against torch's own counters over the real kernels, and against hand arithmetic.

A multiply-add is two flops; backward is twice forward. Bytes are counted from what each tensor
operation of a kernel reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from recsim_train.config.experiment import (
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.net import kernels, net_kernels
from recsim_train.executor.net.model import DenseNet, initial_dense
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import DenseState, EmbeddingState, Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import TableSlice
from recsim_train.placement.program import TaggedNet
from recsim_train.workload.arithmetic import Piece, add, operator_work
from recsim_train.workload.graph import graph_of
from recsim_train.workload.operations import cost
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters, value_bytes

BATCH = 10
TABLES = (Table(rows=50), Table(rows=60), Table(rows=70))
DLRM = Model(
    dense_features=16, embedding_dim=16, bottom_mlp=(32, 16), top_mlp=(48, 1), tables=TABLES
)
DEEPFM = Model(
    kind="deepfm", dense_features=16, embedding_dim=16, top_mlp=(48, 24, 1), tables=TABLES
)
# Products of width one are priced as 16 wide: 15 more outputs of the last layers, which make three
# products each, and of DeepFM's linear part, which makes two, because features have no gradient.
NARROW = {"dlrm": (15 * 48 * 2, 3), "deepfm": (15 * 24 * 2, 3)}
LINEAR_PART = {"dlrm": 0, "deepfm": 15 * 16 * 2}


def flops(phases: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        phases()
    return counter.get_total_flops()


def net_of(model: Model) -> tuple[DenseNet, Tensor, Tensor]:
    net = DenseNet(model, initial_dense(model, 1))
    pooled = torch.randn(len(TABLES), BATCH, model.row_width, requires_grad=True)
    return net, torch.randn(BATCH, model.dense_features), pooled


def counted(model: Model, phase: Any) -> float:
    """Flops in the priced counts of a whole pass."""
    pieces = [Piece(o.name, BATCH, phase) for o in graph_of(model).operators]
    work = add(*(operator_work(model, piece) for piece in pieces))
    return work["gemm_flop"]


@pytest.mark.parametrize("model", [DLRM, DEEPFM], ids=lambda m: m.kind)
def test_flops_are_those_that_torch_counts(model: Model) -> None:
    net, features, pooled = net_of(model)
    narrow, products = NARROW[model.kind]
    linear = LINEAR_PART[model.kind]
    logits: list[Tensor] = []
    forward = flops(lambda: logits.append(net.forward(features, pooled)))
    backward = flops(lambda: logits[0].sum().backward())
    assert counted(model, "forward") == forward + BATCH * (narrow + linear)
    assert counted(model, "backward") == backward + BATCH * ((products - 1) * narrow + linear)
    whole = cost("forward_backward", Scope(model, Training(), batch=BATCH))
    both = forward + backward + BATCH * (products * narrow + 2 * linear)
    assert whole["gemm_flop"] == both


def test_flops_by_hand() -> None:
    """Layers of three products of 2 * inputs * out, those on features two; four vectors' dots."""
    dlrm = cost("forward_backward", Scope(DLRM, Training(), batch=BATCH))
    assert dlrm["gemm_flop"] == 10 * (4 * 16 * 32 + 6 * 32 * 16 + 6 * (16 + 6) * 48 + 6 * 48 * 16)
    # our own kernel, which torch's counter does not see: six pairs, and two gradients of each
    assert dlrm["dot_product"] == 10 * (6 + 2 * 6)
    assert dlrm["dot_flop"] == 10 * (6 + 2 * 6) * 2 * 16
    assert not dlrm.keys() & {"batched_flop", "batched_matrix", "index_element"}
    deepfm = cost("forward_backward", Scope(DEEPFM, Training(), batch=BATCH))
    assert deepfm["gemm_flop"] == 10 * (
        4 * 16 * 16 + 6 * (3 * 16 + 16) * 48 + 6 * 48 * 24 + 6 * 24 * 16
    )
    assert "dot_flop" not in deepfm


def test_bytes_of_a_pass_by_hand() -> None:
    """Layers: outputs are written, read and written by the ReLU, their gradient is read, cut and
    written: six; weights are read forward and backward, their gradient is written: three."""
    layers = [(16, 32), (32, 16), (16 + 6, 48), (48, 1)]
    linear = sum(10 * 6 * out + 3 * inputs * out for inputs, out in layers)
    # four vectors of 16 into a block forward and backward, their gradients out of one: read and
    # written each time; 16 + 6 outputs are written, and their gradient is read
    dot = 10 * (3 * 2 * 4 * 16 + 2 * 22)
    whole = cost("forward_backward", Scope(DLRM, Training(), batch=BATCH))
    assert whole["stream_byte"] == pytest.approx(4 * (linear + dot))
    layers = [(16, 1), (3 * 16 + 16, 48), (48, 24), (24, 1)]
    linear = sum(10 * 6 * out + 3 * inputs * out for inputs, out in layers)
    # numbers per input and output: concat 4 and 3, sum of linear weights 3 and 3, fm 9 and 3,
    # add 4 and 3
    light = 10 * (4 * 64 + 3 * 64 + 3 * 3 + 3 * 1 + 9 * 48 + 3 * 1 + 4 * 4 + 3 * 1)
    whole = cost("forward_backward", Scope(DEEPFM, Training(), batch=BATCH))
    assert whole["stream_byte"] == pytest.approx(4 * (linear + light))


# ---------------------------------------------------------------- element-wise kernels


class Traffic(TorchDispatchMode):
    """Bytes that operations read and write; views move nothing."""

    VIEWS = ("alias", "as_strided", "detach", "expand", "select", "slice", "split", "t", "view")
    WRITES_ONLY = ("zero_", "copy_", "fill_")

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in self.VIEWS:
            return result
        if name == "copy_" and args[0].data_ptr() == args[1].data_ptr():
            return result  # `x[a:b] += y` ends with it, and torch does nothing then
        read = [*args[0], *args[1:]] if isinstance(args[0], list | tuple) else list(args)
        if name in self.WRITES_ONLY:
            read = read[1:]
        for value in (*read, result):
            if isinstance(value, Tensor):
                self.bytes += value.numel() * value.element_size()
        return result


def vectors(kernel: Callable[..., Any], elements: int, *arguments: Any) -> float:
    """How many times the elements are read or written; the first call may make what it needs."""
    kernel(*arguments)
    with Traffic() as traffic:
        kernel(*arguments)
    return traffic.bytes / (4 * elements)


SIZE = dense_parameters(DLRM)
SGD = Training(dense_optimizer="sgd", sparse_optimizer="sgd")
ADAGRAD = Training(dense_optimizer="adagrad")


def priced(name: str, training: Training = SGD, **size: Any) -> float:
    return cost(name, Scope(DLRM, training, elements=SIZE, **size))["stream_byte"] / (4 * SIZE)


def test_vectors_of_element_wise_kernels() -> None:
    worker = Worker(Replica(DLRM, SGD, 1), "server")
    state = DenseState(DLRM, SGD, 1, 0, SIZE)
    other = RealDense(torch.randn(SIZE))
    moved = {
        "apply": vectors(kernels.apply, SIZE, worker, other),
        "load": vectors(kernels.load, SIZE, worker, other),
        "snapshot": vectors(kernels.snapshot, SIZE, worker),
        "subtract": vectors(kernels.subtract, SIZE, worker, other),
        "towards": vectors(kernels.towards, SIZE, worker, other, 0.5),
        "interpolate": vectors(kernels.interpolate, SIZE, worker, other, 0.5),
        "block_step": vectors(kernels.block_step, SIZE, worker, other, 0.5, 0.5),
        "accumulate": vectors(kernels.accumulate, SIZE, worker, other),
        "drain": vectors(kernels.drain, SIZE, worker),
        "dense_read": vectors(kernels.dense_read, SIZE, state, torch.empty(SIZE)),
        "dense_apply": vectors(kernels.dense_apply, SIZE, state, other.tensor),
        "dense_elastic": vectors(kernels.dense_elastic, SIZE, state, other.tensor, 0.5),
        "dense_elastic_new": vectors(kernels.dense_elastic_new, SIZE, state, other.tensor, 0.5),
    }
    by_hand = {"apply": 3, "load": 2, "snapshot": 2, "subtract": 3, "towards": 5, "interpolate": 3}
    by_hand |= {"block_step": 13, "accumulate": 3, "drain": 3, "dense_read": 2, "dense_apply": 3}
    by_hand |= {"dense_elastic": 8, "dense_elastic_new": 10}
    assert moved == by_hand
    assert {name: priced(name) for name in by_hand} == by_hand


def test_vectors_of_an_adagrad_step() -> None:
    """Sums, root, epsilon and step move twelve; a root and a division take as long as three more
    each, which the counts of element-wise work hold as bytes."""
    worker = Worker(Replica(DLRM, ADAGRAD, 1), "server")
    moved = vectors(kernels.apply, SIZE, worker, RealDense(torch.randn(SIZE)))
    assert moved == 4 + 2 + 2 + 4
    assert priced("apply", ADAGRAD) == priced("dense_apply", ADAGRAD) == moved + 2 * 3


def test_vectors_of_a_groups_outer_kernels() -> None:
    tags = ",".join(f"{o.name}=dp" for o in graph_of(DLRM).operators)
    options = {"hosts": 2, "outer": "ma", "tags": tags}
    choice = StrategyChoice(kind="hierarchical", options=options)
    spec = Experiment(name="t", model=DLRM, roles=Roles(trainers=2), strategies=(choice,))
    net = build_plan(spec, choice).net
    assert isinstance(net, TaggedNet)
    half = net.answered_elements(0)
    assert half == SIZE // 2
    worker = Worker(Replica(DLRM, SGD, 1, net.held(0), net.shared_numbers), "server", net, 0)
    other = RealDense(torch.randn(half))
    moved = {
        "net_answered": vectors(net_kernels.net_answered, half, worker),
        "net_towards": vectors(net_kernels.net_towards, half, worker, other, 0.5),
        "net_move": vectors(net_kernels.net_move, half, worker, other),
    }
    assert moved == {"net_answered": 5, "net_towards": 10, "net_move": 3}
    assert {name: priced(name) for name in moved} == moved


# ---------------------------------------------------------------- rows


def state_of(model: Model) -> EmbeddingState:
    slices = tuple(TableSlice(t, 0, table.rows) for t, table in enumerate(model.tables))
    return EmbeddingState(model, Training(), 1, slices)


@pytest.mark.parametrize(("model", "width"), [(DLRM, 16), (DEEPFM, 17)], ids=("dlrm", "deepfm"))
def test_gathers_of_a_lookup_by_hand(model: Model, width: int) -> None:
    """30 ids of three tables, one each of ten examples; a DeepFM's row has a linear weight."""
    scope = Scope(model, Training(), batch=BATCH, ids=30, unique=20, tables=3)
    pooled = cost("lookup_pooled", scope)
    # distinct rows come from far away, each id's from near, then
    assert (pooled["gather_row"], pooled["gather_byte"]) == (20, 20 * width * 4)
    # every vector is written; ids become places: read, written, read, of 8 bytes
    assert pooled["stream_byte"] == (30 + 30) * width * 4 + 3 * 8 * 30
    rows = cost("lookup_rows", scope)
    assert (rows["gather_row"], rows["gather_byte"]) == (20, 20 * width * 4)
    assert rows["stream_byte"] == 20 * width * 4 + 3 * 8 * 20


@pytest.mark.parametrize(("model", "width"), [(DLRM, 16), (DEEPFM, 17)], ids=("dlrm", "deepfm"))
def test_scatters_of_an_update_by_hand(model: Model, width: int) -> None:
    """30 ids, 20 of them distinct; a row has ``width`` numbers of four bytes."""
    row = width * 4
    scope = Scope(model, ADAGRAD, batch=BATCH, ids=30, unique=20, tables=3)
    work = cost("update_pooled", scope)
    # find the rows of 30 ids, then step on 20 rows; read are 30 gradients and places of 8 bytes
    assert work["hashed_id"] == 30
    assert (work["scatter_row"], work["scatter_byte"]) == (20, 20 * row)
    assert work["stream_byte"] == 30 * row + 8 * 30
    distinct = cost("update_rows", Scope(model, ADAGRAD, ids=20, unique=20, tables=3))
    assert distinct["hashed_id"] == 20
    assert (distinct["scatter_row"], distinct["scatter_byte"]) == (20, 20 * row)
    assert distinct["stream_byte"] == 20 * row + 8 * 20
    # SGD steps with each id's gradient as it comes
    sgd = cost("update_pooled", Scope(model, SGD, batch=BATCH, ids=30, unique=20, tables=3))
    assert (sgd["scatter_row"], sgd["scatter_byte"]) == (30, 30 * row)
    assert sgd["stream_byte"] == 30 * row + 8 * 30
    assert not {"unique_id", "hashed_id"} & sgd.keys()


def test_a_bags_gradient_is_read_once_for_all_its_ids_by_hand() -> None:
    """Bags of four: 120 ids, 30 gradients; of an id its place and its bag are read."""
    model = DLRM.model_copy(update={"tables": tuple(Table(rows=50, ids=4) for _ in TABLES)})
    work = cost("update_pooled", Scope(model, SGD, batch=BATCH, ids=120, unique=90, tables=3))
    assert work["scatter_row"] == 120
    assert work["stream_byte"] == 30 * 16 * 4 + 8 * 120 + 8 * 120
    # each bag's start is written and read, each id's bag written
    found = cost("lookup_pooled", Scope(model, SGD, batch=BATCH, ids=120, unique=90, tables=3))
    assert found["stream_byte"] == (120 + 30) * 16 * 4 + 3 * 8 * 120 + 8 * (120 + 2 * 30)
    assert (found["gather_row"], found["gather_byte"]) == (90, 90 * 16 * 4)


def test_client_side_copies_by_hand() -> None:
    """30 ids are read and written; so are 30 vectors, there and back; sorting two digits of three
    tables' ids clears, sums and reads 256 counters each time."""
    scope = Scope(DLRM, SGD, batch=BATCH, ids=30, unique=20, tables=3, shards=2)
    assert cost("route_ids", scope)["stream_byte"] == 2 * 8 * 30
    for name in ("assemble_rows", "route_gradient"):
        assert cost(name, scope)["stream_byte"] == 2 * 30 * 16 * 4
    assert cost("deduplicate", scope)["stream_byte"] == 4 * 8 * 30 + 3 * 2 * 256 * 8 * 3


def test_rows_that_are_pooled_by_the_worker_by_hand() -> None:
    """30 ids of 20 rows: each id's row is read, and its gradient read, added to what is read and
    written; 30 bags and 20 rows' gradients are written; places are read twice."""
    server, worker = (
        cost(
            "forward_backward",
            Scope(DLRM, SGD, batch=BATCH, ids=30, unique=20, tables=3, **pooling),
        )
        for pooling in ({}, {"pooling": "worker"})
    )
    more = worker["stream_byte"] - server["stream_byte"]
    assert more == pytest.approx(16 * 4 * (4 * 30 + 30 + 20) + 2 * 8 * 30)
    assert worker["index_element"] == 2 * 30


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_counted_as_long_as_they_are(dtype: str) -> None:
    model = Model(
        embedding_dim=2, bottom_mlp=(2,), top_mlp=(1,), tables=(Table(rows=3),), dtype=dtype
    )
    assert value_bytes(model) == getattr(torch, dtype).itemsize
