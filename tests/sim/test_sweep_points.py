"""Points of a sweep share what is equal between them, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import counts_key
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Simulator, evaluate
from recsim_train.evaluate.levels import FINAL
from recsim_train.placement.plan import Plan
from recsim_train.results.row import COMPLETE, DOES_NOT_FIT

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
WORKER = {"pooling": "worker"}


def figures(simulator: Simulator, one: Case) -> dict[str, object]:
    row = simulator.row(one, FINAL)
    return {key: value for key, value in row.document.items() if key != "wall_seconds"}


def test_remembered_counts_give_the_same_figures(plans: Plans, clusters: Clusters) -> None:
    plan = plans(options=WORKER, roles={"trainers": 2, "embedding_servers": 2})
    other = plans(options=WORKER, roles={"trainers": 3, "embedding_servers": 2})
    cases = [
        Case.of(plan, clusters()),
        Case.of(plan, clusters(nic="1 Gbit/s")),
        Case.of(other, clusters()),
    ]
    shared = Simulator()
    together = [figures(shared, one) for one in cases]
    alone = [figures(Simulator(), one) for one in cases]
    assert together == alone
    assert together[0]["examples_per_second"] != together[1]["examples_per_second"]


def test_the_key_holds_all_that_counts_depend_on(plans: Plans) -> None:
    base = plans(options=WORKER, roles={"trainers": 2, "embedding_servers": 2})
    same = plans(options={**WORKER, "every": 4}, roles={"trainers": 2, "embedding_servers": 2})
    assert counts_key(base) == counts_key(same)
    for changed in (
        plans(roles={"trainers": 2, "embedding_servers": 2}),
        plans(options=WORKER, roles={"trainers": 3, "embedding_servers": 2}),
        plans(options=WORKER, roles={"trainers": 2, "embedding_servers": 3}),
        dataclasses.replace(base, experiment=plans(training={"batch_size": 7}).experiment),
        dataclasses.replace(base, experiment=plans(data={"limit_rows": 9}).experiment),
    ):
        assert counts_key(changed) != counts_key(base)


def test_what_does_not_fit_is_a_row(plans: Plans, clusters: Clusters) -> None:
    small = clusters(memory="0.1 GiB")
    cases = [Case.of(plans(), small), Case.of(plans(), clusters())]
    rows = dict(evaluate(cases, FINAL))
    assert rows[0].status == DOES_NOT_FIT
    assert "GiB too much" in rows[0].why
    assert rows[0].examples_per_second is None
    assert rows[1].status == COMPLETE
