"""Calibration's own programs: what calls, messages, bytes and collectives cost in a run.

They go through the executor as every run does, with a net's passes between requests and between
meetings, because the caches decide what a call costs: after an operation that has filled them an
effect, a request and a message each take about three times what they take in a row. What is booked
under a line of the ledger is what is priced: nothing is subtracted. Of collectives that is what all
threads of a member do, its waiting included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.calibration.fit import Observation
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.config.experiment import Execution, Experiment
from recsim_train.placement.transport import BATCH_MESSAGES, reading_of, shareable
from recsim_train.strategy import registry
from recsim_train.strategy.base import (
    DENSE,
    EMBEDDING,
    TRAINERS,
    DenseService,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import (
    AllGather,
    AllReduce,
    Compute,
    Lookup,
    Pull,
    Push,
    Update,
    batches,
)
from recsim_train.strategy.operations import FORWARD_BACKWARD, LOAD
from recsim_train.trace.ledger import ASKING, COLLECTIVES, READING, REQUESTS, RUNTIME, TRANSPORT
from recsim_train.trace.record import Total, TotalKey
from recsim_train.workload.operations import MEETINGS, cost
from recsim_train.workload.shape import dense_parameters, moved_bytes, net_work

Asks = Literal["dense", "embedding", "reduce", "gather"]
"""Whose gradients travel, or how all members' meet."""


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


@dataclass
class Meet(Strategy):
    """Collectives of one kind only, with other work between them."""

    kind: ClassVar[str] = "meet"
    summary: ClassVar[str] = "calibration's own program of collectives"
    source: ClassVar[str] = "recsim-train"
    lock_step: ClassVar[bool] = True

    asks: Literal["reduce", "gather"] = option("reduce", help="which collective")

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("member"),),
            services=(EmbeddingService(),),
            groups=(Group(TRAINERS, loop="member"),),
        )

    async def member(self) -> None:
        first = rows = None
        async for batch in batches():
            if first is None or rows is None:
                first, rows = batch, await Lookup(EMBEDDING, batch.ids)
            gradients = await Compute(FORWARD_BACKWARD, first, rows)
            if self.asks == "reduce":
                await AllReduce(gradients.dense, TRAINERS)
            else:
                await AllGather(gradients.dense, TRAINERS)


@contextmanager
def known() -> Iterator[None]:
    """The programs have their names for as long as this takes."""
    programs = Talk, Meet
    for program in programs:
        registry.register(program)
    try:
        yield
    finally:
        for program in programs:
            registry.forget(program)


_REQUEST_OF = {"dense_server": "request", "embedding_server": "row_request"}
"""Prices."""


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
    usual: bool = True
    """Whether requests and batches travel as users' do: what other ways cost has prices of its
    own."""


def talked_in(run: OwnRun) -> Talked:
    """What a run of `Talk` shows."""
    spec, ledger, iterations = run.plan.experiment, run.ledger, _iterations(run)
    effects, asked, served = _counts(run.totals)
    calls = {
        _REQUEST_OF[role]: ledger.spent(REQUESTS, role) / count for role, count in served.items()
    }
    calls["effect"] = ledger.spent(RUNTIME) / effects
    calls["asking"] = ledger.spent(ASKING) / asked
    moved = _moved(run.totals, shares=spec.execution.shared_memory)
    work = {name: units / iterations for name, units in moved.items()}
    through = moved_bytes(spec.model, run.plan.examples)
    transport = ledger.spent(TRANSPORT) / iterations
    return Talked(work, transport, calls, through, is_usual(spec))


def is_usual(run: Experiment) -> bool:
    """Whether its requests and batches travel as users' do."""
    return run.execution == Execution() and not run.roles.readers


def _iterations(run: OwnRun) -> int:
    """Of all loops together."""
    return run.plan.experiment.training.steps * run.plan.experiment.roles.trainers


def _counts(totals: Mapping[TotalKey, Total]) -> tuple[int, int, Counter[str]]:
    """(effects of loops, those that ask servers, requests by the role that serves them)."""
    effects = asked = 0
    served: Counter[str] = Counter()
    for key, total in totals.items():
        role = key.instance.partition("[")[0]
        if role in _REQUEST_OF:
            served[role] += total.count
        elif role == "trainer":
            effects += total.count
            asked += total.count if key.name in (EMBEDDING, DENSE) else 0
    return effects, asked, served


def _moved(totals: Mapping[TotalKey, Total], *, shares: bool) -> dict[str, float]:
    """Messages and bytes, counted at each of their two ends, and bytes that are copied to share
    them, where memory is shared."""
    work = dict.fromkeys(("message", "gloo_message", "wire_byte", "shared_byte"), 0.0)
    for key, total in totals.items():
        if key.name == "reader" and total.bytes:
            work["gloo_message"] += 2.0 * BATCH_MESSAGES * total.count
            work["wire_byte"] += 2 * total.bytes
        elif key.name in (EMBEDDING, DENSE) and (total.bytes or not key.effect.startswith("serve")):
            work["message"] += 2 * total.count
            if not shares or not shareable(total.bytes // total.count):
                work["wire_byte"] += 2 * total.bytes
            elif key.effect != "push":  # that goes from where the backward pass has left it
                work["shared_byte"] += total.bytes
    return work


def read_in(run: OwnRun) -> Observation:
    """What making one batch took, its work as reader threads do it.

    When counting begins readers are ahead of their loops: they make batches when one has left a
    full queue, and of those that they made together last about half are left. At its end they have
    made all.
    """
    plan, spec, scope = run.plan, run.plan.experiment, reading_of(run.plan, None)
    ahead = spec.data.queue_batches - 1.0 + (scope.batches + 1.0) / 2.0
    made = (spec.training.steps - ahead) * len(plan.feeding)
    work = {name: units / scope.batches for name, units in cost(READING, scope).items()}
    work["feed_batch"] = 1.0
    return Observation(READING, work, run.ledger.spent(READING) / made)


def met_in(run: OwnRun) -> tuple[Observation, float]:
    """What one meeting of a run of `Meet` took of one member, and the bytes that a step moves
    through the caches between meetings."""
    model, members = run.plan.experiment.model, run.plan.experiment.roles.trainers
    asks = str(run.plan.strategy.options["asks"])
    work = meeting_work(asks, 4 * dense_parameters(model), members)
    each = run.ledger.spent(COLLECTIVES) / _iterations(run)
    moved = net_work(model, run.plan.examples)["stream_byte"]
    return Observation(MEETINGS, work, max(1e-9, each)), moved


def meeting_work(asks: str, size: int, members: int) -> dict[str, float]:
    """Of one member, for a vector of ``size`` bytes: steps, and bytes sent and received."""
    others = members - 1
    work = {"collective_message": 2.0 * others}
    if asks == "reduce":
        return work | {"reduced_byte": 4.0 * others / members * size}
    return work | {"exchanged_byte": 2.0 * others * size}
