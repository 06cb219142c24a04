"""Where a prediction ends early, and what it then says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Table
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome
from tests.simulated import simulate


@pytest.mark.parametrize("least", [16, 17, 18, 19, 20])
def test_an_early_end_counts_whole_periods(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[..., Outcome],
    least: int,
) -> None:
    """All meet at every fifth step, which takes long; four steps and a meeting are no period."""

    def rate(**simulation: Any) -> tuple[float, int]:
        plan = plans(
            "shadowsync",
            {"algorithm": "bmuf", "sync": "foreground", "every": 5},
            model={"bottom_mlp": (512, 8)},
            training={"steps": 200, "warmup_steps": 5},
            roles={"trainers": 3, "embedding_servers": 1},
            simulation=simulation,
        )
        outcome = outcome_of(plan, clusters(network={"efficiency": 0.1}))
        assert outcome.speed is not None
        assert outcome.speed.examples_per_second is not None
        return outcome.speed.examples_per_second, outcome.steps

    whole, every = rate(precision="0 %")
    early, steps = rate(precision="90 %", minimum_steps=least)
    assert every == 200
    assert least - 1 <= steps <= least
    assert early == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize(
    ("strategy", "options", "trainers"),
    [
        ("localsgd", {"every": 4}, 2),
        ("allreduce", {}, 2),
        ("flat_ps", {"every": 3}, 2),
        ("flat_ps", {"mode": "easgd", "every": 5}, 2),
        ("shadowsync", {"algorithm": "easgd", "sync": "foreground", "every": 3}, 2),
        ("shadowsync", {"algorithm": "ma", "sync": "foreground", "every": 4}, 2),
        ("shadowsync", {"algorithm": "ma", "every": 4}, 2),
        ("hierarchical", {"hosts": 2, "outer": "ma", "sync": "foreground", "every": 3}, 4),
        ("hierarchical", {"hosts": 2, "outer": "ma", "every": 3}, 4),
        ("hierarchical", {"hosts": 2, "outer": "none", "sync": "foreground", "every": 3}, 2),
        ("des", {}, 2),
        ("scalefreectr", {}, 2),
    ],
)
def test_a_topology_says_after_how_many_steps_a_loop_does_the_same(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[..., Outcome],
    strategy: str,
    options: dict[str, Any],
    trainers: int,
) -> None:
    servers = {
        "trainers": trainers,
        "embedding_servers": int(strategy not in ("des", "scalefreectr")),
    }
    plan = plans(
        strategy,
        options,
        training={"steps": 30, "warmup_steps": 6, "threads": 1},
        roles=servers | {"dense_servers": int(options.get("mode", "") == "easgd")},
        simulation={"precision": "0 %"},
    )
    outcome = outcome_of(plan, clusters())
    first = outcome.iterations[0].loop
    done: dict[int, Counter[str]] = defaultdict(Counter)
    for span in outcome.spans:
        if f"{span.instance}.{span.loop}" == first and 6 <= span.iteration < 30:
            done[span.iteration][f"{span.effect} {span.name}"] += 1
    steps = [done[n] for n in range(6, 30)]
    alike = [k for k in range(1, 13) if all(a == b for a, b in zip(steps, steps[k:], strict=False))]
    assert plan.topology.period == alike[0]


def test_how_much_steps_differ_in_bytes_is_said(
    plans: Callable[..., Plan], clusters: Callable[..., Cluster]
) -> None:
    """And an early end's mean lies within what it explains: 99.9 %, by the whole run's."""

    def run(steps: int) -> tuple[Outcome, np.ndarray]:
        plan = plans(
            "flat_ps",
            {"pooling": "worker"},
            model={"tables": (Table(rows=5000), Table(rows=900, ids=3))},
            training={"steps": steps, "warmup_steps": 5},
            roles={"trainers": 2, "embedding_servers": 1},
            simulation={"precision": "0 %"},
        )
        outcome = simulate(plan, clusters())  # with the stream's own ids
        sent = np.zeros(5 + steps)
        for span in outcome.spans:
            if span.effect in ("update", "serve_update"):
                sent[span.iteration] += span.bytes
        return outcome, sent[5:]

    few, part = run(40)
    _, everything = run(200)
    np.testing.assert_array_equal(everything[:40], part)
    said = few.facts.payload_spread
    assert said is not None
    assert (said.steps, said.exact) == (40, True)
    assert sorted(said.effects) == ["lookup", "update"]
    spread = part.std(ddof=1) / part.mean()
    assert 0 < spread < 0.1
    assert said.effects["update"] == pytest.approx(spread)
    allowed = 3.2905 * spread * (1 / 40 - 1 / 200) ** 0.5
    assert abs(part.mean() / everything.mean() - 1) <= allowed


@pytest.mark.parametrize(("switch", "steps"), [(0, 50), (150, 300)])
def test_where_steps_change_on_the_way_all_of_them_are_run(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[..., Outcome],
    switch: int,
    steps: int,
) -> None:
    plan = plans(
        "localsgd",
        {"every": 5, "switch": switch},
        training={"steps": 300, "warmup_steps": 10},
        roles={"trainers": 2, "embedding_servers": 1},
        simulation={"precision": "5 %", "minimum_steps": 50, "what_if_steps": 5},
    )
    outcome = outcome_of(plan, clusters())
    assert outcome.steps == steps
    said = [w for w in outcome.facts.warnings if "those of the first 5 counted" in w]
    assert len(said) == bool(switch)


@pytest.mark.usefixtures("equal_shares")
def test_loops_that_drift_apart_do_not_keep_a_prediction_from_its_end(
    plans: Callable[..., Plan],
    clusters: Callable[..., Cluster],
    outcome_of: Callable[..., Outcome],
) -> None:
    """At both ends of all that loops have done only some of them are at work; these ends are not
    in the estimate, and its interval does not wait for them, whether or not every step is done."""

    def run(**simulation: Any) -> Outcome:
        plan = plans(
            "flat_ps",
            model={"bottom_mlp": (512, 8)},
            training={"steps": 100, "warmup_steps": 5, "batch_size": 256},
            roles={"trainers": 16, "embedding_servers": 2, "dense_servers": 2},
            simulation=simulation,
        )
        return outcome_of(plan, clusters(jitter=0.3))

    def half(outcome: Outcome) -> tuple[float, float]:
        assert outcome.speed is not None
        assert outcome.speed.ci95 is not None
        rate = outcome.speed.examples_per_second
        assert rate is not None
        return rate, (outcome.speed.ci95[1] - rate) / rate

    early, whole = run(precision="2 %", minimum_steps=16), run(precision="0 %")
    rate, unsure = half(early)
    assert early.facts.stopped == "estimate settled"
    assert early.steps < 40
    assert unsure <= 0.02
    assert half(whole)[1] <= 0.02
    ends: dict[str, list[float]] = {}
    for done in whole.iterations:
        ends.setdefault(done.loop, []).append(done.end)
    start, end = max(own[5] for own in ends.values()), min(own[-1] for own in ends.values())
    between = sum(start < time <= end for own in ends.values() for time in own)
    assert rate == pytest.approx(256 * between / (end - start), rel=0.03)
