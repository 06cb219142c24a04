"""A net that is cut along tags computes what the whole net does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from recsim_train.config.experiment import Model
from recsim_train.executor.net.model import DenseNet
from recsim_train.executor.net.tagged import TaggedPass
from recsim_train.executor.values import RealFeatures, RealIds, RealParts, RealRows
from recsim_train.executor.worker import Replica
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy.values import Batch
from recsim_train.workload.graph import graph_of
from tests.executor.net_group import Case, run_group, whole_tables
from tests.executor.plain import distance, plain_training

KINDS = ("dlrm", "wide_deep", "deepfm", "dcn")
TOP = (8, 6, 1)
RANDOM_TAGS = 5


def all_tags(kind: str, hosts: int) -> list[str]:
    """By cost; all operators data-parallel; all at one host; dealt out in turn; at random."""
    model: Model = Case(kind, top=TOP).plan(1).experiment.model
    names = [o.name for o in graph_of(model).operators]
    draw = random.Random(f"{kind} {hosts}")
    places = ["dp", *map(str, range(hosts))]
    return [
        "",
        ",".join(f"{name}=dp" for name in names),
        ",".join(f"{name}={hosts - 1}" for name in names),
        ",".join(f"{name}={index % hosts}" for index, name in enumerate(names)),
        *(",".join(f"{name}={draw.choice(places)}" for name in names) for _ in range(RANDOM_TAGS)),
    ]


def cases(hosts: int, steps: int) -> list[Case]:
    return [
        Case(
            kind,
            "hierarchical",
            (("hosts", hosts), ("tags", tags)),
            bags=number % 2 == 0,
            top=TOP,
            steps=steps,
            optimizer="adagrad" if number == 1 else "sgd",
        )
        for kind in KINDS
        for number, tags in enumerate(all_tags(kind, hosts))
    ]


@pytest.mark.parametrize(
    ("hosts", "steps"),
    [
        *((hosts, steps) for hosts in (1, 2) for steps in (1, 20)),
        (4, 1),
        pytest.param(4, 20, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
def test_the_transformed_net_equals_the_original(hosts: int, steps: int, tmp_path: Path) -> None:
    """After one step every parameter has moved by its gradient; after twenty all is the same."""
    todo = cases(hosts, steps)
    found = run_group(hosts, todo, tmp_path / "run")
    known = {}
    wrong = {}
    for case, left in zip(todo, found, strict=True):
        key = (case.kind, case.bags, case.steps, case.optimizer)
        if key not in known:
            known[key] = plain_training(case)
        losses, tables, flat = known[key]
        distances = [distance(a, b) for a, b in zip(whole_tables(case, left), tables, strict=True)]
        distances += [distance(part.trained, flat) for part in left]
        means = [sum(values) / hosts for values in zip(*(p.losses for p in left), strict=True)]
        distances += [abs(a - b) / b for a, b in zip(means, losses, strict=True)]
        if not all(d < 1e-12 for d in distances):
            wrong[case] = max(distances)
    assert not wrong


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    options = (("hosts", 2), ("precision", "bfloat16"), ("tags", "top.0=1"))
    case = Case("dlrm", "hierarchical", options, top=TOP)
    (left,) = run_group(2, [case], tmp_path / "run")
    _, _, flat = plain_training(case)
    assert distance(left[0].trained, flat) > 1e-9


@pytest.mark.parametrize("over", ["table", "sample"])
def test_pooled_embeddings_that_cross_a_cut_are_masked_by_table(over: str) -> None:
    """Two hosts in this process; host 1 alone runs what reads the pooled embeddings."""
    part = {"kind": "dct", "mode": "mp", "mp_density": 0.5, "mask": over}
    options = (("hosts", 2), ("tags", "input=1, deep.0=1"), ("compression", part))
    plan = Case("deepfm", "hierarchical", options, top=TOP).plan(2)
    net = plan.net
    assert isinstance(net, TaggedNet)
    spec, draw = plan.experiment, torch.Generator().manual_seed(3)
    batch, tables, dim = spec.training.batch_size, 4, 4
    passes, rows = [], []
    for host in range(2):
        replica = Replica(spec.model, spec.training, 3, net.held(host), net.shared_numbers)
        module = DenseNet(spec.model, replica.parameters, replica.names)
        held = torch.randn(tables, batch, dim + 1, generator=draw, dtype=torch.float64)
        held[0] *= 100  # one table with large values: by sample it takes all places
        dense = torch.randn(batch, 13, generator=draw, dtype=torch.float64)
        features = RealFeatures(dense, torch.ones(batch, dtype=torch.float64))
        ids = RealIds(torch.empty(0, dtype=torch.int64), (0,), (), batch)
        rows.append(held)
        passes.append(
            TaggedPass(module, net, host, Batch(batch, ids, features, 0), RealRows(held, ids))
        )
    sent = [each.forward(0).tensors for each in passes]
    for host, each in enumerate(passes):
        each.receive(0, RealParts(tuple(parts[host] for parts in sent)))
    pooled = torch.cat([held[:, :, :dim].transpose(0, 1) for held in rows])
    arrived = passes[1].values["pooled", True].view(2 * batch, tables, dim)
    kept = arrived != 0
    assert torch.equal(arrived[kept], pooled[kept])
    assert kept.sum((1, 2)).tolist() == [8] * 2 * batch
    if over == "sample":
        assert kept[:, 0].all()
        return
    assert (kept.sum(2) == 2).all()
    smallest_kept = torch.where(kept, pooled.abs(), torch.inf).amin(2)
    assert (torch.where(kept, 0.0, pooled.abs()).amax(2) <= smallest_kept).all()
