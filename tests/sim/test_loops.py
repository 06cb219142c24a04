"""Strategies inside the simulator: what they may do, and how what they may not do is reported."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed
from recsim_train.config.experiment import Recovery
from recsim_train.config.topology import Failures
from recsim_train.placement.plan import Plan
from recsim_train.results.summary import document_of, summarise, summary_of
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.runtime import DeadlockError
from recsim_train.strategy.base import (
    DENSE,
    EMBEDDING,
    TRAINERS,
    DenseService,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
)
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.effects import (
    AllReduce,
    Compute,
    Lookup,
    NextBatch,
    Now,
    Pull,
    Push,
    Update,
    batches,
)
from recsim_train.strategy.operations import APPLY, FORWARD_BACKWARD, SNAPSHOT
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]


class Base(Strategy):
    summary: ClassVar[str] = "a test's"
    source: ClassVar[str] = "here"

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker"),),
            services=(EmbeddingService(), DenseService()),
            groups=(Group(TRAINERS, "worker"),),
        )

    async def worker(self) -> None:
        raise NotImplementedError


@dataclass
class Stuck(Base):
    """Every second trainer forgets the collective."""

    kind: ClassVar[str] = "stuck"
    made: ClassVar[itertools.count[int]] = itertools.count()

    def __post_init__(self) -> None:
        self.forgets = next(self.made) % 2 == 0

    async def worker(self) -> None:
        async for _ in batches():
            if not self.forgets:
                await self.meet()

    async def meet(self) -> None:
        await AllReduce(await Compute(SNAPSHOT), TRAINERS)


@dataclass
class Broken(Base):
    kind: ClassVar[str] = "broken"

    async def worker(self) -> None:
        async for batch in batches():
            rows = await Lookup(EMBEDDING, batch.ids)
            _ = {}["rows"] if rows is not None else rows


@dataclass
class Peeking(Base):
    kind: ClassVar[str] = "peeking"

    async def worker(self) -> None:
        async for batch in batches():
            if batch.ids:
                return


@dataclass
class Foreign(Base):
    kind: ClassVar[str] = "foreign"

    async def worker(self) -> None:
        await NextBatch()
        await asyncio.sleep(0)


@dataclass
class Careful(Base):
    """Handles the failure of an effect."""

    kind: ClassVar[str] = "careful"
    seen: ClassVar[list[str]] = []

    async def worker(self) -> None:
        async for batch in batches():
            try:
                await Pull("no such service")
            except KeyError as error:
                self.seen.append(str(error))
            try:
                await Push(DENSE, batch.ids)  # type: ignore[arg-type]
            except TypeError as error:
                self.seen.append(str(error))
            rows = await Lookup(EMBEDDING, batch.ids)
            try:
                await Update(EMBEDDING, rows)
            except TypeError as error:
                self.seen.append(str(error))
            try:
                await Compute(APPLY, batch.ids)
            except TypeError as error:
                self.seen.append(str(error))


@dataclass
class Clocked(Base):
    """Stops early, by the world's clock."""

    kind: ClassVar[str] = "clocked"
    times: ClassVar[list[float]] = []

    async def worker(self) -> None:
        async for batch in batches():
            rows = await Lookup(EMBEDDING, batch.ids)
            await Compute(FORWARD_BACKWARD, batch, rows)
            self.times.append(await Now())


@pytest.fixture
def run(plans: Plans, clusters: Clusters, fake_counts: Any, registered: Any) -> Callable[..., Any]:
    def simulate_one(strategy: type[Strategy], **roles: int) -> Any:
        registered(strategy)
        plan = plans(strategy.kind, roles=roles)
        return simulate(plan, clusters(), counts=fake_counts(plan))

    return simulate_one


def line_of(strategy: type[Strategy], text: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"class {strategy.__name__}"))
    number = next(i for i, line in enumerate(lines) if i > start and text in line)
    return f"test_loops.py:{number + 1}"


def test_a_deadlock_names_who_waits_for_what_and_where(run: Callable[..., Any]) -> None:
    with pytest.raises(DeadlockError) as caught:
        run(Stuck, trainers=2)
    text = str(caught.value)
    assert text.startswith("deadlock after ")
    rows = [line for line in text.splitlines() if "waits for" in line]
    assert len(rows) == 1
    assert rows[0].strip().startswith("trainer[")
    assert "AllReduce of group 'trainers'" in rows[0]
    assert rows[0].endswith(line_of(Stuck, "await AllReduce"))
    assert "1 of 2 members arrived" in text
    assert isinstance(caught.value, RunFailed)


def test_a_deadlock_is_found_although_hosts_go_on_failing(
    plans: Plans, clusters: Clusters, fake_counts: Any, registered: Any
) -> None:
    registered(Stuck)
    recovery = Recovery(policy="continue_without")
    plan = plans("stuck", roles={"trainers": 2}, recovery=recovery)
    failing = clusters(failures=Failures.model_validate({"mtbf": "5 ms", "restart": "1 ms"}))
    with pytest.raises(DeadlockError, match="1 of 2 members arrived"):
        simulate(plan, failing, counts=fake_counts(plan))


def test_an_exception_names_the_loop_and_the_line(run: Callable[..., Any]) -> None:
    with pytest.raises(StrategyError) as caught:
        run(Broken, trainers=2)
    line = line_of(Broken, '{}["rows"]')
    text = str(caught.value)
    assert text.endswith(f"].worker[0] failed at {line}: KeyError: 'rows'")
    assert text.startswith("trainer[")
    assert isinstance(caught.value.__cause__, KeyError)


