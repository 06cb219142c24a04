"""The compiled interaction against the textbook formula and torch's autograd of it."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from recsim_train.executor.net.interaction import interact
from recsim_train.executor.pools import make_pool, side_by_side

SIZES = [(7, 5, 4), (1, 3, 16), (6, 1, 3), (1, 1, 1), (4, 0, 2), (0, 3, 2)]
"""(batch, vectors besides the first, dim)."""


def by_textbook(first: Tensor, others: Tensor) -> Tensor:
    """arXiv 1906.00091, section 2.1.3, and `interact_features` of the authors' program: x, then
    Z = T T^T below its diagonal, line by line."""
    vectors = torch.cat([first.unsqueeze(0), others]).transpose(0, 1)
    products = vectors @ vectors.transpose(1, 2)
    pairs = [products[:, i, j] for i in range(vectors.shape[1]) for j in range(i)]
    return torch.cat([first, *(p.unsqueeze(1) for p in pairs)], dim=1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_gradients_are_the_textbooks(
    size: tuple[int, int, int], dtype: torch.dtype
) -> None:
    batch, count, dim = size
    first, others = drawn(batch, dim).to(dtype), drawn(count, batch, dim, seed=1).to(dtype)
    first.requires_grad_()
    others.requires_grad_()
    mine, theirs = interact(first, others), by_textbook(first, others)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    assert mine.dtype == dtype
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
    seed = drawn(*theirs.shape, seed=2).to(dtype)
    for found, wanted in zip(
        torch.autograd.grad(mine, (first, others), seed),
        torch.autograd.grad(theirs, (first, others), seed, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def test_inputs_and_gradient_may_lie_anyhow() -> None:
    """Columns of a wider tensor, a transposed one, and one number spread over the gradient."""
    wide = drawn(6, 9).requires_grad_()
    turned = drawn(6, 3, 4, seed=1).requires_grad_()
    first, others = wide[:, 2:6], turned.transpose(0, 1)
    assert not first.is_contiguous()
    assert not others.is_contiguous()
    found = torch.autograd.grad(interact(first, others).sum(), (wide, turned))
    wanted = torch.autograd.grad(by_textbook(first, others).sum(), (wide, turned))
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True)], ids=str)
def test_gradients_are_those_of_small_differences(asked: tuple[bool, bool]) -> None:
    first, others = drawn(3, 4).requires_grad_(asked[0]), drawn(2, 3, 4, seed=1)
    assert torch.autograd.gradcheck(interact, (first, others.requires_grad_(asked[1])))


def test_threads_do_as_one_after_the_other() -> None:
    count = 4

    def run(n: int) -> list[Tensor]:
        first, others = drawn(64, 8, seed=n).float(), drawn(6, 64, 8, seed=n + 9).float()
        first.requires_grad_()
        others.requires_grad_()
        results: list[Tensor] = []
        for _ in range(20):
            out = interact(first, others)
            results += [out.detach(), *torch.autograd.grad(out.square().sum(), (first, others))]
        return results

    found: dict[int, list[Tensor]] = {}
    crew = [threading.Thread(target=lambda n=n: found.update({n: run(n)})) for n in range(count)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
    for n in range(count):
        for mine, wanted in zip(found[n], run(n), strict=True):
            assert torch.equal(mine, wanted)


@pytest.mark.parametrize("batch", [63, 64, 200, 1000])
def test_a_crew_does_as_one_thread_bit_by_bit(batch: int) -> None:
    first, others = drawn(batch, 8).float(), drawn(6, batch, 8, seed=9).float()
    first.requires_grad_()
    others.requires_grad_()

    def results() -> list[Tensor]:
        out = interact(first, others)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), (first, others))]

    found: list[Tensor] = []

    def with_crew() -> None:
        make_pool(3)
        found.extend(results())

    alone = results()
    thread = threading.Thread(target=with_crew)
    thread.start()
    thread.join(60)
    torch.set_num_threads(1)
    assert len(found) == 3
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


def test_an_error_in_a_crew_is_the_callers() -> None:
    raised: list[str] = []

    def work(begin: int, _: int) -> None:
        if begin:
            raise ValueError("in the crew")

    def with_crew() -> None:
        assert len(make_pool(2)) == 2  # one of torch's, one of ours
        try:
            side_by_side(work, 1000)
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=with_crew)
    thread.start()
    thread.join(60)
    torch.set_num_threads(1)
    assert raised == ["in the crew"]
