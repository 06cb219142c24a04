"""Short real runs of flat_ps: threads that share one interpreter lock, shards in other processes.

What is fitted to them (`handover`, `message`, `wire_byte`) holds that strategy's habits. The runs
go through the executor, readers and all, because who queues for the lock, and what a message costs
between working threads, is a matter of everything that runs in a process. Their models are this
module's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recsim_train.calibration import grid
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.config.experiment import (
    Data,
    Execution,
    Experiment,
    Roles,
    StrategyChoice,
    Synthetic,
)
from recsim_train.data.synthetic import write_criteo
from recsim_train.executor.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.transport import shareable
from recsim_train.trace.ledger import REQUESTS, RUNTIME, TRANSPORT
from recsim_train.trace.record import Iteration, Outcome
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.operations import cost, reading
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters

THREADS = 2

_CROWDED = (
    (Setting(8, 4, (32,), (16,), (48,), 4 * MEBI), 48),
    (Setting(24, 12, (128,), (64,), (64,), 8 * MEBI), 64),
    (Setting(12, 22, (64, 32), (96, 32), (112,), 8 * MEBI), 112),
)
_REMOTE = (
    (Setting(8, 6, (24,), (24,), (40,), 4 * MEBI), 40, 500),
    (Setting(8, 4, (512, 512), (768, 768), (24,), 4 * MEBI), 24, 150),
    (Setting(64, 18, (48,), (32,), (224,), 32 * MEBI), 224, 150),
)
"""Settings whose iterations are mostly messages, dense parameters, embedding vectors."""
_WAYS: tuple[tuple[Execution, str, int], ...] = (
    (Execution(), "message", 6),
    (Execution(shared_memory=False), "message", 6),
    (Execution(transport="gloo"), "gloo_message", 9),
)
"""Of one iteration with one server of each kind: Lookup and its answer, Update, Pull and its
answer, Push; over gloo the headers of three have messages of their own. Price and number."""
_REQUESTS = 4
_TALK = (TRANSPORT, REQUESTS, RUNTIME)
"""What of a run's CPU time is there for requests."""
_ROWS = 12_000
_WINDOWS = 8
_OPERATIONS = (
    "dense_read",
    "load",
    "route_ids",
    "lookup_pooled",
    "assemble_rows",
    "forward_backward",
    "route_gradient",
    "update_pooled",
    "dense_apply",
)
_EFFECTS = 7
"""Effects of one iteration of the asynchronous parameter server."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What one setting's runs showed."""

    alone: float
    """Iterations per second of one thread."""
    together: float
    """Iterations per second of `THREADS` threads together."""
    work: tuple[Work, ...]
    """Counted work of one iteration's loop, by operation."""
    reading: Work
    """Counted work of its reader."""


def measure(folder: Path, tick: Callable[[], None], *, quick: bool) -> list[Crowd]:
    """Run every setting with one thread and with two, everything in one process."""
    crowds = []
    for number, (setting, batch) in enumerate(_CROWDED[: 1 if quick else None]):
        steps = 80 if quick else 600
        path = folder / f"crowd-{number}.tsv"
        write_criteo(path, setting.model(), Synthetic(rows=_ROWS, seed=41), _ROWS)
        rates = []
        for threads in (1, THREADS):
            rates.append(_rate(_experiment(setting, batch, threads, steps, path)))
            tick()
        crowds.append(Crowd(rates[0], rates[1], *iteration_work(setting, batch)))
    return crowds


def measure_remote(
    folder: Path, tick: Callable[[], None], *, quick: bool
) -> list[dict[str, float]]:
    """What one iteration spends on requests, of runs with the shards in servers, by ledger.

    ``message`` or ``gloo_message``, ``wire_byte``: handled in that iteration, counted at each of
    their two ends; ``shared_byte``: copied; ``request``: served; ``effect``; ``cpu``: seconds of
    all processes for all that.
    """
    observed = []
    for number, (setting, batch, steps) in enumerate(_REMOTE[: 1 if quick else None]):
        path = folder / f"remote-{number}.tsv"
        write_criteo(path, setting.model(), Synthetic(rows=_ROWS, seed=43), _ROWS)
        model = setting.model()
        vectors, dense = 4 * setting.tables * batch * setting.dim, 4 * dense_parameters(model)
        ids, answers = 8 * setting.tables * batch, (vectors, dense)
        for execution, price, messages in _WAYS:
            done = steps // 4 if quick else steps
            run = _experiment(setting, batch, 1, done, path, execution)
            shares = price == "message" and execution.shared_memory
            work = {**_bytes((ids, *answers), answers, shares=shares), price: 2 * messages}
            work |= {"request": _REQUESTS, "effect": _EFFECTS, "cpu": _talk_seconds(run)}
            observed.append(work)
            tick()
    return observed


