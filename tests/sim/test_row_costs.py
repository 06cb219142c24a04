"""Counts of work on rows, caches, thresholds and segments against what kernels touch, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.config.experiment import Model, Table, Training
from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Piece, operator_work
from recsim_train.workload.operations import OPS, seconds
from recsim_train.workload.scope import Scope

ROW = 8 * 4
"""Bytes of a row: eight numbers of float32."""
SGD = Training(sparse_optimizer="sgd", dense_optimizer="sgd")
ADAGRAD = Training(sparse_optimizer="rowwise_adagrad", dense_optimizer="adagrad")


def model(**table: Any) -> Model:
    tables = tuple(Table(rows=1000, **table) for _ in range(3))
    return Model(embedding_dim=8, bottom_mlp=(16, 8), top_mlp=(16, 1), tables=tables)


def work(name: str, training: Training = SGD, bag: int = 1, **scope: Any) -> dict[str, float]:
    found = OPS[name].cost(Scope(model=model(ids=bag), training=training, **scope))
    return {price: float(units) for price, units in found.items()}


@pytest.mark.parametrize("bag", [1, 5])
def test_a_lookup_fetches_a_row_once_and_reads_it_for_every_id(bag: int) -> None:
    sizes: dict[str, Any] = {"bag": bag, "batch": 100, "tables": 3, "ids": 300.0 * bag}
    few, many = (work("lookup_pooled", unique=unique, **sizes) for unique in (90.0, 200.0))
    assert (few["gather_row"], few["gather_byte"]) == (90, 90 * ROW)
    assert many["gather_row"] - few["gather_row"] == 110
    assert few["stream_byte"] == many["stream_byte"] > ROW * (300 * bag + 300)


def test_duplicates_are_summed_once_and_their_rows_step_once() -> None:
    found = work("update_pooled", ADAGRAD, bag=5, batch=100, tables=3, ids=1500.0, unique=400.0)
    assert found["scatter_row"] == 400
    assert found["hashed_id"] == 1500


def test_rows_are_looked_for_by_all_their_ids_and_never_sorted() -> None:
    for ids in (400.0, 401.0):
        found = work("update_rows", ADAGRAD, ids=ids, unique=400.0)
        assert (found["hashed_id"], found["scatter_row"]) == (ids, 400)
        assert "unique_id" not in found
        plain = work("update_rows", SGD, ids=ids, unique=400.0)
        assert plain["scatter_row"] == ids
        assert "hashed_id" not in plain


def test_where_rows_travel_the_unique_ones_do() -> None:
    scope: dict[str, Any] = {"batch": 100, "tables": 3, "ids": 1500.0, "unique": 400.0}
    rows, bags = (
        work("assemble_rows", bag=5, pooling=pooling, **scope) for pooling in ("worker", "server")
    )
    assert rows["stream_byte"] == 2 * 400 * ROW  # out of the answers, into the table
    assert bags["stream_byte"] == 2 * 300 * ROW


@pytest.mark.parametrize("name", ["apply", "dense_apply", "net_apply", "sparse_apply"])
def test_a_plain_step_reads_two_vectors_and_writes_one(name: str) -> None:
    plain = work(name, SGD, elements=5000, kept=5000.0)
    adagrad = work(name, ADAGRAD, elements=5000, kept=5000.0)
    assert plain["stream_byte"] == 3 * 4 * 5000
    # parameters, gradient and state are read, two of them written
    assert adagrad["stream_byte"] >= 5 * 4 * 5000


def test_every_value_passes_a_threshold_whatever_is_kept() -> None:
    few, many = (work("threshold", elements=5000, kept=kept, tables=4) for kept in (5.0, 500.0))
    assert few == many
    assert few["index_element"] >= 2 * 5000  # quickselect
    # value and residual are read, the sum written and compared
    assert work("sparsify", elements=5000, kept=0.0, tables=4)["stream_byte"] >= 4 * 4 * 5000


@pytest.mark.parametrize(("training", "stored"), [(SGD, ROW), (ADAGRAD, ROW + 4)])
def test_rows_move_with_their_state(training: Training, stored: int) -> None:
    """Row-wise Adagrad keeps one number for a whole row."""
    assert shape.stored_row_bytes(model(), training) == stored
    filled = work("fill", training, ids=30.0, unique=70.0)
    assert (filled["gather_byte"], filled["scatter_byte"]) == (30 * stored, 70 * stored)
    for name in ("fetch_rows", "flush"):
        read = work(name, training, unique=70.0)
        assert (read["gather_byte"], read["scatter_byte"]) == (70 * stored, 0)
    written = work("store_rows", training, unique=70.0)
    assert (written["gather_byte"], written["scatter_byte"]) == (0, 70 * stored)


def test_variable_bags_hold_one_to_so_many_ids() -> None:
    assert shape.mean_ids(model(ids=4, variable=True), 0) == (1 + 2 + 3 + 4) / 4
    assert shape.mean_ids(model(ids=4), 0) == 4


def test_dot_products_of_all_pairs_of_four_vectors() -> None:
    """Three tables and the bottom net: six pairs, and the gradients of both vectors of each."""
    found = operator_work(model(), Piece("interaction", 10))
    assert found["dot_product"] == 10 * (6 + 2 * 6)
    assert found["dot_flop"] == 10 * (1 + 2) * 6 * (2 * 8)
    assert "index_element" not in found


def test_a_linear_layer_is_multiplied_forward_and_twice_backward() -> None:
    """Two flops for each weight and example, and nobody asks for the gradient of the features."""
    spec = model().model_copy(update={"dense_features": 20, "bottom_mlp": (32, 24, 8)})
    first, second = (operator_work(spec, Piece(f"bottom.{n}", 10)) for n in (0, 1))
    assert first["gemm_flop"] == 10 * (2 + 2) * 20 * 32
    assert second["gemm_flop"] == 10 * (2 + 2 + 2) * 32 * 24
    forward = operator_work(spec, Piece("bottom.1", 10, "forward"))
    assert forward["gemm_flop"] == 10 * 2 * 32 * 24


@pytest.mark.parametrize("kind", ["dlrm", "wide_deep", "deepfm", "dcn"])
def test_forward_and_backward_make_the_whole(kind: str) -> None:
    spec = model().model_copy(
        update={"kind": kind, "bottom_mlp": (16, 8) if kind == "dlrm" else ()}
    )
    names = {"dlrm": ("bottom.0", "interaction", "top.0"), "deepfm": ("deep.0", "fm")}
    for name in names.get(kind, ("deep.0",)):
        both, *phases = (
            operator_work(spec, Piece(name, 10, phase)) for phase in ("both", "forward", "backward")
        )
        for price, units in both.items():
            assert sum(part[price] for part in phases) == pytest.approx(units), (name, price)


def test_a_call_keeps_the_lock_for_the_shorter_of_its_own_time_and_a_waiters_waking() -> None:
    """Both vary: of exponentially distributed times of means c and h the shorter one has the mean
    1 / (1/c + 1/h)."""
    prices = {"call": 1e-6, "interpreter": 2e-6, "handover": 5e-6, "effect": 7e-6}
    todo = {"call": 10.0, "interpreter": 4.0, "effect": 1.0}
    own = 4 * 2e-6 + 7e-6
    total, held = seconds(todo, prices, queued=True)
    assert total == pytest.approx(own + 10e-6)
    assert held == pytest.approx(own + 4 / (1 / 2.5e-6 + 1 / 5e-6))
    longer = {**todo, "call": 100.0}
    held = seconds(longer, prices, queued=True)[1]
    assert held == pytest.approx(own + 4 / (1 / 25e-6 + 1 / 5e-6))
    at_once = {**prices, "handover": 0.0}
    assert seconds(longer, at_once, queued=True)[1] == pytest.approx(own)
    assert seconds(longer, prices) == pytest.approx((own + 100e-6, own))
