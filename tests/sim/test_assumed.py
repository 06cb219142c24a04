"""What a prediction assumes of ids and values is said, where it rests on it and only there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Table
from recsim_train.placement.plan import Plan
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

COMMON = "have in common is not counted in"
FILLING = re.compile(r"let ([\d.]+) % .* after about (\d+) exchanges, and this run has (\d+):")
NO_WHAT_IF = {"what_if_steps": 0}


@pytest.fixture
def written(tmp_path: Path) -> str:
    """A Criteo file of a few hundred rows."""
    path = tmp_path / "rows.tsv"
    row = ["1", *["3"] * 13, *["68fd1e64"] * 26]
    path.write_text("".join("\t".join(row) + "\n" for _ in range(400)))
    return str(path)


def warnings(plan: Plan, cluster: Cluster) -> tuple[str, ...]:
    return simulate(plan, cluster).facts.warnings


@pytest.mark.parametrize("kind", ["allreduce", "localsgd", "flat_ps"])
def test_ids_in_common_are_by_the_generators_law(
    plans: Plans, clusters: Clusters, written: str, kind: str
) -> None:
    """Where all trainers' gradients make one step, and the data are a file of somebody else's."""

    def found(**data: Any) -> list[str]:
        plan = plans(
            kind,
            roles={"trainers": 2, "embedding_servers": 1, "dense_servers": 1},
            model={"tables": tuple(Table(rows=100) for _ in range(26)), "dense_features": 13},
            training={"batch_size": 16, "steps": 3, "warmup_steps": 1},
            simulation=NO_WHAT_IF,
            data={"eval_rows": 0, "synthetic": {"zipf": 1.3}, **data},
        )
        return [text for text in warnings(plan, clusters()) if COMMON in text]

    together = kind != "flat_ps"
    assert len(found(path=(written,))) == together
    for text in found(path=(written,)):
        assert written in text
        assert "exponent 1.3" in text
    assert not found()  # the generator's own ids follow it
    assert not found(path=(written,), generate=True)


def test_one_trainer_has_nothing_in_common(plans: Plans, clusters: Clusters, written: str) -> None:
    plan = plans("allreduce", data={"path": (written,), "eval_rows": 0}, simulation=NO_WHAT_IF)
    assert not [text for text in warnings(plan, clusters()) if COMMON in text]


@pytest.mark.parametrize(
    ("compression", "steps", "said"),
    [
        ({"density": "1 %"}, 10, ("1", "100", "13")),
        ({"density": "25 %"}, 10, None),
        ({"density": "10 %"}, 5, ("10", "10", "8")),
        ({"density": "10 %"}, 7, None),
        ({"density": "1 %", "refresh": 1}, 10, None),
        ({"mode": "mp"}, 10, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_few_exchanges_with_stale_thresholds(
    plans: Plans,
    clusters: Clusters,
    kind: str,
    compression: dict[str, Any],
    steps: int,
    said: tuple[str, ...] | None,
) -> None:
    """Warm-up included, three steps."""
    plan = plans(
        kind,
        {"compression": {"kind": "dct", **compression}},
        roles={"trainers": 2, "embedding_servers": 1, "dense_servers": 4},
        training={"steps": steps},
        simulation=NO_WHAT_IF,
    )
    found = [m.groups() for text in warnings(plan, clusters()) if (m := FILLING.search(text))]
    assert found == ([] if said is None else [said])
