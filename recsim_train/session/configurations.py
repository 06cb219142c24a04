"""A validation's configurations: what tells one from the others, and its prediction's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import comparison_key
from recsim_train.config.speed import MachineSpeeds
from recsim_train.results.configurations import Predicted
from recsim_train.results.environment import machine, same_machine
from recsim_train.results.interval import TO_90, of_row
from recsim_train.session.job import Job
from recsim_train.strategy.options import flat
from recsim_train.workload.moved import moved_bytes, net_work


def speeds_at_calibration(cluster: Cluster) -> MachineSpeeds | None:
    """Of the reference work; None: the profile does not say, or is of another machine."""
    calibration = cluster.calibration
    if calibration is None or not same_machine(calibration.machine, machine()):
        return None
    return calibration.machine_speed


def roofline(job: Job) -> float:
    """Examples per second if training threads did nothing but the net's arithmetic at the rate of
    matrix products, or moved nothing but its and its rows' bytes in order: the lower of both."""
    assert job.cluster is not None
    spec, costs, host = job.loaded.experiment, job.cluster.costs, job.cluster.host("trainer")
    model, batch = spec.model, spec.training.batch_size
    net = net_work(model, batch)
    flops = net.get("gemm_flop", 0.0) + net.get("dot_flop", 0.0)
    moved = moved_bytes(model, batch)
    seconds = max(flops * costs.gemm_flop.value, moved * costs.stream_byte.value)
    trainers, threads = spec.roles.trainers, spec.training.threads
    shared = job.cluster.colocate
    cores = min(trainers * threads, host.cores) if shared else trainers * min(threads, host.cores)
    return batch * cores / seconds


def key_of(job: Job) -> str:
    """What a configuration's prediction and measurements share."""
    return comparison_key(job.loaded.experiment, job.plan.strategy)


def label_of(job: Job) -> str:
    """A configuration in words."""
    spec, plan = job.loaded.experiment, job.plan
    options = ", ".join(f"{name} {value}" for name, value in flat(plan.strategy.options).items())
    servers = len(plan.of_role("embedding_server")), len(plan.of_role("dense_server"))
    return (
        f"{plan.strategy.kind}{f' ({options})' if options else ''}, {spec.model.name}, "
        f"{spec.roles.trainers} x {spec.training.threads} + {servers[0]} + {servers[1]}, "
        f"batch {spec.training.batch_size}"
    )


def predicted(job: Job, row: Mapping[str, Any]) -> Predicted:
    """A configuration with the figures of its prediction (`recsim_train.results.sweep.row_of`)."""
    spec, choice = job.loaded.experiment, job.plan.strategy
    alone = spec.model_copy(
        update={
            "roles": spec.roles.model_copy(update={"trainers": 1}),
            # how long it is measured does not make it another setting
            "training": spec.training.model_copy(update={"steps": 1, "warmup_steps": 0}),
        }
    )
    return Predicted(
        key=key_of(job),
        setting=comparison_key(alone, choice),
        label=label_of(job),
        strategy=choice.kind,
        model=spec.model.name,
        trainers=spec.roles.trainers,
        threads=spec.training.threads,
        batch_size=spec.training.batch_size,
        examples_per_second=row["examples_per_second"],
        interval=of_row(row, scale=TO_90),
        bound=row["bound_eps"],
        roofline=roofline(job),
        bottleneck=row["bottleneck"] or "",
        cpu=row["cpu_per_example"] or {},
    )
