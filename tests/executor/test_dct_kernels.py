"""DCT's kernels: nothing is lost, thresholds are the k-th largest, masks have exact gradients."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import Experiment, Model, StrategyChoice, Table, Training
from recsim_train.executor.net import kernels, masks, sparse
from recsim_train.executor.net.masks import VectorMask
from recsim_train.executor.net.model import DenseNet
from recsim_train.executor.net.sparse import RealSparse
from recsim_train.executor.shards.routing import ShardSlices, route_ids
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.shards.stubs import EmbeddingStub, Near
from recsim_train.executor.values import (
    RealDense,
    RealFeatures,
    RealIds,
    RealParts,
    RealRows,
)
from recsim_train.executor.worker import DenseState, EmbeddingState, Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import TableSlice
from recsim_train.strategy.values import Batch
from recsim_train.workload.compression import SMALL, kept, layout
from recsim_train.workload.shape import dense_parameters, dense_tensors

MODEL = Model(
    embedding_dim=8,
    bottom_mlp=(32, 8),
    top_mlp=(32, 1),
    tables=(Table(rows=40), Table(rows=30, ids=3), Table(rows=20)),
    dtype="float64",
)
TRAINING = Training(batch_size=16)
TOTAL = dense_parameters(MODEL)


def new_worker() -> Worker:
    return Worker(Replica(MODEL, TRAINING, seed=3), "server")


def gradients(steps: int, *, whole: bool = False) -> list[Tensor]:
    draw = torch.Generator().manual_seed(5)
    if whole:
        return [
            torch.randint(-99, 100, (TOTAL,), generator=draw).to(torch.float64)
            for _ in range(steps)
        ]
    return [torch.randn(TOTAL, generator=draw, dtype=torch.float64) for _ in range(steps)]


def spread(sent: RealSparse) -> Tensor:
    found = torch.zeros(TOTAL, dtype=torch.float64)
    found[sent.places] = sent.values
    found[sparse.whole_places(MODEL, 0, TOTAL)] = sent.whole
    return found


def left(worker: Worker) -> Tensor:
    assert worker.residual.error is not None
    return worker.residual.error


def test_sent_and_left_are_what_was_there_bit_for_bit() -> None:
    worker = new_worker()
    before = torch.zeros(TOTAL, dtype=torch.float64)
    for number, gradient in enumerate(gradients(12)):
        if number % 4 == 0:
            sparse.threshold(worker, RealDense(gradient), 0.1)
        sent = spread(sparse.sparsify(worker, RealDense(gradient)))
        after = left(worker)
        assert torch.equal(sent + after, before + gradient)
        assert not torch.any((sent != 0) & (after != 0))
        before = after.clone()
    assert before.count_nonzero() > TOTAL // 4


def test_residual_and_all_that_was_sent_are_the_accumulated_gradient_exactly() -> None:
    """Whole numbers add without rounding, so that the sum over all steps is exact too."""
    worker = new_worker()
    sent = torch.zeros(TOTAL, dtype=torch.float64)
    given = gradients(30, whole=True)
    for number, gradient in enumerate(given):
        if number % 7 == 0:
            sparse.threshold(worker, RealDense(gradient), 0.02)
        sent += spread(sparse.sparsify(worker, RealDense(gradient)))
    assert torch.equal(sent + left(worker), torch.stack(given).sum(0))


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5, 1.0])
def test_a_fresh_threshold_lets_the_k_largest_pass(density: float) -> None:
    worker = new_worker()
    first, second = gradients(2)
    for gradient in (first, second):
        expected = (worker.residual.left(gradient) + gradient).clone()
        sparse.threshold(worker, RealDense(gradient), density)
        sent = sparse.sparsify(worker, RealDense(gradient))
        assert sent.values.numel() == layout(MODEL).kept(density)
        for a, b in layout(MODEL).large:
            k = kept(b - a, density)
            largest = expected[a:b].abs().topk(k).indices + a
            inside = sent.places[(sent.places >= a) & (sent.places < b)]
            assert set(inside.tolist()) == set(largest.tolist())


def test_a_stale_threshold_stays() -> None:
    worker = new_worker()
    first, second = gradients(2)
    sparse.threshold(worker, RealDense(first), 0.1)
    taus = list(worker.residual.taus)
    sparse.sparsify(worker, RealDense(first))
    total = (left(worker) + second).clone()
    sent = sparse.sparsify(worker, RealDense(second))
    assert worker.residual.taus == taus
    for (a, b), tau in zip(layout(MODEL).large, taus, strict=True):
        wanted = torch.nonzero(total[a:b].abs() >= tau).squeeze(1) + a
        inside = sent.places[(sent.places >= a) & (sent.places < b)]
        assert torch.equal(inside, wanted)


def test_small_tensors_travel_whole() -> None:
    sizes = dense_tensors(MODEL)
    assert sum(sizes) == TOTAL
    small, large = layout(MODEL).small, layout(MODEL).large
    assert [b - a for a, b in small] == [n for n in sizes if n < SMALL]
    assert [b - a for a, b in large] == [n for n in sizes if n >= SMALL]
    assert SMALL in sizes  # 32 x 8: the smallest that is thresholded
    worker, (gradient,) = new_worker(), gradients(1)
    sparse.threshold(worker, RealDense(gradient), 0.01)
    sent = spread(sparse.sparsify(worker, RealDense(gradient)))
    for a, b in small:
        assert torch.equal(sent[a:b], gradient[a:b])
        assert not left(worker)[a:b].any()


def test_zeros_are_not_sent_and_nan_is() -> None:
    worker = new_worker()
    gradient = torch.zeros(TOTAL, dtype=torch.float64)
    (a, _), *_ = layout(MODEL).large
    gradient[a : a + 3] = torch.tensor([1.0, -2.0, torch.nan])
    sparse.threshold(worker, RealDense(torch.nan_to_num(gradient)), 0.5)
    sent = sparse.sparsify(worker, RealDense(gradient))
    assert sent.places.tolist() == [a, a + 1, a + 2]


def test_shards_get_their_parts_and_apply_what_a_whole_push_would() -> None:
    for optimizer in ("sgd", "adagrad"):
        training = Training(dense_optimizer=optimizer, dense_lr=0.1)
        cuts = [0, 100, 700, TOTAL]
        worker = new_worker()
        whole = DenseState(MODEL, training, 3, 0, TOTAL)
        shards = [
            DenseState(MODEL, training, 3, a, b) for a, b in zip(cuts, cuts[1:], strict=False)
        ]
        for gradient in gradients(3):
            sparse.threshold(worker, RealDense(gradient), 0.05)
            sent = sparse.sparsify(worker, RealDense(gradient))
            kernels.dense_apply(whole, spread(sent))
            bounds = list(zip(cuts, cuts[1:], strict=False))
            for shard, (a, b) in zip(shards, bounds, strict=True):
                part = sparse.cut_sparse(MODEL, sent, a, b)
                whole_values, entries = part.whole.numel(), part.places.numel()
                read = sparse.unpack_sparse(part.tensor, whole_values, entries, torch.float64)
                assert torch.equal(read.places, part.places)
                assert torch.equal(read.values, part.values)
                assert torch.equal(read.whole, part.whole)
                sparse.sparse_apply(shard, *sparse.all_entries(MODEL, read, a, b))
            assert torch.equal(torch.cat([s.values for s in shards]), whole.values)


def test_the_mean_of_several_vectors() -> None:
    parts, expected = [], torch.zeros(TOTAL, dtype=torch.float64)
    for gradient in gradients(3):
        worker = new_worker()
        sparse.threshold(worker, RealDense(gradient), 0.1)
        sent = sparse.sparsify(worker, RealDense(gradient))
        parts.append(sent.tensor)
        expected += spread(sent)
    found = sparse.densify(new_worker(), RealParts(tuple(parts)))
    assert torch.equal(found.tensor, expected / 3)


def test_counts_of_values_and_bytes() -> None:
    worker, (gradient,) = new_worker(), gradients(1)
    sparse.threshold(worker, RealDense(gradient), 0.1)
    sent = sparse.sparsify(worker, RealDense(gradient))
    tally = worker.residual.tallies["gradients"]
    assert tally.values == TOTAL
    assert tally.kept == sent.values.numel() + sent.whole.numel()
    assert tally.dense_bytes == 8 * TOTAL
    assert tally.sent_bytes == 8 * tally.kept + 4 * sent.values.numel()


# ---------------------------------------------------------------- masks


def masked_batch() -> tuple[Batch, RealIds, EmbeddingState]:
    draw = torch.Generator().manual_seed(11)
    batch, counts = 16, (16, 48, 16)
    values = torch.cat(
        [
            torch.randint(0, t.rows, (n,), generator=draw)
            for t, n in zip(MODEL.tables, counts, strict=True)
        ]
    )
    ids = RealIds(values, (0, 16, 64, 80), (None, None, None), batch)
    dense = torch.randn(batch, 13, generator=draw, dtype=torch.float64)
    labels = (torch.rand(batch, generator=draw) < 0.4).to(torch.float64)
    slices = [TableSlice(t, 0, table.rows) for t, table in enumerate(MODEL.tables)]
    state = EmbeddingState(MODEL, TRAINING, 3, slices)
    return Batch(batch, ids, RealFeatures(dense, labels), 0), ids, state


@pytest.mark.parametrize("over", ["table", "sample"])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_gradients_at_the_kept_places_are_those_of_the_masked_net(
    share: float, over: Literal["table", "sample"]
) -> None:
    batch, ids, state = masked_batch()
    [routed] = route_ids(ids, ShardSlices(MODEL, [state.slices], frozenset()))
    pooled, _, _ = kernels.lookup_pooled(state, routed)
    rule = VectorMask(MODEL, len(state.slices), share, over)
    masked = rule.mask(pooled)
    lines, width = (3 * batch.size, 8) if over == "table" else (batch.size, 24)
    each = max(1, int(width * share))
    assert masked.values.shape == (lines, each)
    worker = new_worker()
    found = kernels.forward_backward(worker, batch, RealRows(rule.unmask(masked), ids))
    assert isinstance(found.rows, RealRows)
    assert isinstance(found.dense, RealDense)
    back = rule.unpick(rule.pick(found.rows.tensor, masked.places), masked.places)

    # the same net, the mask written out, left to autograd
    leaf = pooled.clone().requires_grad_()
    ones = torch.zeros_like(pooled)
    for example in range(batch.size):
        chosen = [[(t, d) for t in range(3) for d in range(8)]]
        if over == "table":
            chosen = [[(t, d) for d in range(8)] for t in range(3)]
        for places in chosen:
            ordered = sorted(places, key=lambda at: -abs(float(pooled[at[0], example, at[1]])))
            for t, d in ordered[:each]:
                ones[t, example, d] = 1.0
    vectors = leaf * ones
    net = DenseNet(MODEL, Replica(MODEL, TRAINING, seed=3).parameters)
    assert isinstance(batch.features, RealFeatures)
    logits = net.forward(batch.features.dense, vectors)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.features.labels)
    net.gradient.zero_()
    loss.backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert float(leaf.grad.norm()) > 0
    assert float((back - leaf.grad).norm() / leaf.grad.norm()) < 1e-12
    assert float((found.dense.tensor - net.gradient).norm() / net.gradient.norm()) < 1e-12
    assert back.count_nonzero() <= lines * each
    if over == "table":  # a table never starves
        assert (rule.unmask(masked) != 0).any(2).all()


@pytest.mark.parametrize(
    ("width", "place"), [(24, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)]
)
def test_masks_read_back_what_was_sent(width: int, place: int) -> None:
    """A place takes a byte up to 256 values in a row, above 65,536 four."""
    block = torch.randn(3, width, dtype=torch.float64)
    block[:, -1] = 99.0  # the last place must fit
    sent = masks.mask_rows(block, 0.01)
    assert sent.tensor.numel() == 3 * kept(width, 0.01) * (8 + place)
    read = masks.unpack_mask(sent.tensor, 3, width, torch.float64)
    assert torch.equal(read.places, sent.places)
    assert torch.equal(read.values, sent.values)
    assert torch.equal(block.gather(1, read.places), read.values)


@pytest.mark.parametrize("over", ["table", "sample"])
def test_tallies_count_the_tensors_that_were_made(
    over: Literal["table", "sample"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask that kept one entry more than the formula says would be seen."""
    right = masks.mask_rows
    choice = StrategyChoice(
        kind="flat_ps",
        options={"compression": {"kind": "dct", "mode": "mp", "mp_density": 0.25, "mask": over}},
    )
    spec = Experiment(name="x", model=MODEL, training=TRAINING, strategies=(choice,))
    plan = build_plan(spec, choice)
    assert plan.embedding is not None
    (shard,) = plan.embedding.shards
    server = EmbeddingServer(plan, shard)
    batch, ids, _ = masked_batch()
    monkeypatch.setattr(
        masks, "mask_rows", lambda block, share: right(block, share + 1 / block.shape[1])
    )
    stub = EmbeddingStub([Near(server, 0)])
    rows, _ = stub.lookup(ids, 0)()
    stub.update(RealRows(rows.tensor, ids), 0)()
    lines, width = (3 * batch.size, 8) if over == "table" else (batch.size, 24)
    sent = lines * (width // 4 + 1)
    forward, back = stub.tallies["activations"], stub.tallies["activation_gradients"]
    for tally in (forward, back):
        assert (tally.values, tally.kept) == (lines * width, sent)
        assert tally.dense_bytes == 8 * lines * width
        assert tally.figures().density == pytest.approx(sent / (lines * width))
    assert (forward.sent_bytes, back.sent_bytes) == (9 * sent, 8 * sent)


def test_shares_keep_floor_but_at_least_one() -> None:
    assert [kept(256, 0.01), kept(100, 0.29), kept(100, 0.001), kept(7, 1.0)] == [2, 29, 1, 7]


def test_expected_parts_of_shards_sum_to_the_whole() -> None:
    found = layout(MODEL)
    cuts = [0, 5, 300, 301, 900, TOTAL]
    parts = [found.within(0.07, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    assert sum(whole for whole, _ in parts) == found.small_elements
    assert sum(entries for _, entries in parts) == found.kept(0.07)
