"""Rounded requests and lookups ahead: the same effects and bytes in both worlds, and what of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from recsim_train.config.experiment import StrategyChoice
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.plan import Plan
from recsim_train.results.summary import summarise
from recsim_train.trace.record import Outcome
from tests.conformance.test_worlds_agree import (
    PROFILE,
    ROLES,
    make_plan,
    payload,
    rounds_of,
    sequences,
)
from tests.simulated import simulate

CHOICES = {
    "downpour": ("flat_ps", {}),
    "downpour k=3": ("flat_ps", {"every": 3}),
    "easgd": ("flat_ps", {"mode": "easgd", "every": 2}),
    "rows": ("flat_ps", {"pooling": "worker"}),
    "masked": ("flat_ps", {"compression": {"kind": "dct", "mode": "mp", "mp_density": 0.5}}),
    "local steps": ("localsgd", {"every": 2}),
    "group": ("hierarchical", {"hosts": 2}),
    "fr-ma": ("shadowsync", {"algorithm": "ma", "sync": "foreground", "every": 3}),
    "s-easgd": ("shadowsync", {"algorithm": "easgd"}),
    "allreduce rows": ("allreduce", {"pooling": "worker"}),
    "cache": ("scalefreectr", {"cache_rows": 140}),
}
CASES = [
    # strategy, roles, prefetch, wire
    ("downpour", "servers", 1, "bfloat16"),
    ("downpour", "servers", 2, "full"),
    ("downpour", "one process", 3, "float16"),
    ("downpour k=3", "no servers", 8, "full"),
    ("easgd", "servers", 1, "float16"),
    ("rows", "readers", 2, "bfloat16"),
    ("rows", "servers", 1, "full"),
    ("masked", "servers", 1, "bfloat16"),
    ("local steps", "servers", 1, "full"),
    ("local steps", "no servers", 2, "float16"),
    ("group", "servers", 2, "bfloat16"),
    ("fr-ma", "servers", 1, "full"),
    ("allreduce rows", "servers", 0, "float16"),
    ("cache", "servers", 0, "bfloat16"),
]
WARMUP, STEPS = 2, 6


def plan_of(name: str, roles: str, prefetch: int, wire: str) -> Plan:
    kind, options = CHOICES[name]
    ahead = {"prefetch": prefetch} if prefetch else {}
    choice = StrategyChoice(kind=kind, options={**options, **ahead})
    return make_plan(ROLES[roles], choice, wire=wire)


def by_effect(outcome: Outcome) -> dict[str, int]:
    """Payload bytes of counted iterations."""
    found: dict[str, int] = defaultdict(int)
    for (_, _, effect), size in payload(outcome).items():
        found[effect] += size
    return dict(found)


@pytest.mark.parametrize(("name", "roles", "prefetch", "wire"), CASES)
def test_same_effects_and_same_bytes(
    name: str, roles: str, prefetch: int, wire: str, tmp_path: Path
) -> None:
    plan = plan_of(name, roles, prefetch, wire)
    real = execute(plan, staging=tmp_path)
    predicted = simulate(plan, load_cluster(PROFILE, None))
    background = {loop.label for loop in plan.background}
    own = [
        {loop: did for loop, did in sequences(o).items() if loop[1] not in background}
        for o in (predicted, real)
    ]
    assert own[0] == own[1]
    if not background:
        assert payload(predicted) == payload(real)
        assert predicted.facts.header_bytes == real.facts.header_bytes
    for outcome in (predicted, real):
        done = [i for i in outcome.iterations if i.iteration >= WARMUP]
        assert len(done) == STEPS * len(plan.training)
        assert {i.iteration for i in outcome.iterations} == set(range(WARMUP + STEPS))
        whole = summarise(plan, outcome=outcome, world="x", status="complete")
        assert min(whole.time_by_effect.values()) > -1e-12
        assert ("wait" in whole.time_by_effect) == (prefetch > 0)


def test_shadows_round_by_round(tmp_path: Path) -> None:
    plan = plan_of("s-easgd", "servers", 2, "float16")
    real = rounds_of(plan, execute(plan, staging=tmp_path))
    predicted = rounds_of(plan, simulate(plan, load_cluster(PROFILE, None)))
    assert real.keys() == predicted.keys()
    for loop, rounds in real.items():
        assert set(rounds) == set(predicted[loop])


@pytest.mark.parametrize("name", ["downpour", "rows", "easgd", "cache", "masked"])
def test_what_is_rounded_is_half_as_large_and_all_else_as_it_was(name: str) -> None:
    cluster = load_cluster(PROFILE, None)
    full, half, other = (
        by_effect(simulate(plan_of(name, "servers", 0, wire), cluster))
        for wire in ("full", "bfloat16", "float16")
    )
    assert half == other
    assert half.keys() == full.keys()
    rounded = {"serve_lookup", "update", "serve_pull", "push"}
    for effect, size in full.items():
        if effect == "update" and name == "rows":  # ids travel with it: as many as were asked for
            assert half[effect] - full["lookup"] == (size - full["lookup"]) / 2
        elif effect in rounded and not (name == "masked" and effect in ("serve_lookup", "update")):
            assert half[effect] == size / 2
        else:
            assert half[effect] == size
    assert half != full or name == "cache"


@pytest.mark.parametrize("prefetch", [1, 3])
def test_each_iteration_has_the_bytes_of_its_own_batch(prefetch: int) -> None:
    """A lookup that is sent ahead is booked where it is computed with: in steps that are counted
    nothing is missing at the end, and nothing is there twice."""
    cluster = load_cluster(PROFILE, None)
    plain, ahead = (
        by_effect(simulate(plan_of("rows", "servers", d, "full"), cluster)) for d in (0, prefetch)
    )
    assert plain == ahead
