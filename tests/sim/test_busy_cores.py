"""How many cores of one host loops keep busy side by side, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.sim.cluster.hosts import busy_cores, cores_beyond
from tests.sim.conftest import make_cluster, make_plan

PLAN = make_plan(
    roles={"trainers": 4, "embedding_servers": 2, "dense_servers": 1}, training={"threads": 3}
)
"""Twelve loops of one thread each; at a server each has one."""


@pytest.mark.parametrize(
    ("changes", "busy"),
    [
        ({"cores": 8}, 8),
        ({"cores": 32}, 12),
        ({"cores": 32, "per_host": {"embedding_server": 2}}, 24),
        ({"cores": 20, "per_host": {"embedding_server": 2}}, 20),
        ({"cores": 32, "per_host": {"trainer": 4}}, 12),
        ({"cores": 8, "colocate": True}, 8),
        ({"cores": 32, "colocate": True}, 12),
    ],
)
def test_loops_keep_so_many_cores_busy(changes: dict[str, Any], busy: int) -> None:
    cluster = make_cluster(**changes)
    assert busy_cores(PLAN, cluster) == busy
    for measured, beyond in ((busy - 1, busy), (busy, None), (None, None)):
        known = cluster.model_copy(update={"measured_cores": measured})
        assert cores_beyond(PLAN, known) == beyond


def test_without_servers_a_trainers_own_threads_count() -> None:
    plan = make_plan("allreduce", roles={"trainers": 4}, training={"threads": 3})
    together = make_cluster(cores=32, per_host={"trainer": 4})
    assert busy_cores(plan, make_cluster(cores=32)) < busy_cores(plan, together)
    assert busy_cores(plan, together) == 4 * busy_cores(plan, make_cluster(cores=32))
