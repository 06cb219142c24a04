"""The gap between rounds of a shadow, in simulated time: how many rounds there are follows from it.

N iterations of each of m workers; a gap of g lets a round begin whenever the trainer's workers have
ended g m more iterations together, or will end no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Checkpoint, Recovery, Table
from recsim_train.config.topology import Failures, Stragglers
from recsim_train.placement.plan import Plan
from recsim_train.results.summary import synchronisation
from recsim_train.strategy.base import EmbeddingService, Loop, Strategy, Topology
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.effects import NextBatch, NextRound, Progress, batches
from recsim_train.trace.record import Outcome
from tests.sim.test_shadow_laws import PRICES
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
Run = Callable[[Plan, Cluster], Outcome]
STEPS, GAP = 42, 4
ALGORITHMS = ("easgd", "ma", "bmuf")
SLOW = Stragglers.model_validate({"slow": [{"hosts": ["trainer[1]"], "factor": 3}]})
"""Trainer 1's computations take three times as long."""


@pytest.fixture
def job(plans: Plans) -> Plans:
    def make(
        n: int = 1, m: int = 1, steps: int = STEPS, settings: Any = None, **options: Any
    ) -> Plan:
        return plans(
            "shadowsync",
            {"gap": GAP, **options},
            model={"tables": (Table(rows=1000),), "bottom_mlp": (64, 8), "top_mlp": (64, 1)},
            roles={"trainers": n, "embedding_servers": 1, "dense_servers": 1},
            data={"path": ("file.tsv",), "generate": True},
            training={"threads": m, "batch_size": 32, "steps": steps, "warmup_steps": 0},
            **(settings or {}),
        )

    return make


@pytest.fixture
def net(clusters: Clusters) -> Clusters:
    def make(nic: str = "1000 Gbit/s", **changes: Any) -> Cluster:
        return clusters(**{"cores": 64, "nic": nic, "jitter": 0.0, "prices": PRICES} | changes)

    return make


@pytest.fixture
def run(fake_counts: Any) -> Run:
    return lambda plan, cluster: simulate(plan, cluster, counts=fake_counts(plan))


def begins(outcome: Outcome, trainer: int = 0) -> list[float]:
    """When the rounds of a trainer's shadow begin."""
    return [r.start for r in outcome.rounds if r.loop == f"trainer[{trainer}].shadow[0]"]


def ends(outcome: Outcome, trainer: int = 0) -> list[float]:
    """When iterations of a trainer's workers end, in order."""
    return sorted(i.end for i in outcome.iterations if i.loop.startswith(f"trainer[{trainer}]."))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("m", [1, 2])
def test_rounds_begin_at_the_ends_of_iterations(
    job: Plans, net: Clusters, run: Run, algorithm: str, m: int
) -> None:
    """At the start, after 4, 8 ... 40 iterations of each worker, and once all 42 are over."""
    outcome = run(job(m=m, algorithm=algorithm), net())
    ended = ends(outcome)
    *rounds, last = begins(outcome)
    assert rounds == [0.0, *(ended[m * k - 1] for k in range(GAP, STEPS, GAP))]
    assert len(rounds) == 11
    assert ended[-1] <= last <= ended[-1] + 20e-6  # what the end of the data and a wait cost


def test_the_last_round_comes_after_that_of_a_gap_that_ends_with_training(
    job: Plans, net: Clusters, run: Run
) -> None:
    outcome = run(job(steps=40), net())
    *rounds, last = begins(outcome)
    assert rounds == [0.0, *ends(outcome)[GAP - 1 :: GAP]]
    assert last == pytest.approx(rounds[-1], abs=200e-6)


def test_a_gap_that_is_never_reached_leaves_two_rounds(job: Plans, net: Clusters, run: Run) -> None:
    first, last = begins(run(job(gap=1000), net()))
    assert first == 0.0 < last


@pytest.mark.usefixtures("equal_shares")
def test_rounds_that_take_longer_than_the_gap_do_not_pause(
    job: Plans, net: Clusters, run: Run
) -> None:
    slow = net("4 Mbit/s")
    gapped, free = (begins(run(job(gap=gap), slow)) for gap in (1, 0))
    assert 3 < len(gapped) == len(free) < STEPS / 2
    assert gapped == pytest.approx(free, rel=1e-3)  # the effect itself takes 1 us each time


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_gap_asks_for_nothing(job: Plans, net: Clusters, run: Run, algorithm: str) -> None:
    """The loop is the one without a pause, effect by effect."""
    waits = [
        {key.effect for key in run(job(gap=gap, algorithm=algorithm), net()).totals}
        for gap in (0, GAP)
    ]
    assert waits[1] - waits[0] == {"progress"}


def test_free_shadows_follow_their_own_trainers(job: Plans, net: Clusters, run: Run) -> None:
    outcome = run(job(2), net(stragglers=SLOW))
    for trainer in (0, 1):
        ended = ends(outcome, trainer)
        assert begins(outcome, trainer)[:-1] == [0.0, *ended[GAP - 1 :: GAP]]
    assert ends(outcome, 1)[-1] > 2 * ends(outcome, 0)[-1]


