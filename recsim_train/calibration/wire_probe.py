"""The probe of the transport: two processes on loopback send requests and answers."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

import torch
import torch.distributed as dist

from recsim_train.calibration.runtime_probe import small_plan
from recsim_train.executor.transport import Channel, Links, Pending, Port, Service
from recsim_train.executor.wire import header_bytes

_TIMEOUT = timedelta(seconds=60)
_SIZES = (64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
"""Payload bytes of a request; its answer is as large."""
_CLIENT, _SERVER = 0, 1
_WINDOWS = 5
_TURNED_BYTES = 8 << 20


def _cpu() -> float:
    """Seconds of all threads of this process: gloo's own included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(rank: int, store: str, *, quick: bool, crowded: bool = False) -> dict[str, object]:
    """Round trips, streams and collectives of ``rank`` (0 asks, 1 answers)."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=_TIMEOUT
    )
    try:
        plan = small_plan()
        groups = dist.new_group(), dist.new_group()
        links = Links(plan, _TIMEOUT, *groups, header_bytes(plan))
        collective = dist.new_group()
        share = 0.2 if quick else 1.0
        if crowded:
            # each hop may wait for its turn on a core: fewer repeats, CPU time only
            talks = [_talk(rank, links, size, 30) for size in (0, *_SIZES[:: 2 if quick else 1])]
            dist.barrier()
            return {"talks": talks}
        talks = [
            _talk(rank, links, size, max(4, int(share * _repeats(size))))
            for size in (0, *_SIZES[: 5 if quick else None])
        ]
        streams = [_stream(rank, links, pairs, share) for pairs in (1, 2)]
        reduce = _all_reduce(collective, max(50, int(1000 * share)))
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return {"talks": talks, "streams": streams, "all_reduce": reduce}


def _repeats(size: int) -> int:
    """Of about a quarter of a second each."""
    return int(0.3 / (250e-6 + 2 * size / 1.5e9))


def _ends(links: Links, client: int) -> tuple[Channel, Port]:
    channel = Channel(links, client, Service.DENSE, 0, _SERVER)
    return channel, Port(links, client, Service.DENSE, 0, _CLIENT)


def _sources(size: int) -> list[torch.Tensor]:
    """Tensors to send in turn, together larger than a core's caches: a real one has just been
    made from other data. What is received goes into new memory, as in a run."""
    return [torch.zeros(size, dtype=torch.uint8) for _ in range(_turns(size))]


def _turns(size: int) -> int:
    return max(1, min(16, _TURNED_BYTES // max(1, size)))


def _ask(channel: Channel, size: int, count: int, answer_bytes: int) -> None:
    payloads = _sources(size)
    for turn in range(count):
        pending = Pending(_TIMEOUT)
        answer = torch.empty(answer_bytes, dtype=torch.uint8)
        payload = payloads[turn % len(payloads)] if size else None
        channel.request(pending, b"", payload, answer)
        pending.wait()


def _serve(port: Port, size: int, count: int, answer_bytes: int) -> None:
    answers = _sources(answer_bytes)
    for turn in range(count):
        port.next_request()
        port.payload(size)
        port.answer(answers[turn % len(answers)])


def _timed(work: Callable[[int], None], count: int) -> tuple[float, float]:
    """(wall, CPU of the whole process) seconds of one of ``count`` repeats.

    In several windows: the fastest wall time (what else the machine does only ever adds to it),
    the median CPU time.
    """
    work(max(2, count // 10))
    each = max(1, count // _WINDOWS)
    walls, cpus = [], []
    for _ in range(_WINDOWS):
        dist.barrier()
        begin, busy = time.perf_counter(), _cpu()
        work(each)
        walls.append((time.perf_counter() - begin) / each)
        cpus.append((_cpu() - busy) / each)
    return min(walls), median(cpus)


def _talk(rank: int, links: Links, size: int, count: int) -> dict[str, float]:
    """Requests and answers of ``size`` bytes; 0: no payload and an answer of 8 bytes.

    ``messages``: those that each end sends or receives in one round trip.
    """
    channel, port = _ends(links, 0)
    back = size or 8

    def work(repeats: int) -> None:
        if rank == _CLIENT:
            _ask(channel, size, repeats, back)
        else:
            _serve(port, size, repeats, back)

    wall, cpu = _timed(work, count)
    return {
        "messages": 3 if size else 2,
        "bytes": size + back + 8 * links.empty_header().numel(),
        "wall": wall,
        "cpu": cpu,
    }


def _stream(rank: int, links: Links, pairs: int, share: float) -> float:
    """Bytes per second from one process to another over ``pairs`` threads at once."""
    size, count = 1 << 20, max(10, int(150 * share))

    def work(repeats: int) -> None:
        def body(client: int) -> None:
            channel, port = _ends(links, client)
            if rank == _CLIENT:
                _ask(channel, size, repeats, 8)
            else:
                _serve(port, size, repeats, 8)

        threads = [threading.Thread(target=body, args=(client,)) for client in range(pairs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return pairs * size / _timed(work, count)[0]


def _all_reduce(group: dist.ProcessGroup, count: int) -> float:
    """Seconds of an all_reduce of 64 bytes."""
    value = torch.zeros(16)

    def work(repeats: int) -> None:
        for _ in range(repeats):
            dist.all_reduce(value, group=group)

    return _timed(work, count)[0]
