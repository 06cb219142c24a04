"""Designs one by one, in a pool of processes: do they fit, what bounds them, how fast are they."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.designs.space import Candidate
from recsim_train.placement.build import retrained
from recsim_train.placement.plan import Plan
from recsim_train.results.row import COMPLETE, DOES_NOT_FIT, FAILED, row_of
from recsim_train.results.summary import summarise
from recsim_train.session.making import Keep, Simulator
from recsim_train.session.pool import Finished, Task, simulate_point
from recsim_train.session.study import SWEPT, WHAT_IF_STEPS, asking_what_if
from recsim_train.sim.folding import folding_of, requests_of, trainers_of


@dataclass(frozen=True, slots=True)
class Effort:
    """How long designs are simulated."""

    requests: int
    """To servers, of all loops together, about."""
    least: int
    """Steps of each loop, at least."""
    most: int
    precision: float
    loops: int
    """Of trainers with more than these so many are simulated, where they may stand for others."""
    racks: bool
    """Whether hosts stand in their racks."""


ROUNDS = (
    Effort(4000, 2, 16, 0.1, 32, racks=False),
    Effort(16_000, 4, 60, 0.02, 128, racks=True),
)
"""At first, and of those that are left then; the last ones are simulated as the experiment says."""
_FEWEST = 2
"""Trainers that stand for all."""
_WARMUP = 2
_LOOKED = 10_000
"""Requests in a step of one loop of each simulated trainer: looks at more, of trainers that ask
each other, leave racks out, or would take too long."""
_ASKED, _THREADS = 2, 8
"""Trainers, and threads of each at most, of which it is asked how far calibration's errors carry,
where hosts are in racks or have more threads."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a design without simulating it."""

    bounds: Mapping[str, float]
    """Examples per second by class of resources, the tightest first."""

    @property
    def bound(self) -> float:
        """Examples per second at most."""
        return next(iter(self.bounds.values()), 0.0)


def look(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """A `Look` as a row: whether a design fits, and its bounds."""
    plan, cluster = task.plan, task.cluster
    simulated = folding_of(plan, cluster, most=1).simulated
    many = requests_of(plan) / len(plan.training) * simulated > _LOOKED
    return _looked(task, rackless(cluster) if many else cluster)


def look_in_racks(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """The same, with what racks' uplinks allow however long it takes."""
    return _looked(task, task.cluster)


def _looked(task: Task, cluster: Cluster) -> Finished:
    from recsim_train.sim.why.beforehand import beforehand

    try:
        check_room(task.plan, task.cluster)
        known = beforehand(task.plan, cluster)
    except (UserError, RunFailed) as error:
        status = DOES_NOT_FIT if isinstance(error, UserError) else FAILED
        return task.number, {"bounds": {}, "status": status, "message": str(error)}
    return task.number, {"bounds": dict(known.bounds), "status": None, "message": None}


def check_room(plan: Plan, cluster: Cluster) -> None:
    """Raises UserError where a plan does not fit, or fills a host so far that it may not: only the
    large parts are counted, and a design that runs out of memory is none."""
    from recsim_train.sim.host.memory_check import check_memory, nearly_full

    for said in nearly_full(check_memory(plan, cluster)):
        raise UserError(f"{said}; a tenth of each host's memory is kept in reserve")


def look_of(row: Mapping[str, Any]) -> Look:
    """From such a row, or that of a look which took too long."""
    return Look(row["bounds"] or {})


def briefly(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """About how fast a design is."""
    plan, cluster = task.plan, task.cluster
    try:
        outcome = simulator.briefly(plan, cluster)
    except (UserError, RunFailed) as error:
        return task.number, row_of(plan, cluster, None, FAILED, str(error))
    summary = summarise(plan, outcome=outcome, world="simulated", status=COMPLETE)
    return task.number, row_of(plan, cluster, summary, COMPLETE)


def whole(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """A design as any prediction, with its interval. In racks and of many threads calibration's
    errors are asked of a few trainers without racks, of few threads."""
    number, row = simulate_point(task, simulator, keep)
    if task.plan.experiment.simulation.what_if_steps or not row["examples_per_second"]:
        return number, row
    few = {
        **_brief(ROUNDS[0]),
        "fold_above": _ASKED,
        "what_if_trainers": _ASKED,
        "what_if_steps": WHAT_IF_STEPS,
    }
    rules = task.plan.experiment.training
    threads, warmup = min(_THREADS, rules.threads), min(1, rules.warmup_steps)
    asked = asking(retrained(task.plan, threads=threads, warmup_steps=warmup), few)
    _, other = simulate_point(Task(number, asked, rackless(task.cluster)), simulator, None)
    if eps := other["examples_per_second"]:
        for end in ("calibration_low", "calibration_high"):
            if other[end] is not None:
                row[end] = row["examples_per_second"] * other[end] / eps
        row["calibration_errors"] = other["calibration_errors"]
    return number, row


def rackless(cluster: Cluster) -> Cluster:
    """The same hosts, whose links nothing else limits."""
    return cluster.model_copy(update={"topology": None})


def asking(plan: Plan, update: Mapping[str, Any]) -> Plan:
    """A plan of which it is asked what would change it, as of a sweep's points."""
    asked = asking_what_if(plan.experiment, SWEPT)
    return replace(plan, experiment=asked.having("simulation", **update))


def _brief(rules: Effort) -> dict[str, Any]:
    return {"precision": rules.precision, "minimum_steps": rules.least}


def work(candidate: Candidate) -> int:
    """Requests in a design's first simulation: what it costs, about."""
    task = task_of(0, candidate, 0)
    folding, rules = folding_of(task.plan, task.cluster), task.plan.experiment.training
    share = folding.simulated / folding.trainers
    return ceil(requests_of(task.plan) * share * (rules.steps + rules.warmup_steps))


def shortened(plan: Plan, rules: Effort) -> Plan:
    """A plan for a round of simulations."""
    spec = plan.experiment
    most = trainers_of(plan, rules.loops, least=_FEWEST)
    requests = requests_of(plan) * min(1.0, most / spec.roles.trainers)
    steps = max(rules.least, min(rules.most, ceil(rules.requests / requests)))
    warmup = min(_WARMUP, steps - 1, spec.training.warmup_steps)
    spec = spec.having("training", steps=min(steps, spec.training.steps), warmup_steps=warmup)
    brief = {**_brief(rules), "fold_above": most, "what_if_steps": 0}
    spec = spec.having("simulation", **brief).having("execution", max_spans=0)
    return replace(plan, experiment=spec)


def task_of(number: int, candidate: Candidate, stage: int | None) -> Task:
    """To look at a design (None), or to simulate it in a round."""
    plan, cluster = candidate.job.plan, candidate.job.profile
    if stage is None:
        return Task(number, plan, cluster)
    if stage < len(ROUNDS):
        rules = ROUNDS[stage]
        return Task(number, shortened(plan, rules), cluster if rules.racks else rackless(cluster))
    few: dict[str, Any] = {}
    if cluster.topology is not None or plan.experiment.training.threads > _THREADS:
        few["what_if_steps"] = 0
    return Task(number, asking(plan, few), cluster)
