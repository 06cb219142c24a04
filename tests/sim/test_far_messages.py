"""Messages between racks: each pays the racks' latency once, however large it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Table
from recsim_train.config.topology import RackTopology
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import BUFFER_BYTES
from recsim_train.sim.engine import Engine
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.messages.serving import Direction
from recsim_train.sim.runtime import Runtime
from tests.sim.priced import priced

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

FAR, NEAR, RATE, HEAD = 0.010, 0.002, 10e9 / 8, 1000
TRAINER, SERVER = "trainer[0]", "embedding_server[0]"
pytestmark = pytest.mark.usefixtures("equal_shares")


def racks(latency: float) -> RackTopology:
    settings = {"racks": 2, "uplink": "100 Gbit/s", "arrange": "fill"}
    return RackTopology.model_validate(settings | {"latency": f"{latency} s"})


@pytest.mark.parametrize("there", [True, False], ids=["there", "back"])
@pytest.mark.parametrize("size", [1, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES])
def test_a_message_by_hand(plans: Plans, clusters: Clusters, size: int, there: bool) -> None:
    """Both latencies, then all its bytes; the sender goes on when all but the buffers' are there.
    What it takes alone is told beforehand."""
    plan = plans(roles={"trainers": 1, "embedding_servers": 1})
    engine = Engine()
    machines = Machines(plan, priced(clusters(topology=racks(FAR)), NEAR), engine, Jitter(1))
    ends = [next(p for p in machines.processes.values() if p.name == n) for n in (TRAINER, SERVER)]
    talk = Direction(machines, *(ends if there else reversed(ends)))
    times: dict[str, float] = {}

    def send() -> None:
        moving = talk.move(size, HEAD, 1)
        moving.arrived.callbacks.append(lambda _: times.update(arrived=engine.now))
        times.update(alone=moving.alone, until_taken=moving.until_taken)
        if moving.taken is not None:
            moving.taken.callbacks.append(lambda _: times.update(taken=engine.now))

    engine.later(0.0, send)
    engine.run()
    arrived = FAR + NEAR + (HEAD + size) / RATE
    assert [times["arrived"], times["alone"]] == pytest.approx([arrived] * 2, rel=1e-9)
    if size <= BUFFER_BYTES:
        assert "taken" not in times
    else:
        taken = arrived - BUFFER_BYTES / RATE
        assert [times["taken"], times["until_taken"]] == pytest.approx([taken] * 2, rel=1e-9)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    ("batch", "ids"),
    [(64, 1), (1_000, 1), (12_000, 1), (16_000, 40)],
    ids=["small", "below the buffers", "vectors above them", "ids too"],
)
def test_requests_and_answers_of_any_size(
    plans: Plans,
    clusters: Clusters,
    fake_counts: Any,
    shards: int,
    batch: int,
    ids: int,
) -> None:
    """A lookup, and an update that is answered, pay the way there and the way back."""
    plan = plans(
        "allreduce",
        roles={"trainers": shards, "embedding_servers": shards},  # a rack of each
        model={
            "tables": tuple(Table(rows=100_000, ids=ids) for _ in range(6)),
            "embedding_dim": 32,
            "bottom_mlp": (32, 32),
        },
        training={"batch_size": batch, "steps": 3, "warmup_steps": 1},
        data={"path": ("file.tsv",), "generate": True},
    )
    vectors, asked = batch * 6 * 32 * 4 / shards, batch * 6 * 8 * ids / shards
    assert (vectors > BUFFER_BYTES, asked > BUFFER_BYTES) == (batch > 10_000, ids > 1)

    def seconds(latency: float) -> dict[str, float]:
        cluster = priced(clusters(jitter=0.0, topology=racks(latency)))
        runtime = Runtime(plan, cluster, fake_counts(plan), iterations=4)
        runtime.run()
        return {k.effect: t.seconds / t.count for k, t in runtime.records.totals(1, 4).items()}

    without, far = seconds(0.0), seconds(FAR)
    for effect in ("lookup", "update"):
        assert far[effect] - without[effect] == pytest.approx(2 * FAR, rel=1e-6)
