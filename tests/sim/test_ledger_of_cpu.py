"""The simulator's ledger of CPU time, by hand and against what its cores did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.placement.plan import Plan
from recsim_train.sim.records import CpuBooks
from recsim_train.trace.record import Outcome
from recsim_train.workload import operations, shape
from recsim_train.workload.scope import Scope
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

STEPS = 5
SERVERS = {"trainers": 2, "embedding_servers": 2, "dense_servers": 1}


def test_one_trainer_one_server_by_hand(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(
        roles={"embedding_servers": 1},
        training={"steps": STEPS, "warmup_steps": 2, "batch_size": 64},
    )
    cluster = clusters(prices={"message": "10 us", "row_request": "35 us"})
    outcome = outcome_of(plan, cluster)
    ledger = outcome.facts.ledger
    assert ledger is not None
    # the loop goes on before its update is served: how many of these does the window see?
    first, *_, last = outcome.iterations[2:]
    served = [s.start for s in outcome.spans if s.effect == "serve_update"]
    updates = sum(first.start <= start < last.end for start in served)
    assert updates in (STEPS - 1, STEPS)
    price = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    model, ids = plan.experiment.model, 6 * 64

    def work(name: str) -> float:
        elements = shape.dense_parameters(model)
        numbers = {"ids": ids, "unique": ids, "tables": 6, "elements": elements}
        scope = Scope(model, plan.experiment.training, batch=64, **numbers)
        return STEPS * sum(n * price[p] for p, n in operations.cost(name, scope).items())

    booked = {(line.role, line.what, line.thread): line.seconds for line in ledger.lines}
    for name in ("forward_backward", "route_ids", "assemble_rows", "route_gradient", "load"):
        assert booked["trainer", name, "loop"] == pytest.approx(work(name)), name
    for name in ("dense_read", "dense_apply"):  # the trainer holds the dense shard
        assert booked["trainer", name, "loop"] == pytest.approx(work(name)), name
    for name, count in (("lookup_pooled", STEPS), ("update_pooled", updates)):
        seconds = work(name) * count / STEPS
        assert booked["embedding_server", name, "server"] == pytest.approx(seconds), name
    # next batch, pull, load, lookup, forward and backward, push, update
    assert booked["trainer", "runtime", "loop"] == pytest.approx(STEPS * 7 * price["effect"])
    # pull, lookup, push, update
    assert booked["trainer", "asking", "loop"] == pytest.approx(STEPS * 4 * price["asking"])
    requests = (STEPS + updates) * price["row_request"]
    assert booked["embedding_server", "requests", "server"] == pytest.approx(requests)
    messages = 3 * 10e-6  # ids, an answer, gradients
    heads = 2 * (8 + 8 + 8 * (5 + 6)) + 8  # header: five numbers, one for each table
    loop = STEPS * messages
    assert booked["trainer", "transport", "loop"] == pytest.approx(loop)
    unseen = (STEPS - updates) * 10e-6
    assert booked["embedding_server", "transport", "server"] == pytest.approx(loop - unseen)
    vectors = 6 * 64 * 8 * 4
    wire = STEPS * (heads + shape.ID_BYTES * ids + 2 * vectors) * price["wire_byte"]
    for role in ("trainer", "embedding_server"):
        assert booked[role, "transport", "wire"] == pytest.approx(wire)
    assert ledger.seconds > 0.0


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "flat_ps": ("flat_ps", {}),
    "rows": ("flat_ps", {"pooling": "worker"}),
    "dct": ("flat_ps", {"compression": {"kind": "dct", "density": "10 %"}}),
    "allreduce": ("allreduce", {}),
    "localsgd": ("localsgd", {"every": 2}),
    "shadowsync easgd": ("shadowsync", {"algorithm": "easgd"}),
    "shadowsync ma": ("shadowsync", {"algorithm": "ma"}),
    "des": ("des", {}),
    "hierarchical": ("hierarchical", {"tags": "bottom.0=0,top.0=1"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("readers", [0, 1])
def test_the_lines_are_what_the_cores_did(
    name: str, readers: int, plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """An activity is booked where it begins, so that the window's ends blur a little."""
    kind, options = CASES[name]
    roles = {"trainers": 2} if kind == "des" else SERVERS
    training = {"steps": 40, "warmup_steps": 3, "sparse_optimizer": "sgd"}
    plan = plans(kind, options, roles={**roles, "readers": readers}, training=training)
    ledger = outcome_of(plan, clusters()).facts.ledger
    assert ledger is not None
    assert ledger.total > 0.0
    assert abs(ledger.remainder) < 0.03 * ledger.total
    assert "other" not in {line.what for line in ledger.lines}


@pytest.mark.parametrize("options", [{"cache_share": 1.0}, {"cache_rows": 900}])
def test_so_they_are_with_caches(options: dict[str, Any], plans: Plans, clusters: Clusters) -> None:
    training = {"steps": 40, "warmup_steps": 3}
    what_if = {"what_if_steps": 0}
    plan = plans("scalefreectr", options, roles=SERVERS, training=training, simulation=what_if)
    ledger = simulate(plan, clusters()).facts.ledger
    assert ledger is not None
    assert abs(ledger.remainder) < 0.03 * ledger.total
    assert ("trainer", "probe") in ledger.rows()
    assert ("embedding_server", "fetch_rows") in ledger.rows()


def test_trainers_that_stand_for_others_book_their_time(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    roles = {"trainers": 8, "embedding_servers": 2, "dense_servers": 1}
    found = []
    for above in (0, 4):
        plan = plans(roles=roles, training={"steps": 80}, simulation={"fold_above": above})
        ledger = outcome_of(plan, clusters()).facts.ledger
        assert ledger is not None
        assert abs(ledger.remainder) < 0.03 * ledger.total
        found.append({row: s / ledger.seconds for row, s in ledger.rows().items()})
    assert found[0] == pytest.approx(found[1], rel=0.05)


def test_a_slow_host_takes_more_cpu_time(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """In proportion: seconds of its cores, not of the reference's."""
    found = []
    for speed in (1.0, 0.5):
        host = {"cores": 8, "memory": "64 GiB", "nic": "10 Gbit/s", "speed": speed}
        cluster = clusters(hosts={"trainer": host})
        ledger = outcome_of(plans(roles=SERVERS), cluster).facts.ledger
        assert ledger is not None
        assert abs(ledger.remainder) < 0.03 * ledger.total
        found.append(ledger.rows()["trainer", "forward_backward"])
    assert found[1] == pytest.approx(2 * found[0])


def test_a_pool_that_saves_nothing_is_booked_for_what_it_adds() -> None:
    books = CpuBooks()
    books.add("trainer", "loop", [("load", 3.0, 0.0, 1.0, 1.0)], threaded=True)
    books.add("trainer", "loop", [("load", 3.0, 2.0, 1.0, 3.0)], threaded=True)
    books.add("trainer", "loop", [("load", 3.0, 2.0, 1.0, 3.0)])
    assert books.seconds == {
        ("trainer", "load", "loop"): 3.0 + 1.0 + 3.0,
        ("trainer", "load", "pool"): 1.0 + 3.0,
    }
