"""Realistic runs through the public types only: plans by `build_plan`, records by `Recorder`."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from recsim_train.config.cluster import (
    ASSUMED_THREADS,
    Calibration,
    Cluster,
    Costs,
    Host,
    Network,
    Price,
)
from recsim_train.config.experiment import (
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.results import rundir
from recsim_train.results.rundir import Keep, RunRecord
from recsim_train.results.summary import Summary, summarise
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts
from recsim_train.trace.record import Iteration, Outcome, Recorder, Span

MACHINE = "Testium 9000, 4 cores"
OPTIONS = {
    "flat_ps": {"mode": "downpour", "every": 1, "alpha": 0.5, "pooling": "server"},
    "allreduce": {"pooling": "server"},
}
# milliseconds of one effect of a loop on an idle machine
SECONDS = {
    ("next_batch", "reader"): 0.2,
    ("pull", "dense"): 1.4,
    ("compute", "load"): 0.1,
    ("lookup", "embedding"): 3.1,
    ("compute", "forward_backward"): 6.8,
    ("update", "embedding"): 2.2,
    ("push", "dense"): 0.7,
    ("all_reduce", "trainers"): 4.0,
    ("compute", "apply"): 0.5,
}
SEQUENCE = {
    "flat_ps": [
        ("next_batch", "reader"),
        ("pull", "dense"),
        ("compute", "load"),
        ("lookup", "embedding"),
        ("compute", "forward_backward"),
        ("update", "embedding"),
        ("push", "dense"),
    ],
    "allreduce": [
        ("next_batch", "reader"),
        ("lookup", "embedding"),
        ("compute", "forward_backward"),
        ("update", "embedding"),
        ("all_reduce", "trainers"),
        ("compute", "apply"),
    ],
}
SENT = {"lookup": (2048, 8192), "update": (8192, 0), "pull": (0, 4000), "push": (4000, 0)}


def experiment(**changes: Any) -> Experiment:
    training = {"batch_size": 128, "threads": 2, "steps": 60, "warmup_steps": 5}
    roles = {"trainers": 2, "embedding_servers": 2, "dense_servers": 1}
    model = Model(
        name="tiny",
        embedding_dim=8,
        dense_features=4,
        bottom_mlp=(16, 8),
        top_mlp=(16, 1),
        tables=tuple(Table(rows=rows) for rows in (1000, 400, 300, 50)),
    )
    return Experiment(
        name=changes.pop("name", "quickstart"),
        model=changes.pop("model", model),
        seed=changes.pop("seed", 1),
        roles=Roles(**roles | changes.pop("roles", {})),
        training=Training(**training | changes.pop("training", {})),
        strategies=(StrategyChoice(kind="flat_ps", options=OPTIONS["flat_ps"]),),
        **changes,
    )


def plan(kind: str = "flat_ps", options: dict[str, Any] | None = None, **changes: Any) -> Plan:
    choice = StrategyChoice(kind=kind, options=OPTIONS[kind] | (options or {}))
    return build_plan(experiment(**changes), choice)


def cluster(**changes: Any) -> Cluster:
    prices = {name: Price(value="10 ns", uncertainty="3 %") for name in Costs.model_fields}
    settings: dict[str, Any] = {
        "name": "local",
        "colocate": True,
        "hosts": {"default": Host(cores=4, memory="16 GiB", nic="10 Gbit/s")},
        "network": Network(latency="20 us"),
        "costs": Costs(**prices),
        "threads": ASSUMED_THREADS,
        "calibration": Calibration(
            date="2026-11-20",
            machine=MACHINE,
            versions={"python": "3.11.9", "torch": "2.13.0"},
            background_load="0.1 of 4 cores",
            valid_range={"batch_size": (32, 1024)},
        ),
    }
    return Cluster(**settings | changes)


def outcome(
    of: Plan,
    *,
    world: str = "simulated",
    speed: float = 1.0,
    slow: dict[str, float] | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    sent: dict[str, tuple[int, int]] | None = None,
    steps: int | None = None,
) -> Outcome:
    """Every loop does its strategy's effects, each as long as SECONDS / speed * slow[effect]."""
    generator = random.Random(seed)
    training = of.experiment.training
    steps = training.steps if steps is None else steps
    recorder = Recorder(training.warmup_steps, training.steps, 100_000)
    sizes = SENT | (sent or {})
    elements = 4 * 900
    iterations = []
    servers = {"embedding": "embedding_server[0]", "dense": "dense_server[0]"}
    for loop in of.feeding:
        now = 0.0004 * loop.copy
        for k in range(training.warmup_steps + steps):
            started = now
            for effect, name in SEQUENCE[of.strategy.kind]:
                factor = (slow or {}).get(effect, 1.0) * math.exp(generator.gauss(0, jitter))
                seconds = SECONDS[effect, name] / 1000 / speed * factor
                to, back = sizes.get(effect, (elements if effect == "all_reduce" else 0, 0))
                end = now + seconds
                host = f"trainer[{loop.trainer}]"
                recorder.add(Span(host, loop.label, k, effect, name, now, end, to))
                if effect in SENT:
                    middle = (now + 0.3 * seconds, now + 0.7 * seconds)
                    served = (servers[name], loop.name, k, f"serve_{effect}", name, *middle)
                    recorder.add(Span(*served, back))
                now = end
            now += 0.00005
            loss = 0.45 + 0.2 * math.exp(-k / 20) + generator.gauss(0, 0.01)
            mark = Iteration(loop.name, k, started, now, loss if world == "real" else None)
            iterations.append(mark)
    found = Outcome(
        iterations=iterations,
        totals=recorder.totals,
        spans=recorder.spans,
        dropped_spans=0,
        steps=steps,
        utilisation={
            "machine.cores": 0.82 / (1.1 if world == "real" else 1.0),
            "trainer[0].interpreter": 0.31,
            "dense_server[0].nic.tx": 0.07,
        },
    )
    if world == "real":
        found.loss, found.auc, found.normalized_entropy = 0.503, 0.741, 0.872
        found.facts = Facts(malformed_rows={"wrong number of fields": 3}, epochs=0.4)
    else:
        found.binding, found.bound_eps = Binding("cores", "machine.cores", 0.92), 29_500.0
        found.facts = Facts(epochs=0.4, events=12345)
    return found


