"""Designs one by one, in a pool of processes: do they fit, what bounds them, how fast are they."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.designs.space import Candidate
from recsim_train.placement.plan import Plan
from recsim_train.results.row import DOES_NOT_FIT, FAILED
from recsim_train.session.making import Keep, Simulator
from recsim_train.session.pool import Finished, Task, simulate_point
from recsim_train.session.study import SWEPT


@dataclass(frozen=True, slots=True)
class Effort:
    """How long designs are simulated."""

    iterations: int
    """Of all loops together, about."""
    least: int
    """Steps of each loop, at least."""
    most: int
    precision: float
    trainers: int
    """Of more than these, so many are simulated, where they may stand for the others."""
    racks: bool
    """Whether hosts stand in their racks: where they do no trainer stands for another."""


ROUNDS = (Effort(400, 4, 16, 0.1, 4, racks=False), Effort(1500, 6, 60, 0.02, 32, racks=True))
"""At first, and of those that are left then; the last ones are simulated as the experiment says."""
_WARMUP = 2
_ASKED = 2
"""Trainers of which it is asked how far calibration's errors carry, where hosts are in racks."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a design without simulating it."""

    bounds: Mapping[str, float]
    """Examples per second by class of resources, the tightest first."""
    problem: str | None = None
    """Why it does not fit; None: it does."""

    @property
    def bound(self) -> float:
        """Examples per second at most."""
        return next(iter(self.bounds.values()), 0.0)


def look(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """A `Look` as a row: whether a design fits, and its bounds."""
    from recsim_train.sim.host.memory_check import check_memory
    from recsim_train.sim.why.beforehand import beforehand

    try:
        check_memory(task.plan, task.cluster)
        known = beforehand(task.plan, rackless(task.cluster))
    except (UserError, RunFailed) as error:
        status = DOES_NOT_FIT if isinstance(error, UserError) else FAILED
        return task.number, {"bounds": {}, "status": status, "message": str(error)}
    return task.number, {"bounds": dict(known.bounds), "status": None, "message": None}


def look_of(row: Mapping[str, Any]) -> Look:
    """From such a row, or that of a look which took too long."""
    return Look(row["bounds"] or {}, row["message"])


def whole(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    """A design as any prediction, with its interval. In racks, where all trainers have to be
    simulated, calibration's errors are asked of a few trainers out of them."""
    number, row = simulate_point(task, simulator, keep)
    if task.cluster.topology is None or not row["examples_per_second"]:
        return number, row
    few = {**SWEPT, "fold_above": _ASKED, "what_if_trainers": _ASKED, **_brief(ROUNDS[0])}
    asked = asking(task.plan, few)
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
    spec = plan.experiment
    unsaid = {k: v for k, v in SWEPT.items() if getattr(spec.simulation, k) is None}
    simulation = spec.simulation.model_copy(update={**unsaid, **update})
    return replace(plan, experiment=spec.model_copy(update={"simulation": simulation}))


def _brief(rules: Effort) -> dict[str, Any]:
    return {
        "precision": rules.precision,
        "minimum_steps": rules.least,
        "minimum_iterations": rules.iterations,
    }


def shortened(plan: Plan, rules: Effort) -> Plan:
    """A plan for a round of simulations."""
    spec = plan.experiment
    trainers = min(spec.roles.trainers, rules.trainers)
    loops = len(plan.training) * trainers / spec.roles.trainers
    steps = max(rules.least, min(rules.most, ceil(rules.iterations / loops)))
    training = spec.training.model_copy(
        update={
            "steps": min(steps, spec.training.steps),
            "warmup_steps": min(_WARMUP, spec.training.warmup_steps),
        }
    )
    brief = {**_brief(rules), "fold_above": rules.trainers, "what_if_steps": 0}
    update = {
        "simulation": spec.simulation.model_copy(update=brief),
        "training": training,
        "execution": spec.execution.model_copy(update={"max_spans": 0}),
    }
    return replace(plan, experiment=spec.model_copy(update=update))


def task_of(number: int, candidate: Candidate, stage: int | None) -> Task:
    """To look at a design (None), or to simulate it in a round."""
    plan, cluster = candidate.job.plan, candidate.job.profile
    if stage is None:
        return Task(number, plan, cluster)
    if stage < len(ROUNDS):
        rules = ROUNDS[stage]
        return Task(number, shortened(plan, rules), cluster if rules.racks else rackless(cluster))
    if cluster.topology is None:
        return Task(number, asking(plan, {}), cluster)
    return Task(number, asking(plan, {"what_if_steps": 0}), cluster)
