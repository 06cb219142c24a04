"""Every net against the formula of its paper, written out plainly; its graph against its module."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import Model, Table
from recsim_train.executor.net.model import DenseNet, initial_dense
from recsim_train.workload.graph import graph_of
from recsim_train.workload.shape import dense_parameters, dense_tensors

TABLES = (Table(rows=20), Table(rows=30), Table(rows=40))
MODELS = {
    "dlrm": Model(
        embedding_dim=4, bottom_mlp=(6, 4), top_mlp=(5, 1), tables=TABLES, dtype="float64"
    ),
    **{
        kind: Model(kind=kind, embedding_dim=4, top_mlp=(6, 5, 1), tables=TABLES, dtype="float64")
        for kind in ("wide_deep", "deepfm", "dcn")
    },
}


class Cursor:
    """Hands out the flat parameters in their order."""

    def __init__(self, flat: Tensor) -> None:
        self.flat, self.position = flat, 0

    def take(self, *size: int) -> Tensor:
        count = int(torch.tensor(size).prod())
        self.position += count
        return self.flat[self.position - count : self.position].view(size)

    def linear(self, x: Tensor, out: int, *, relu: bool) -> Tensor:
        y = x @ self.take(out, x.shape[1]).T + self.take(out)
        return y.clamp(min=0) if relu else y


def dlrm(p: Cursor, dense: Tensor, pooled: Tensor) -> Tensor:
    x = p.linear(p.linear(dense, 6, relu=True), 4, relu=True)
    vectors = [x, *pooled]
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(len(vectors)) for j in range(i)]
    z = torch.cat([x, torch.stack(pairs, 1)], 1)
    return p.linear(p.linear(z, 5, relu=True), 1, relu=False)[:, 0]


def wide_deep(p: Cursor, dense: Tensor, pooled: Tensor, fm: bool = False) -> Tensor:
    vectors, weights = pooled[:, :, :4], pooled[:, :, 4]
    out = weights.sum(0) + p.linear(dense, 1, relu=False)[:, 0]
    if fm:
        for i in range(len(vectors)):
            for j in range(i):
                out = out + (vectors[i] * vectors[j]).sum(1)
    x = torch.cat([*vectors, dense], 1)
    deep = p.linear(p.linear(x, 6, relu=True), 5, relu=True)
    return out + p.linear(deep, 1, relu=False)[:, 0]


def deepfm(p: Cursor, dense: Tensor, pooled: Tensor) -> Tensor:
    return wide_deep(p, dense, pooled, fm=True)


def dcn(p: Cursor, dense: Tensor, pooled: Tensor) -> Tensor:
    first = torch.cat([*pooled, dense], 1)
    x = first
    for _ in range(3):
        weight, bias = p.take(first.shape[1]), p.take(first.shape[1])
        x = first * (x @ weight)[:, None] + bias + x
    deep = p.linear(p.linear(first, 6, relu=True), 5, relu=True)
    return p.linear(torch.cat([x, deep], 1), 1, relu=False)[:, 0]


FORMULAS = {"dlrm": dlrm, "wide_deep": wide_deep, "deepfm": deepfm, "dcn": dcn}


@pytest.mark.parametrize("kind", MODELS)
def test_the_net_computes_its_papers_formula(kind: str) -> None:
    model = MODELS[kind]
    torch.manual_seed(3)
    flat = torch.randn(dense_parameters(model), dtype=torch.float64)
    dense = torch.randn(7, 13, dtype=torch.float64)
    pooled = torch.randn(3, 7, model.row_width, dtype=torch.float64, requires_grad=True)
    net = DenseNet(model, flat)
    found = net.forward(dense, pooled)
    found.sum().backward()
    plain, leaf = flat.clone().requires_grad_(), pooled.detach().clone().requires_grad_()
    cursor = Cursor(plain)
    wanted = FORMULAS[kind](cursor, dense, leaf)
    assert cursor.position == flat.numel()  # every parameter is used, in the graph's order
    wanted.sum().backward()
    assert plain.grad is not None
    assert leaf.grad is not None
    assert pooled.grad is not None
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(net.gradient, plain.grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pooled.grad, leaf.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_shapes_and_initial_parameters_agree(kind: str) -> None:
    model = MODELS[kind]
    graph = graph_of(model)
    assert initial_dense(model, 1).numel() == graph.elements == sum(dense_tensors(model))
    assert graph.width(graph.logit) == 1
    for operator in graph.operators:
        known = {*graph.sources, *(o.name for o in graph.operators)}
        assert set(operator.inputs) <= known
