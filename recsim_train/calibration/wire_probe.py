"""The probe of the transports: two processes on loopback send requests, answers and messages."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from recsim_train.calibration.grid import MEBI, MEETING_BYTES, Setting, training
from recsim_train.config.experiment import Execution, Experiment, Roles, StrategyChoice
from recsim_train.executor.link.gloo import Collective
from recsim_train.executor.link.tensors import Answer
from recsim_train.executor.link.transport import Channel, Pending, Port, Transport
from recsim_train.executor.process.attend import schedule
from recsim_train.executor.values import RealBlock, RealParts
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import ANSWER_HEAD, request_head

_TIMEOUT = timedelta(seconds=60)
_SIZES = (64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
"""Payload bytes of a request; its answer is as large."""
_CLIENT, _SERVER = 0, 1
_PAIRS = 2
"""Threads at each end that talk at once, at most."""
_WINDOWS = 5
_LONGEST_TRIP = 0.2
"""Seconds that a round trip over a slow link may take by its rate."""
End = Channel | Port
_TURNED_BYTES = 8 << 20


_SETTING = Setting(16, 8, (32,), (16,), (64,), 2 * MEBI)


def small_plan() -> Plan:
    """One trainer, one embedding server, one dense server."""
    experiment = Experiment(
        name="calibration",
        model=_SETTING.model(),
        roles=Roles(trainers=1, embedding_servers=1, dense_servers=1),
        training=training("sgd"),
        execution=Execution(shared_memory=False),
        strategies=(StrategyChoice(kind="flat_ps"),),
    )
    return build_plan(experiment, experiment.strategies[0])


def _cpu() -> float:
    """Seconds of all threads of this process: gloo's own included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _joined(rank: int, store: str) -> Iterator[tuple[list[End], dist.ProcessGroup]]:
    """This process's ends of `_PAIRS` connections to the other one, and a group of both."""
    shared = FileStore(store, 2)
    schedule("SCHED_BATCH")  # as the executor's processes, while gloo makes its threads
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=2, timeout=_TIMEOUT)
    try:
        askers = range(_PAIRS if rank == _SERVER else 0)
        transport = Transport(small_plan(), rank, shared, _TIMEOUT, askers)
        ends: list[End]
        if rank == _CLIENT:
            ends = [transport.channel(client, 0, _SERVER) for client in range(_PAIRS)]
        else:
            ends = [transport.port(client, _CLIENT) for client in range(_PAIRS)]
        collective = dist.new_group()
        schedule("SCHED_OTHER")
        yield ends, collective
        dist.barrier()
    finally:
        dist.destroy_process_group()


def wire(rank: int, store: str) -> Callable[..., dict[str, object]]:
    """One end of what connects two processes; of rank 0, which asks, or 1, which answers."""
    return partial(measure, rank, store)


def link(rank: int, store: str) -> Callable[[float], dict[str, object]]:
    """The same of a link of so many bytes per second."""
    return partial(measure_link, rank, store)


def measure(rank: int, store: str, *, quick: bool, crowded: bool) -> dict[str, object]:
    """Round trips, streams and collectives."""
    with _joined(rank, store) as (ends, collective):
        share = 0.2 if quick else 1.0
        if crowded:
            # each hop may wait for its turn on a core: fewer repeats, CPU time only
            talks = [_talk(ends[0], size, 30) for size in (0, *_SIZES[:: 2 if quick else 1])]
            return {"talks": talks}
        talks = [
            _talk(ends[0], size, max(4, int(share * _repeats(size))))
            for size in (0, *_SIZES[: 5 if quick else None])
        ]
        streams = _streams(ends, 1 << 20, max(10, int(150 * share)))
        members = Collective(collective, 2, rank)
        meetings = {
            "least": _meetings(lambda: members.agree(yes=True), max(50, int(1000 * share))),
            **{name: _meetings(meet, int(50 * share)) for name, meet in _large(members).items()},
        }
    return {"talks": talks, "streams": streams, "meetings": meetings}


def measure_link(rank: int, store: str, rate: float) -> dict[str, object]:
    """Round trips and streams over a link of so many bytes per second."""
    sizes = [size for size in _SIZES if 2 * size / rate < _LONGEST_TRIP]
    with _joined(rank, store) as (ends, _):
        talks = [_talk(ends[0], size, max(4, _repeats(size, rate))) for size in (0, *sizes)]
        each = int(min(1 << 20, rate * _LONGEST_TRIP / 2))
        streams = _streams(ends, each, 15)
    return {"talks": talks, "streams": streams}


