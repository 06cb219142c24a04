"""Whole runs with DCT: everything kept is no compression, bit for bit; what is left out trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.trace.record import Outcome
from tests.executor.keeping import execute_keeping


def run(
    folder: Path, roles: Roles, kind: str, options: dict[str, Any], **training: Any
) -> tuple[Outcome, dict[str, Tensor]]:
    """The outcome, and every tensor that processes held at the end."""
    choice = StrategyChoice(kind=kind, options=options)
    spec = Experiment(
        name="dct",
        model=Model(
            embedding_dim=8,
            bottom_mlp=(32, 8),
            top_mlp=(32, 1),
            tables=(Table(rows=400), Table(rows=60, ids=3), Table(rows=50, ids=4, variable=True)),
        ),
        data=Data(eval_rows=500, synthetic=Synthetic(rows=20_000)),
        roles=roles,
        training=Training(**{"batch_size": 32, "steps": 8, "warmup_steps": 0, **training}),
        strategies=(choice,),
    )
    folder.mkdir()
    outcome = execute_keeping(build_plan(spec, choice), folder)
    held = {}
    for path in sorted(folder.glob("*.pt")):
        for name, value in torch.load(path, weights_only=True).items():
            held[f"{path.stem}.{name}"] = value if name == "replica" else value[1]
    return outcome, held


THOROUGH = [pytest.mark.slow, pytest.mark.thorough]
ALL = {"kind": "dct", "mode": "both", "density": "100 %", "mp_density": "100 %", "refresh": 3}


@pytest.mark.parametrize(
    ("kind", "roles", "optimizer"),
    [
        pytest.param("flat_ps", Roles(), "sgd", marks=THOROUGH),
        ("flat_ps", Roles(embedding_servers=2, dense_servers=2), "adagrad"),
        pytest.param("allreduce", Roles(), "sgd", marks=THOROUGH),
        ("allreduce", Roles(trainers=2, embedding_servers=1), "sgd"),
    ],
)
def test_all_kept_is_no_compression_bit_for_bit(
    kind: str, roles: Roles, optimizer: str, tmp_path: Path
) -> None:
    plain, wanted = run(tmp_path / "plain", roles, kind, {}, dense_optimizer=optimizer)
    whole, found = run(
        tmp_path / "dct", roles, kind, {"compression": ALL}, dense_optimizer=optimizer
    )
    part, other = run(
        tmp_path / "some", roles, kind, {"compression": ALL | {"density": "50 %"}},
        dense_optimizer=optimizer,
    )  # fmt: skip
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    losses = [i.loss for i in sorted(plain.iterations, key=lambda i: (i.loop, i.iteration))]
    assert losses == [i.loss for i in sorted(whole.iterations, key=lambda i: (i.loop, i.iteration))]
    # and the comparison can fail
    assert any(not torch.equal(other[name], tensor) for name, tensor in wanted.items())
    assert part.facts.compression != whole.facts.compression


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
@pytest.mark.parametrize(
    "roles",
    [
        Roles(),
        Roles(embedding_servers=1),
        Roles(trainers=2, embedding_servers=2),
        Roles(trainers=2, embedding_servers=1, dense_servers=1),
    ],
    ids=["1 process", "2 processes", "4 processes", "4 processes, dense server"],
)
def test_what_is_left_out_still_trains(kind: str, roles: Roles, tmp_path: Path) -> None:
    part = {"kind": "dct", "mode": "both", "density": "5 %", "mp_density": "25 %", "refresh": 10}
    found, _ = run(tmp_path / "run", roles, kind, {"compression": part}, steps=150, dense_lr=0.1)
    losses = sorted((i.iteration, i.loss) for i in found.iterations if i.loss is not None)
    tenth = len(losses) // 10
    early = sum(loss for _, loss in losses[:tenth]) / tenth
    late = sum(loss for _, loss in losses[-tenth:]) / tenth
    assert late < early
    assert found.auc is not None
    assert found.auc > 0.5
    counted = found.facts.compression
    assert set(counted) == {"gradients", "activations", "activation_gradients"}
    for tally in counted.values():
        assert tally.value_compression >= tally.wire_compression > 1
