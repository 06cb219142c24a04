"""Declarations of operations: names, types, and what is wrong with arguments."""

from __future__ import annotations

import pickle

import cloudpickle
import pytest

from recsim_train.strategy.effects import Compute
from recsim_train.strategy.operations import APPLY, DENSIFY, OPERATIONS, TOWARDS
from recsim_train.strategy.values import Batch, Dense, Features, Ids, Parts, Sparse


def test_every_operation_has_a_name_types_and_one_line_of_meaning() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.name == name
        assert operation.summary
        assert all(isinstance(t, type | tuple) or t is not None for t in operation.takes)


def test_arguments_are_checked_by_number_and_type() -> None:
    assert APPLY.mistake((Dense(),)) == ""
    assert TOWARDS.mistake((Dense(), 1)) == ""
    assert DENSIFY.mistake((Parts(),)) == DENSIFY.mistake((Sparse(),)) == ""
    assert TOWARDS.mistake((Dense(),)) == (
        "Compute(towards) takes (value: Dense, share: float), got (Dense)"
    )
    batch = Batch(1, Ids(), Features(), 0)
    assert APPLY.mistake((batch,)) == "Compute(apply) takes (gradient: Dense), got (Batch)"


def test_arguments_go_by_place() -> None:
    with pytest.raises(TypeError, match="by place"):
        Compute(APPLY, gradient=Dense())


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_declaration_is_the_same_in_another_process(library: object) -> None:
    assert pickle.loads(library.dumps(APPLY)) is APPLY  # type: ignore[attr-defined]
