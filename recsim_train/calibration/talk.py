"""Runs of calibration's own program: what effects, requests, messages and bytes cost in a run.

They go through the executor as every run does, with as many trainers as there are cores (of two to
four), and with a net's passes between requests, because the caches decide what a call costs: after
an operation that has filled them an effect, a request and a message each take about three times
what they take in a row. What is booked under a line of the ledger is what is priced: nothing is
subtracted.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar, Literal, NamedTuple

from recsim_train.calibration import grid
from recsim_train.calibration.fit import Observation
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.experiment import (
    Execution,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
)
from recsim_train.data.generated import write_generated
from recsim_train.data.log import PIECE
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import BATCH_MESSAGES, reading_of, shareable
from recsim_train.strategy import registry
from recsim_train.strategy.base import (
    DENSE,
    EMBEDDING,
    DenseService,
    EmbeddingService,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import Compute, Lookup, Pull, Push, Update, batches
from recsim_train.strategy.operations import FORWARD_BACKWARD, LOAD
from recsim_train.trace.ledger import ASKING, READING, REQUESTS, RUNTIME, TRANSPORT, Ledger
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import cost
from recsim_train.workload.shape import moved_bytes


@dataclass
class Talk(Strategy):
    """Rows are looked up, and their updates or the dense parameters' travel: not both, as in a
    strategy's loop. Other work lies between the requests."""

    kind: ClassVar[str] = "talk"
    summary: ClassVar[str] = "calibration's own program"
    source: ClassVar[str] = "recsim-train"

    asks: Literal["dense", "embedding"] = option("dense", help="whose gradients travel")

    def topology(self, threads: int) -> Topology:
        services = EmbeddingService(), DenseService()
        return Topology(loops=(Loop("talker", copies=threads),), services=services)

    async def talker(self) -> None:
        dense = self.asks == "dense"
        async for batch in batches():
            rows = await Lookup(EMBEDDING, batch.ids)
            if dense:
                await Compute(LOAD, await Pull(DENSE))
            gradients = await Compute(FORWARD_BACKWARD, batch, rows)
            if dense:
                await Push(DENSE, gradients.dense)
            else:
                await Update(EMBEDDING, gradients.rows)


RUNS: tuple[tuple[Literal["dense", "embedding"], Setting, int, int], ...] = (
    ("dense", Setting(8, 4, (512, 512), (768, 768), (96,), 4 * MEBI), 96, 341),
    ("embedding", Setting(64, 18, (48,), (32,), (224,), 32 * MEBI, features=2), 224, 512),
    ("embedding", Setting(8, 24, (384, 192), (320, 160), (112,), 16 * MEBI), 112, 439),
    ("dense", Setting(64, 18, (48,), (32,), (224,), 32 * MEBI), 224, 585),
    ("dense", Setting(8, 12, (24,), (24,), (48,), 2 * MEBI), 48, 1365),
    ("embedding", Setting(8, 12, (24,), (24,), (48,), 2 * MEBI, features=2), 48, 1536),
    (
        "embedding",
        Setting(24, 20, (320, 160), (448, 192), (1152,), 32 * MEBI, features=2),
        1152,
        57,
    ),
)
"""(whose gradients travel, of which model, batch, iterations): large messages and small ones, and
steps that move 0.3 to 57 MB through the caches between them. A run lasts one and a half seconds
or more: one of 0.4 s keeps a sixth fewer cores busy than a longer one of the same. It takes whole
pieces of its file (`recsim_train.data.log.PIECE`), four or more: they are decoded at one go."""
_REQUEST_OF = {"dense_server": "request", "embedding_server": "row_request"}
"""Prices."""


class Way(NamedTuple):
    """How requests and batches travel in a run."""

    shared_memory: bool = True
    readers: int = 0
    """Processes that make the batches and send them; else threads beside the loops do."""


