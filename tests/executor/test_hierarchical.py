"""A net that is cut along tags computes what the whole net does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recsim_train.config.experiment import Model
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


@pytest.mark.timeout(400)
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_the_transformed_net_equals_the_original(hosts: int, tmp_path: Path) -> None:
    """After one step every parameter has moved by its gradient; after twenty all is the same."""
    todo = [case for steps in (1, 20) for case in cases(hosts, steps)]
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
