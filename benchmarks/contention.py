"""What a net's passes take beside another net on the other core, measured and predicted.

    python benchmarks/contention.py EXPERIMENT PROFILE [--points 1,20,24] [--rounds 20]

Of each point of a sweep whose net is not cut, a process does its passes on one real batch after the
other, alone and beside a second such process on another core, in turn; CPU seconds of a pass in the
first process. Predicted: by the profile's prices, as a prediction uses them.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from paired import median_of
from script import options, row, table

from recsim_train import load
from recsim_train.config.cluster import Cluster
from recsim_train.config.profiles import load_cluster
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.simulations import operations_of
from recsim_train.placement.plan import Plan
from recsim_train.sim.pricing import Pricing

PASSES = "forward_backward"
SECONDS = 0.8
LIMIT = 120.0
BATCHES = 8


def passes_of(plan: Plan) -> list[Callable[[], Any]]:
    """Passes of a plan's net, in one thread, each on a batch of its own."""
    import torch

    torch.set_num_threads(1)
    from recsim_train.calibration.own.bench import Bench
    from recsim_train.calibration.own.steps import Steps

    bench = Bench(plan, [])
    steps, calls = Steps(bench), list[Callable[[], Any]]()

    def kept(operation: str, call: Callable[[], Any], **_: Any) -> Any:
        if operation == PASSES:
            calls.append(call)
        return call()

    for _ in range(min(BATCHES, len(bench.batches))):
        steps.round(bench.next(), kept)
    return calls


def work(experiment: str, point: int, orders: Connection) -> None:
    """A process: passes for so many seconds, again and again; answers CPU seconds of one."""
    calls = passes_of(load(experiment).plans[point])
    orders.send("ready")
    while (seconds := orders.recv()) is not None:
        count, begin, busy = 0, time.perf_counter(), time.thread_time()
        while time.perf_counter() - begin < seconds:
            calls[count % len(calls)]()
            count += 1
        orders.send((time.thread_time() - busy) / count)


def heard(process: Connection) -> Any:
    """Its next answer."""
    if not process.poll(LIMIT):
        raise SystemExit(f"a process did not answer within {LIMIT:.0f} s")
    return process.recv()


def measured(experiment: str, point: int, rounds: int) -> list[tuple[float, float]]:
    """(CPU seconds of a pass alone, beside another) by round."""
    spawn = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for _ in range(2):
        here, there = spawn.Pipe()
        process = spawn.Process(target=work, args=(experiment, point, there), daemon=True)
        process.start()
        ends.append(here)
        processes.append(process)
    for end in ends:
        heard(end)

    def window(some: list[Connection]) -> float:
        for end in some:
            end.send(SECONDS)
        first, *_ = [heard(end) for end in some]
        return float(first)

    found = []
    window(ends)  # caches and clock rates settle
    for number in range(rounds):
        first, second = (ends, ends[:1]) if number % 2 else (ends[:1], ends)
        found.append({len(some): window(some) for some in (first, second)})
    for end, process in zip(ends, processes, strict=True):
        end.send(None)
        process.join(LIMIT)
    return [(seconds[1], seconds[2]) for seconds in found]


def predicted(plan: Plan, cluster: Cluster) -> float:
    """How many times as long a pass takes on cores that are all busy as on one beside idle ones."""
    cluster = cluster.model_copy(update={"in_runs": None})  # these passes are made in a row
    scope = next(scope for name, scope in operations_of(Case.of(plan, cluster)) if name == PASSES)

    def seconds(beside: float) -> float:
        pricing = Pricing(plan.experiment, cluster, plan.examples, beside=beside)
        return pricing.shaped(PASSES, scope)[0]

    return seconds(1.0) / cluster.contention / seconds(0.0)


def main() -> None:
    """Measure and say."""
    about = {
        "experiment": {},
        "profile": {},
        "--points": ("1,20,24", "which of a sweep, from 0 on"),
        "--rounds": (20, ""),
    }
    asked = options(__doc__, about)
    cluster, plans = load_cluster(asked.profile), load(asked.experiment).plans
    slower = "slower beside another, median (95 % interval)"
    print("\n".join(table(["passes of", "ms alone", slower, "predicted", "off"], [])))
    for point in map(int, asked.points.split(",")):
        plan = plans[point]
        pairs = measured(asked.experiment, point, asked.rounds)
        seen = median_of([beside / alone - 1.0 for alone, beside in pairs])
        model = predicted(plan, cluster) - 1.0
        label = f"{plan.experiment.model.name}, batch {plan.experiment.training.batch_size}"
        took = 1e3 * statistics.median(alone for alone, _ in pairs)
        said = f"{seen.value:+.1%} ({seen.low:+.1%} .. {seen.high:+.1%})"
        off = 100 * (model - seen.value)
        print(row([label, f"{took:.2f}", said, f"{model:+.1%}", f"{off:+.1f}"]), flush=True)


if __name__ == "__main__":
    main()