_WAYS = Way(), Way(shared_memory=False), Way(readers=1)
_OTHER_WAYS = 2
"""Runs, the first ones, that are made in the other ways, too: one of each kind of request."""
STARTS = 3, 2
"""How many short runs there are to see what starting takes; in full and quick."""
_GROUPS = 8
"""Row groups of a file, at least."""
_QUICK: tuple[tuple[int, Way, int], ...] = (
    (0, _WAYS[0], 2), (1, _WAYS[0], 2), (3, _WAYS[0], 2), (4, _WAYS[0], 2),
    (0, _WAYS[1], 4), (1, _WAYS[2], 4),
)  # fmt: skip
"""(which of `RUNS`, in which way, how many times shorter) of a quick calibration: so many go the
usual way that prices which are asked for everywhere show how they scatter."""


@dataclass(frozen=True, slots=True)
class Talked:
    """What one iteration of one loop handles, and CPU seconds of all processes for it."""

    work: dict[str, float]
    """``message``, ``gloo_message``, ``wire_byte``: counted at each of their two ends;
    ``shared_byte``: copied."""
    transport: float
    calls: dict[str, float]
    """What one effect takes, what one that asks servers takes beyond that, and one request to each
    kind of server, by the name of its price."""
    moved: float
    """Bytes that a step moves through the caches."""
    read: Observation | None
    """What making one batch took; None where readers are processes of their own."""
    own: OwnRun | None = None
    """To hold a prediction against."""


def runs_of(*, quick: bool) -> int:
    """How many runs `measure` makes."""
    return len(_runs(quick=quick))


def own_runs_of(*, quick: bool) -> int:
    """How many of them a prediction is held against: those that go the usual way."""
    return sum(way == _WAYS[0] for _, way, _ in _runs(quick=quick))


def _runs(*, quick: bool) -> Sequence[tuple[int, Way, int]]:
    """(which of `RUNS`, in which way, how many times shorter)."""
    if quick:
        return _QUICK
    return [
        (number, way, 1)
        for number in range(len(RUNS))
        for way in (_WAYS if number < _OTHER_WAYS else _WAYS[:1])
    ]


def trainers_on(cores: int) -> int:
    """How many trainers a run has."""
    return min(4, max(2, cores))