@pytest.mark.parametrize("algorithm", ["ma", "bmuf"])
def test_shadows_that_meet_follow_the_slowest_trainer(
    job: Plans, net: Clusters, run: Run, algorithm: str
) -> None:
    """The fast one's goes on meeting it when its own workers have long ended."""
    outcome = run(job(2, algorithm=algorithm), net(stragglers=SLOW))
    slow = begins(outcome, 1)
    assert slow[:-1] == [0.0, *ends(outcome, 1)[GAP - 1 :: GAP]]
    assert len(begins(outcome, 0)) == len(slow)
    assert sum(start > ends(outcome, 0)[-1] for start in begins(outcome, 0)) > 5
    # while it trains, every round finds it three gaps further
    syncs = sorted(s.end for s in outcome.syncs if s.loop.startswith("trainer[0]"))
    ended = ends(outcome, 0)
    done = [sum(end <= sync for end in ended) for sync in syncs]
    gaps = [b - a for a, b in zip(done[1:], done[2:], strict=False) if b < STEPS]
    assert gaps
    assert all(abs(gap - 3 * GAP) <= 1 for gap in gaps)


SURROUNDINGS: dict[str, dict[str, Any]] = {
    "calm": {},
    "jitter": {"jitter": 0.5},
    "a slow host": {"jitter": 0.2, "stragglers": SLOW},
    "few cores": {"cores": 1},
    "a failure": {
        "failures": Failures.model_validate(
            {"restart": "30 ms", "schedule": [{"at": "20 ms", "host": "trainer[1]"}]}
        )
    },
    "failures": {"failures": Failures.model_validate({"restart": "2 ms", "mtbf": "50 ms"})},
}


@pytest.mark.parametrize("gap", [1, 3, 50])
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_more_rounds_than_the_gap_allows(
    job: Plans, net: Clusters, run: Run, algorithm: str, surroundings: str, gap: int
) -> None:
    """And every loop ends: at the start, after each gap of iterations, when all have ended."""
    settings: dict[str, Any] = {}
    if surroundings == "a failure":
        settings["recovery"] = Recovery(policy="continue_without")
    elif surroundings == "failures":
        settings["recovery"] = Recovery(policy="restart")
        settings["checkpoint"] = Checkpoint(every="20 ms")
    plan = job(3, 2, steps=20, algorithm=algorithm, gap=gap, settings=settings)
    outcome = run(plan, net(**SURROUNDINGS[surroundings]))
    assert len(outcome.iterations) == 3 * 2 * 20
    for trainer in range(3):
        assert 2 <= len(begins(outcome, trainer)) <= 1 + 20 // gap + 1


@pytest.mark.parametrize("outer", ALGORITHMS)
@pytest.mark.parametrize("stragglers", [None, SLOW])
def test_groups_of_hosts_have_the_same_gap(
    plans: Plans, net: Clusters, run: Run, outer: str, stragglers: Any
) -> None:
    plan = plans(
        "hierarchical",
        {"hosts": 2, "outer": outer, "gap": GAP},
        roles={"trainers": 4, "embedding_servers": 1, "dense_servers": 1},
    )
    outcome = run(plan, net(stragglers=stragglers))
    steps = plan.experiment.training.warmup_steps + plan.experiment.training.steps
    assert len(outcome.iterations) == 4 * steps
    for trainer in range(4):
        assert 2 <= len(begins(outcome, trainer)) <= 1 + steps // GAP + 1


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_gap_by_default_keeps_the_mean_sync_gap_below_five(
    job: Plans, net: Clusters, run: Run, algorithm: str, m: int
) -> None:
    """As results have it, and no lower than the setting."""
    plan = job(2, m, steps=60, algorithm=algorithm)
    outcome = run(plan, net(jitter=0.2))
    found = synchronisation(plan, outcome, outcome.iterations).sync_gap_per_thread
    assert found is not None
    assert 0.95 * GAP < found <= 5.0


# ------------------------------------------------------------------ the effect itself


@dataclass
class Watching(Strategy):
    """Another strategy's background loop, which asks for more than there will be."""

    kind: ClassVar[str] = "watching"
    summary: ClassVar[str] = "a test's"
    source: ClassVar[str] = "here"
    answers: ClassVar[list[int]] = []

    def topology(self, threads: int) -> Topology:
        loops = Loop("worker", copies=threads), Loop("beside", consumes_batches=False)
        return Topology(loops=loops, services=(EmbeddingService(),))

    async def worker(self) -> None:
        async for _ in batches():
            pass

    async def beside(self) -> None:
        await NextRound(last=True)
        self.answers[:] = [await Progress(n) for n in (0, 5, 5, 10**6, 0)]


@dataclass
class Early(Watching):
    """Workers that leave before the end of their data."""

    kind: ClassVar[str] = "early"

    async def worker(self) -> None:
        await NextBatch()
        await NextBatch()


@dataclass
class Vain(Watching):
    """A worker that would wait for itself."""

    kind: ClassVar[str] = "vain"

    async def worker(self) -> None:
        await Progress(1)


@pytest.fixture
def watch(plans: Plans, net: Clusters, run: Run, registered: Any) -> Callable[[type], Outcome]:
    def do(strategy: type[Strategy]) -> Outcome:
        registered(strategy)
        return run(plans(strategy.kind, training={"threads": 2, "steps": 7}), net())

    return do


def test_a_wait_ends_with_the_count_of_iterations(watch: Callable[[type], Outcome]) -> None:
    watch(Watching)
    total = 2 * (3 + 7)
    first, second = Watching.answers[1:3]
    assert 5 <= first <= second <= 6  # two may end at one moment
    assert Watching.answers[3:] == [total, total]


def test_a_loop_that_leaves_early_is_waited_for_no_longer(watch: Callable[[type], Outcome]) -> None:
    watch(Early)
    assert Early.answers[3:] == [4, 4]


def test_a_training_loop_cannot_wait_for_itself(watch: Callable[[type], Outcome]) -> None:
    with pytest.raises(StrategyError, match="gives loop 'worker' no other loops' progress"):
        watch(Vain)