def test_looking_into_a_value_is_refused_with_the_line(run: Callable[..., Any]) -> None:
    with pytest.raises(StrategyError, match="may not branch on a tensor") as caught:
        run(Peeking)
    assert line_of(Peeking, "if batch.ids") in str(caught.value)


def test_awaiting_anything_else_is_refused_with_the_line(run: Callable[..., Any]) -> None:
    with pytest.raises(StrategyError, match="which is not an effect") as caught:
        run(Foreign)
    assert str(caught.value).startswith(
        line_of(Foreign, "asyncio.sleep") + ": trainer[0].worker[0]"
    )


def test_failed_effects_are_thrown_into_the_loop(run: Callable[..., Any]) -> None:
    Careful.seen.clear()
    outcome = run(Careful)
    assert outcome.steps == 20
    assert len(Careful.seen) >= 4 * 23  # and those of the run without sharing
    assert "no dense service 'no such service'" in Careful.seen[0]
    assert "Push needs Dense or Sparse, not GhostIds" in Careful.seen[1]
    assert "Update needs the gradient" in Careful.seen[2]
    assert "Compute(apply)" in Careful.seen[3]


def test_now_is_the_simulated_clock(run: Callable[..., Any]) -> None:
    Clocked.times.clear()
    outcome = run(Clocked)
    ends = [s.end for s in outcome.spans if s.effect == "now"]
    assert len(ends) == 23
    assert Clocked.times[:23] == ends == sorted(ends)


def test_early_stop_has_exact_totals(plans: Plans, clusters: Clusters, fake_counts: Any) -> None:
    plan = plans(
        roles={"trainers": 3, "embedding_servers": 2, "dense_servers": 1},
        training={"steps": 5000, "warmup_steps": 5, "threads": 2},
        simulation={"precision": "2 %", "minimum_steps": 40},
    )
    seen: list[tuple[int, int]] = []
    outcome = simulate(
        plan,
        clusters(jitter=0.1),
        counts=fake_counts(plan),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert 39 <= outcome.steps < 1000
    assert outcome.facts.stopped == "estimate settled"
    loops, b = 6, 64
    by_loop = {(k.instance, k.loop) for k in outcome.totals if k.effect == "lookup"}
    assert len(by_loop) == loops
    for key, total in outcome.totals.items():
        each = 2 if key.effect == "compute" and key.name == "none" else 1
        assert total.count == outcome.steps * each, key
    lookups = sum(t.bytes for k, t in outcome.totals.items() if k.effect == "lookup")
    assert lookups == loops * outcome.steps * 8 * 6 * b
    counted = [i for i in outcome.iterations if i.iteration >= 5]
    assert len(counted) == loops * outcome.steps
    assert max(i.iteration for i in counted) == 5 + outcome.steps - 1
    assert seen[0] == (1, 5005 * loops)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_no_early_stop_below_minimum_steps_or_without_precision(
    plans: Plans, clusters: Clusters, fake_counts: Any
) -> None:
    for simulation in ({"precision": "50 %"}, {"precision": "0 %", "minimum_steps": 1}):
        plan = plans(training={"steps": 60, "warmup_steps": 0}, simulation=simulation)
        outcome = simulate(plan, clusters(), counts=fake_counts(plan))
        assert outcome.steps == 60
        assert outcome.facts.stopped == "every step done"


def test_facts_are_json(plans: Plans, clusters: Clusters, fake_counts: Any) -> None:
    plan = plans(roles={"trainers": 2})
    outcome = simulate(plan, clusters(), counts=fake_counts(plan))
    summary = summarise(plan, outcome=outcome, world="simulated", status="complete")
    document = document_of(summary)
    assert json.loads(json.dumps(document)) == document
    assert summary_of(document) == summary
    assert summary.facts.id_counts == "a test's fixed counts"
    assert set(summary.facts.memory) == {"trainer[0]", "trainer[1]"}


def test_spans_are_capped_and_totals_are_not(
    plans: Plans, clusters: Clusters, fake_counts: Any
) -> None:
    from recsim_train.config.experiment import Execution

    full, capped = (
        plans(roles={"trainers": 2}, execution=Execution(max_spans=n)) for n in (10_000, 10)
    )
    everything = simulate(full, clusters(), counts=fake_counts(full))
    some = simulate(capped, clusters(), counts=fake_counts(capped))
    assert some.totals == everything.totals
    assert len(some.spans) == 20
    assert some.dropped_spans == len(everything.spans) - 20


def test_the_plans_own_counts_are_used(plans: Plans, clusters: Clusters) -> None:
    outcome = simulate(plans(roles={"trainers": 2}), clusters())
    assert "Zipf" in str(outcome.facts.id_counts)
    rows = simulate(plans("flat_ps", {"pooling": "worker"}, roles={"trainers": 2}), clusters())
    assert "counted in" in str(rows.facts.id_counts)


def test_jitter_is_the_same_for_every_strategy_and_has_mean_one() -> None:
    def draw(streams: list[str], count: int) -> dict[str, list[float]]:
        jitter = Jitter(seed=1, deviation=0.3)
        return {s: [jitter.factor("trainer[0]", s) for _ in range(count)] for s in streams}

    many = draw(["a", "b"], 20_000)
    assert draw(["b"], 100)["b"] == many["b"][:100]
    assert many["a"] != many["b"]
    mean = sum(many["a"]) / 20_000
    deviation = (sum((x - mean) ** 2 for x in many["a"]) / 20_000) ** 0.5
    assert mean == pytest.approx(1.0, abs=0.02)
    assert deviation == pytest.approx(0.3, rel=0.05)
    assert Jitter(1, 0.0).factor("x", "y") == 1.0
    assert Jitter(2, 0.3).factor("trainer[0]", "a") != many["a"][0]
