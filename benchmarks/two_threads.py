"""Two threads of one process do an experiment's passes: how many times those of one?

    python benchmarks/two_threads.py EXPERIMENT PROFILE [--points 3,24] [--rounds 5]

Of each point of a sweep whose net is not cut, its passes on one batch, by one thread and by two in
turn, and what is predicted by the profile's prices (two cores).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from recsim_train import load
from recsim_train.calibration.load_probe import rate
from recsim_train.calibration.own.bench import Bench
from recsim_train.calibration.own.steps import Steps
from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.load import load_cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.asked import operations_of
from recsim_train.workload.operations import cost, seconds

PASSES = "forward_backward"
SECONDS = 1.0


def passes(plan: Plan, cluster: Cluster) -> Callable[[], Any]:
    """The net's passes as a loop of its own does them."""
    bench = Bench(plan, list(operations_of(plan, cluster)))
    found: list[Callable[[], Any]] = []

    def timed(operation: str, call: Callable[[], Any], **_: Any) -> Any:
        if operation == PASSES:
            found.append(call)
        return call()

    Steps(bench).round(bench.next(), timed)
    return found[0]


def timed_rate(calls: list[Callable[[], Any]]) -> tuple[float, float]:
    """(calls per second of a thread for each, CPU seconds of one)."""
    busy = time.process_time()
    found = rate(calls, SECONDS)
    return found, (time.process_time() - busy) / (found * SECONDS)


def predicted(plan: Plan, cluster: Cluster) -> float:
    """How many times as much two threads do, on two cores."""
    prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    work = next(cost(name, scope) for name, scope in operations_of(plan, cluster) if name == PASSES)
    total, held = seconds(work, prices, queued=True)
    return min(2 * cluster.contention, total / held)


def main() -> None:
    """Measure and say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("profile")
    parser.add_argument("--points", help="which of a sweep, from 0 on; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)  # as in the executor's processes
    cluster = load_cluster(asked.profile)
    plans = load(asked.experiment).plans
    chosen = range(len(plans)) if asked.points is None else map(int, asked.points.split(","))
    print(
        "| passes of | ms | two threads do, times one's | CPU time of a pass, times | predicted |"
    )
    print("|---|---:|---:|---:|---:|")
    for plan in (plans[number] for number in chosen):
        calls = [passes(plan, cluster) for _ in range(2)]
        pairs = [(timed_rate(calls[:1]), timed_rate(calls)) for _ in range(asked.rounds)]
        gains = sorted(two[0] / one[0] for one, two in pairs)
        cpu = statistics.median(two[1] / one[1] for one, two in pairs)
        label = f"{plan.experiment.model.name}, batch {plan.experiment.training.batch_size}"
        took = 1e3 / statistics.median(one[0] for one, _ in pairs)
        gain = f"{statistics.median(gains):.2f} ({gains[0]:.2f} to {gains[-1]:.2f})"
        print(f"| {label} | {took:.2f} | {gain} | {cpu:.2f} | {predicted(plan, cluster):.2f} |")


if __name__ == "__main__":
    main()
