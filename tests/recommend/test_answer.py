"""Which designs cannot be told apart, and in which order they answer."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.designs.answer import tie
from recsim_train.designs.searching import Design
from recsim_train.designs.wanted import Demand
from tests.recommend.conftest import RENT, Spaces

FEW = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "hosts": [4],
}  # fmt: skip


def designs(spaces: Spaces, rates: list[float], errors: list[dict[str, float]]) -> list[Design]:
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    made = []
    for number, (eps, causes) in enumerate(zip(rates, errors, strict=True)):
        design = Design(number, space.candidates[number % 2])
        row: dict[str, Any] = {
            "examples_per_second": eps, "eps_low": eps * 0.99, "eps_high": eps * 1.01,
            "calibration_errors": causes, "calibration_low": None, "calibration_high": None,
        }  # fmt: skip
        design.row = row
        made.append(design)
    return made


@pytest.mark.parametrize(
    ("apart", "mine", "theirs", "tied"),
    [
        # what errs in both alike says nothing of which is faster
        (0.05, {"prices": 0.2}, {"prices": 0.2}, False),
        (0.05, {"prices": 0.2}, {"prices": 0.15}, True),
        (0.05, {"prices": 0.05}, {}, True),
        (0.01, {"prices": 0.0}, {"prices": 0.0}, True),  # the simulations' own noise
        # what a strategy's model leaves out is its own
        (0.05, {"model": 0.03}, {"model": 0.03}, True),
        (0.3, {"model": 0.03}, {"model": 0.03}, False),
    ],
)
def test_only_what_differs_counts(
    spaces: Spaces, apart: float, mine: dict[str, float], theirs: dict[str, float], tied: bool
) -> None:
    one, other = designs(spaces, [100.0, 100.0 * (1.0 + apart)], [mine, theirs])
    assert tie(one, other) is tie(other, one) is tied


def test_of_one_strategy_the_models_error_is_the_same(spaces: Spaces) -> None:
    one, _, same = designs(spaces, [100.0, 1.0, 105.0], [{"model": 0.05}, {}, {"model": 0.05}])
    assert one.kind == same.kind
    assert not tie(one, same)


def test_in_which_order_designs_answer(spaces: Spaces) -> None:
    small = spaces("strategy=allreduce", RENT, strategies="false", **{**FEW, "hosts": [2]})
    large = spaces("strategy=allreduce", RENT, strategies="false", **FEW)
    (two,), (four,) = small.candidates, large.candidates
    fast = Demand()
    assert fast.order(four, 200.0) < fast.order(two, 150.0)
    enough = Demand(target=100.0, by="hosts")
    assert enough.order(two, 150.0) < enough.order(four, 200.0)
    assert enough.order(four, 200.0) < enough.order(two, 90.0)
    cheap = Demand(by="cost")
    assert cheap.order(two, 150.0) < cheap.order(four, 200.0)
    assert cheap.order(four, 400.0) < cheap.order(two, 150.0)
    paid = Demand(budget=5.0)
    assert paid.affordable(two)
    assert not paid.affordable(four)