def summary(**changes: Any) -> Summary:
    """Figures of a run that counted nothing, with changes."""
    none = Outcome([], {}, [], 0, 0)
    blank = summarise(plan(), outcome=none, world="simulated", status="complete")
    return replace(blank, **changes)


def environment(**changes: Any) -> dict[str, Any]:
    return {
        "date": "2026-11-21T10:00:00+00:00",
        "machine": MACHINE,
        "host": "node7",
        "cpu": "Testium 9000",
        "cores": 4,
        "memory_bytes": 16 * 2**30,
        "load": 0.1,
        "versions": {"python": "3.11.9", "torch": "2.13.0"},
        "revision": "0123456789ab",
    } | changes


def write(
    out: Path,
    of: Plan,
    world: str,
    *,
    found: Outcome | None = None,
    profile: Cluster | None = None,
    surroundings: dict[str, Any] | None = None,
    **rest: Any,
) -> RunRecord:
    verb = "simulate" if world == "simulated" else "run"
    here = environment() if surroundings is None else surroundings
    command = ("recsim-train", verb, "experiments/quickstart.yaml", "--out", str(out))
    with mock.patch.multiple(rundir, machine=lambda: here, versions=lambda: here["versions"]):
        return Keep(out, command=command).write(
            of,
            world,  # type: ignore[arg-type]
            profile or cluster(),
            found or outcome(of, world=world),
            **rest,
        )