def _repeats(size: int, rate: float = 1.5e9) -> int:
    """Of about a quarter of a second each."""
    return int(0.3 / (250e-6 + 2 * size / rate))


def _sources(size: int) -> list[torch.Tensor]:
    """Tensors to send in turn, together larger than a core's caches: a real one has just been
    made from other data. What is received goes into new memory, as in a run."""
    turns = max(1, min(16, _TURNED_BYTES // max(1, size)))
    return [torch.zeros(size, dtype=torch.uint8) for _ in range(turns)]


def _ask(channel: Channel, size: int, count: int, answer_bytes: int) -> None:
    payloads = _sources(size)
    for turn in range(count):
        pending = Pending()
        answer = Answer((answer_bytes,), torch.uint8)
        parts = [payloads[turn % len(payloads)]] if size else []
        channel.request(pending, b"", parts, answer)
        pending.wait()


def _serve(port: Port, count: int, answer_bytes: int) -> None:
    answers = _sources(answer_bytes)
    for turn in range(count):
        _, _, size = port.next_request()
        port.payload(size)
        port.answer(answers[turn % len(answers)])


def _do(end: End, size: int, count: int, answer_bytes: int) -> None:
    """This end's part of so many round trips."""
    if isinstance(end, Port):
        _serve(end, count, answer_bytes)
    else:
        _ask(end, size, count, answer_bytes)


def _timed(work: Callable[[int], None], count: int) -> tuple[float, float]:
    """(wall, CPU of the whole process) seconds of one of ``count`` repeats.

    In several windows: the fastest wall time (what else the machine does only ever adds to it),
    the median CPU time.
    """
    walls, cpus = _windows(work, count)
    return min(walls), median(cpus)


def _windows(work: Callable[[int], None], count: int) -> tuple[list[float], list[float]]:
    """The same of each window."""
    work(max(2, count // 10))
    each = max(1, count // _WINDOWS)
    walls, cpus = [], []
    for _ in range(_WINDOWS):
        dist.barrier()
        begin, busy = time.perf_counter(), _cpu()
        work(each)
        walls.append((time.perf_counter() - begin) / each)
        cpus.append((_cpu() - busy) / each)
    return walls, cpus


def _talk(end: End, size: int, count: int) -> dict[str, float]:
    """Requests and answers of ``size`` bytes; 0: no payload and an answer of 8 bytes.

    ``messages``, ``bytes``: that each end sends or receives in one round trip.
    """
    back, heads = size or 8, request_head(small_plan()) + ANSWER_HEAD
    wall, cpu = _timed(lambda repeats: _do(end, size, repeats, back), count)
    return {"messages": 2, "bytes": size + back + heads, "wall": wall, "cpu": cpu}


def _streams(ends: Sequence[End], size: int, count: int) -> list[float]:
    """`_stream` over one connection, over two and so on."""
    return [_stream(ends[:pairs], size, count) for pairs in range(1, len(ends) + 1)]


def _stream(ends: Sequence[End], size: int, count: int) -> float:
    """Bytes per second from one process to another over several connections at once, each with so
    many requests of so many bytes."""

    def work(repeats: int) -> None:
        with ThreadPoolExecutor(len(ends)) as pool:
            list(pool.map(lambda end: _do(end, size, repeats, 8), ends))

    return len(ends) * size / _timed(work, count)[0]


def _large(members: Collective) -> dict[str, Callable[[], object]]:
    """Collectives of two members in which each sends `MEETING_BYTES`."""
    value = RealBlock(torch.zeros(MEETING_BYTES // 4))
    parts = RealParts((value.tensor,) * members.members)
    return {
        "reduce": lambda: members.all_reduce(value, "sum"),
        "exchange": lambda: members.all_to_all(parts),
    }


def _meetings(meet: Callable[[], object], count: int) -> list[float]:
    """Seconds of one collective in which this member does not work, one value for each window."""

    def work(repeats: int) -> None:
        for _ in range(repeats):
            meet()

    return [wall - cpu for wall, cpu in zip(*_windows(work, count), strict=True)]