def _bytes(requests: Sequence[int], answers: Sequence[int], *, shares: bool) -> dict[str, float]:
    """Bytes on the wire, counted at both ends, and copies of bytes to share them: of a request one,
    of an answer two."""
    work = {"wire_byte": 0.0, "shared_byte": 0.0}
    for copies, sizes in ((1, requests), (2, answers)):
        for size in sizes:
            if shares and shareable(size):
                work["shared_byte"] += copies * size
            else:
                work["wire_byte"] += 2 * size
    return work


def _talk_seconds(experiment: Experiment) -> float:
    """CPU seconds per iteration that all processes spend on requests."""
    ledger = _run(experiment).facts.ledger
    assert ledger is not None
    spent = sum(line.seconds for line in ledger.lines if line.what in _TALK)
    return spent / experiment.training.steps


def _experiment(
    setting: Setting,
    batch: int,
    threads: int,
    steps: int,
    path: Path,
    execution: Execution | None = None,
) -> Experiment:
    """``execution``: with one server of each kind; None: there are none."""
    servers = 0 if execution is None else 1
    rules = grid.training("adagrad").model_copy(
        update={
            "dense_optimizer": "sgd",
            "batch_size": batch,
            "threads": threads,
            "steps": steps,
            "warmup_steps": 20,
        }
    )
    return Experiment(
        name="calibration",
        model=setting.model(),
        data=Data(path=str(path), eval_rows=0),
        roles=Roles(trainers=1, embedding_servers=servers, dense_servers=servers),
        training=rules,
        execution=execution or Execution(),
        strategies=(StrategyChoice(kind="flat_ps"),),
    )


def _rate(experiment: Experiment) -> float:
    """Iterations per second of all threads, in the fastest quarter of the run.

    Other load of the machine only ever slows a window down.
    """
    warmup = experiment.training.warmup_steps
    counted = [i for i in _run(experiment).iterations if i.iteration >= warmup]
    return best_rate(counted, _WINDOWS)


def _run(experiment: Experiment) -> Outcome:
    plan = build_plan(experiment, experiment.strategies[0])
    with tempfile.TemporaryDirectory(prefix="recsim-crowd-") as staging:
        return execute(plan, staging=Path(staging))


def best_rate(iterations: list[Iteration], windows: int) -> float:
    """Iterations per second in the second best of ``windows`` equal parts of the time in which
    all loops were at work."""
    loops: dict[str, list[Iteration]] = {}
    for iteration in iterations:
        loops.setdefault(iteration.loop, []).append(iteration)
    start = max(min(i.start for i in seen) for seen in loops.values())
    end = min(max(i.end for i in seen) for seen in loops.values())
    width = (end - start) / windows
    counts = [0] * windows
    for iteration in iterations:
        window = int((iteration.end - start) / width) if width > 0.0 else -1
        if 0 <= window < windows:
            counts[window] += 1
    return sorted(counts)[-2] / width


def iteration_work(setting: Setting, batch: int) -> tuple[tuple[Work, ...], Work]:
    """Counted work of one iteration with every shard in the own process: (loop, reader)."""
    ids = batch * setting.tables
    model = setting.model()
    scope = Scope(
        model=model,
        training=grid.training("adagrad").model_copy(update={"dense_optimizer": "sgd"}),
        batch=batch,
        ids=ids,
        unique=ids,
        tables=setting.tables,
        elements=dense_parameters(model),
    )
    parts = tuple(cost(name, scope) for name in _OPERATIONS)
    return (*parts, {"effect": _EFFECTS}), reading(model, batch, text=True)
