"""What equivalent substitution lets travel: numbers per example, counted by hand."""

from __future__ import annotations

import pytest

from recsim_train.config.experiment import Experiment, Model, Roles, StrategyChoice, Table
from recsim_train.placement.build import build_plan
from recsim_train.placement.program import SubstitutedNet

FIELDS = 3 * 4
"""Three tables of four columns."""


def numbers(kind: str, first: int, partition: str = "field", bags: int = 1) -> int:
    """In the one buffer that is summed over two workers, for each example."""
    choice = StrategyChoice(kind="des", options={"partition": partition})
    spec = Experiment(
        name="des",
        model=Model(
            kind=kind,
            embedding_dim=4,
            top_mlp=(first, 5, 1),
            cross_layers=2,
            tables=tuple(Table(rows=20, ids=bags) for _ in range(3)),
        ),
        roles=Roles(trainers=2),
        training={"sparse_optimizer": "sgd"},
        strategies=(choice,),
    )
    net = build_plan(spec, choice).net
    assert isinstance(net, SubstitutedNet)
    return net.width


@pytest.mark.parametrize(
    ("kind", "first", "wanted"),
    [
        ("wide_deep", 7, 1 + 7),  # the linear part, partial outputs of the first layer
        ("wide_deep", 11, 1 + 11),
        ("wide_deep", 40, 1 + FIELDS),  # the vectors themselves are narrower
        ("deepfm", 7, 1 + 7 + 4 + 1),  # and the sum of vectors, the sum of squares
        ("deepfm", 40, 1 + FIELDS),
        ("dcn", 7, 7 + 2 * 3),  # two numbers for each cross layer and for the logit
        ("dcn", 40, FIELDS),
    ],
)
def test_the_narrower_of_partial_outputs_and_vectors_travels(
    kind: str, first: int, wanted: int
) -> None:
    assert numbers(kind, first) == wanted


def test_squares_of_parts_of_bags_do_not_travel() -> None:
    """By id a bag's vector is known to no worker, so that its square cannot be added up."""
    assert numbers("deepfm", 6, "hash", bags=1) == 1 + 6 + 4 + 1
    assert numbers("deepfm", 6, "hash", bags=2) == 1 + FIELDS
    assert numbers("deepfm", 6, "field", bags=2) == 1 + 6 + 4 + 1