def measure(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[Talked]:
    """One run for each kind of request and each way."""
    found = []
    trainers = trainers_on(cores)
    with known(Talk):
        for number, way, shorter in _runs(quick=quick):
            steps = RUNS[number][-1]
            run = run_of(number, trainers, steps // shorter, folder, way)
            found.append(_talked(run, way))
            tick()
    return found


def write_log(path: Path, model: Model, seed: int, loops: int) -> None:
    """The generator's rows as a file, for so many loops: each decodes row groups of its own."""
    rows = PIECE * max(_GROUPS, loops)
    write_generated(path, model, Synthetic(rows=rows, seed=seed), rows, group=PIECE)


def run_of(number: int, trainers: int, steps: int, folder: Path, way: Way = _WAYS[0]) -> Experiment:
    """The experiment of one of `RUNS`, whose rows lie in the folder."""
    asks, setting, batch, _ = RUNS[number]
    path = folder / f"talk-{number}.parquet"
    if not path.exists():
        write_log(path, setting.model(), 43, trainers)
    return experiment(asks, setting, batch, trainers, steps, path, way)


@contextmanager
def known(strategy: type[Strategy]) -> Iterator[None]:
    """A strategy has its name for as long as this takes."""
    registry.register(strategy)
    try:
        yield
    finally:
        registry.forget(strategy)


def _talked(run: Experiment, way: Way) -> Talked:
    plan, outcome = outcome_of(run)
    ledger = outcome.facts.ledger
    assert ledger is not None
    iterations = run.training.steps * run.roles.trainers
    effects, asked, served = _counts(outcome)
    calls = {
        _REQUEST_OF[role]: ledger.spent(REQUESTS, role) / count for role, count in served.items()
    }
    calls["effect"] = ledger.spent(RUNTIME) / effects
    calls["asking"] = ledger.spent(ASKING) / asked
    work = {name: units / iterations for name, units in _moved(outcome, way).items()}
    # the usual way; what the others cost has prices of its own
    own = OwnRun.of(plan, outcome) if way == _WAYS[0] else None
    moved = moved_bytes(run.model, plan.examples)
    transport = ledger.spent(TRANSPORT) / iterations
    read = None if way.readers else read_of(plan, ledger)
    return Talked(work, transport, calls, moved, read, own)


def _counts(outcome: Outcome) -> tuple[int, int, Counter[str]]:
    """(effects of loops, those that ask servers, requests by the role that serves them)."""
    effects = asked = 0
    served: Counter[str] = Counter()
    for key, total in outcome.totals.items():
        role = key.instance.partition("[")[0]
        if role in _REQUEST_OF:
            served[role] += total.count
        elif role == "trainer":
            effects += total.count
            asked += total.count if key.name in (EMBEDDING, DENSE) else 0
    return effects, asked, served


def _moved(outcome: Outcome, way: Way) -> dict[str, float]:
    """Messages and bytes, counted at each of their two ends, and bytes that are copied to share
    them."""
    work = dict.fromkeys(("message", "gloo_message", "wire_byte", "shared_byte"), 0.0)
    for key, total in outcome.totals.items():
        if key.name == "reader" and total.bytes:
            work["gloo_message"] += 2.0 * BATCH_MESSAGES * total.count
            work["wire_byte"] += 2 * total.bytes
        elif key.name in (EMBEDDING, DENSE) and (total.bytes or not key.effect.startswith("serve")):
            work["message"] += 2 * total.count
            if not way.shared_memory or not shareable(total.bytes // total.count):
                work["wire_byte"] += 2 * total.bytes
            elif key.effect != "push":  # that goes from where the backward pass has left it
                work["shared_byte"] += total.bytes
    return work


def outcome_of(run: Experiment) -> tuple[Plan, Outcome]:
    """Do a run."""
    plan = build_plan(run, run.strategies[0])
    with tempfile.TemporaryDirectory(prefix="recsim-talk-") as staging:
        return plan, execute(plan, staging=Path(staging))


def starts(folder: Path, cores: int, tick: Callable[[], None], *, quick: bool) -> list[float]:
    """Seconds from asking for a run's processes until all loops have begun, with what the first
    iteration takes longer than others; of short runs."""
    found = []
    with known(Talk):
        for _ in range(STARTS[quick]):
            run = run_of(4, trainers_on(cores), 200, folder)
            asked = time.monotonic()
            _, outcome = outcome_of(run)
            first = max(i.end - i.start for i in outcome.iterations if i.iteration == 0)
            usual = median(i.end - i.start for i in outcome.iterations)
            found.append(outcome.began - asked + first - usual)
            tick()
    return found


def read_of(plan: Plan, ledger: Ledger) -> Observation:
    """What making one batch took, its work as reader threads do it.

    When counting begins readers are ahead of their loops: they make batches when one has left a
    full queue, and of those that they made together last about half are left. At its end they have
    made all.
    """
    spec, scope = plan.experiment, reading_of(plan, None)
    ahead = spec.data.queue_batches - 1.0 + (scope.batches + 1.0) / 2.0
    made = (spec.training.steps - ahead) * len(plan.feeding)
    seconds = ledger.spent(READING) / made
    work = {name: units / scope.batches for name, units in cost(READING, scope).items()}
    work["feed_batch"] = 1.0
    return Observation(READING, work, seconds, spec.model.name)


def experiment(
    asks: str,
    setting: Setting,
    batch: int,
    trainers: int,
    steps: int,
    path: Path,
    way: Way = _WAYS[0],
) -> Experiment:
    """A run of `Talk` that reads a file."""
    roles = Roles(trainers=trainers, embedding_servers=1, dense_servers=1, readers=way.readers)
    choice = StrategyChoice(kind=Talk.kind, options={"asks": asks})
    execution = Execution(shared_memory=way.shared_memory)
    return grid.run(setting, batch, steps, path, roles, choice, execution=execution)
