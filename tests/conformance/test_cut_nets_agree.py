"""One definition, two worlds, for nets that are cut over hosts: the same effects and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.experiment import Experiment, Model, Roles, StrategyChoice
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from tests.conformance.test_worlds_agree import (
    PROFILE,
    make_plan,
    payload,
    rounds_of,
    sequences,
)
from tests.simulated import simulate

TAGS = "bottom.0=0,top.0=1"


def plan_of(kind: str, strategy: str, options: dict[str, object], roles: Roles) -> Plan:
    choice = StrategyChoice(kind=strategy, options=options)
    spec: Experiment = make_plan(Roles(), StrategyChoice(kind="flat_ps")).experiment
    model = spec.model
    if kind == "wide":
        model = model.model_copy(update={"top_mlp": (128, 128, 1)})
    elif kind != "dlrm":
        model = Model(kind=kind, embedding_dim=4, top_mlp=(8, 6, 1), tables=model.tables)
    training = spec.training.model_copy(update={"sparse_optimizer": "sgd"})
    changes = {"model": model, "roles": roles, "training": training, "strategies": (choice,)}
    return build_plan(spec.model_copy(update=changes), choice)


CASES = {
    "des, whole tables": ("dlrm", "des", {}, Roles(trainers=2)),
    "des, columns": ("dlrm", "des", {"partition": "column"}, Roles(trainers=2)),
    "des, by id": ("dcn", "des", {"partition": "hash"}, Roles(trainers=3)),
    "des, split top": ("deepfm", "des", {"top": "split"}, Roles(trainers=2, readers=1)),
    "des, split top, by id": (
        "wide_deep",
        "des",
        {"top": "split", "partition": "hash"},
        Roles(trainers=2),
    ),
    "des, split top, columns": (
        "dlrm",
        "des",
        {"top": "split", "partition": "column"},
        Roles(trainers=2),
    ),
    "des, alone": ("deepfm", "des", {}, Roles()),
    "hierarchical": (
        "dlrm",
        "hierarchical",
        {"tags": TAGS},
        Roles(trainers=2, embedding_servers=2),
    ),
    "hierarchical, half": (
        "dcn",
        "hierarchical",
        {"tags": "cross.0=1,deep.0=0", "precision": "bfloat16"},
        Roles(trainers=2),
    ),
    "hierarchical, masked": (
        "dlrm",
        "hierarchical",
        {"tags": TAGS, "compression": {"kind": "dct", "mode": "mp", "mp_density": 0.4}},
        Roles(trainers=2, embedding_servers=1),
    ),
    "hierarchical, pooled masked": (
        "deepfm",
        "hierarchical",
        {"tags": "input=1", "compression": {"kind": "dct", "mode": "mp", "mp_density": 0.5}},
        Roles(trainers=2, embedding_servers=1),
    ),
    "hierarchical, fr-easgd": (
        "dlrm",
        "hierarchical",
        {"tags": TAGS, "outer": "easgd", "sync": "foreground", "every": 2},
        Roles(trainers=4, embedding_servers=1, dense_servers=2),
    ),
    "hierarchical, fr-bmuf": (
        "deepfm",
        "hierarchical",
        {"tags": "deep.0=1", "outer": "bmuf", "sync": "foreground", "every": 3},
        Roles(trainers=4),
    ),
    "hierarchical, tags by cost": (
        "wide",
        "hierarchical",
        {"bandwidth": 1e6, "latency": 0.0},
        Roles(trainers=2, embedding_servers=1),
    ),
    "hierarchical, tags by cost, outer by the job's size": (
        "wide",
        "hierarchical",
        {"hosts": 2, "bandwidth": 1e6, "latency": 0.0, "sync": "foreground", "every": 2},
        Roles(trainers=4, embedding_servers=1),
    ),
    "hierarchical, alone": ("dlrm", "hierarchical", {"hosts": 1}, Roles()),
}


@pytest.mark.parametrize("name", CASES)
def test_same_effects_and_same_bytes(name: str, tmp_path: Path) -> None:
    plan = plan_of(*CASES[name])
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    assert sequences(predicted) == sequences(real)
    assert payload(predicted) == payload(real)
    if "by cost" in name:
        assert isinstance(plan.net, TaggedNet)
        assert plan.net.model_parallel
    if "alone" not in name:
        assert sum(payload(real).values()) > 0


@pytest.mark.parametrize("outer", ["easgd", "ma"])
def test_rounds_of_groups_agree(outer: str, tmp_path: Path) -> None:
    """All rounds send the same: the whole net is put together beside them."""
    servers = 2 if outer == "easgd" else 0
    roles = Roles(trainers=4, embedding_servers=1, dense_servers=servers)
    plan = plan_of("dlrm", "hierarchical", {"tags": TAGS, "outer": outer}, roles)
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    ours, theirs = rounds_of(plan, predicted), rounds_of(plan, real)
    assert ours.keys() == theirs.keys()
    for loop in ours:
        assert len({*ours[loop][:-1], *theirs[loop][:-1]}) == 1
        assert ours[loop][-1] == theirs[loop][-1]
        sent = [{sum(size for *_, size in r) for r in world[loop]} for world in (ours, theirs)]
        assert len(set.union(*sent)) == 1
    background = {loop.label for loop in plan.background}
    trained = [
        {key: value for key, value in sequences(outcome).items() if key[1] not in background}
        for outcome in (predicted, real)
    ]
    assert trained[0] == trained[1]
