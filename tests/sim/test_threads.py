"""A thread of the program is one thread to the simulated cores, whatever it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.host.cores import Cores
from tests.simulated import simulate

TRAINING = {"steps": 6, "warmup_steps": 2, "batch_size": 64}
LOOPS = {f"trainer[{k}]/{kind}/worker[0]" for k in (0, 1) for kind in ("loop", "reader")}


def served(*servers: str) -> set[str]:
    """A thread for each client, over TCP."""
    return {f"{server}/server/trainer[{k}].worker[0]" for server in servers for k in (0, 1)}


@pytest.mark.parametrize(
    ("kind", "roles", "more"),
    [
        (
            "flat_ps",
            {"embedding_servers": 1, "dense_servers": 1},
            ("embedding_server[0]", "dense_server[0]"),
        ),
        ("flat_ps", {"embedding_servers": 0, "dense_servers": 0}, ("trainer[0]", "trainer[1]")),
        ("allreduce", {"embedding_servers": 1, "dense_servers": 0}, ("embedding_server[0]",)),
    ],
)
def test_what_runs_on_cores_are_the_programs_threads(
    kind: str,
    roles: dict[str, int],
    more: tuple[str, ...],
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients have no thread at a server in their own process."""
    threads: set[str] = set()
    run = Cores.run

    def spied(cores: Cores, thread: str, *work: Any, **how: Any) -> Any:
        threads.add(thread)
        return run(cores, thread, *work, **how)

    monkeypatch.setattr(Cores, "run", spied)
    plan = plans(kind, roles={"trainers": 2, **roles}, training=TRAINING)
    simulate(plan, clusters(cores=2, colocate=True))
    expected = LOOPS | {
        name for name in served(*more) if name.partition("/")[0] != name.split("/")[2].split(".")[0]
    }
    assert {name for name in threads if "/wire/" not in name} == expected
