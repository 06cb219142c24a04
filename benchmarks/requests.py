"""Round trips of requests between processes, beside a plain TCP ping-pong in Python.

python benchmarks/requests.py [--rounds 3] [--count 40000] [--out benchmarks/results/requests.md]

`plain`: two sockets with TCP_NODELAY send 8 bytes to and fro. `transport`: an empty request through
the executor's channel and port, answered with an acknowledgement. `pull`: a training loop's request
for the parameters of a small dense shard, from its stub through the server thread and back. Idle:
one client, nothing else runs; where the scheduler puts both ends, with both on one core, and with a
core for each: on one core nobody is woken on another, which most of a bare round trip consists of.
Rounds are long, because at first the scheduler leaves a pair on one core: of 3,000 bare round trips
(24 ms) most were there, of 40,000 few. Busy: four clients, each a process with a
connection and a server thread of its own in one server process, beside a thread on every core that
multiplies matrices. The ways take turns within each round; wall time of single round trips,
microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore

from recsim_train.calibration.wire_probe import small_plan
from recsim_train.executor.link.tcp import TcpTransport
from recsim_train.executor.link.transport import Key, Pending, ServiceKind
from recsim_train.executor.process.scheduling import ordinary_scheduling
from recsim_train.executor.shards.services import DenseServer, Serving
from recsim_train.executor.shards.stubs import DenseStub, Remote
from recsim_train.executor.shards.wire import ACKNOWLEDGED, acknowledgement
from recsim_train.trace.record import Recorder

WAYS = ("plain", "transport", "pull")
IDLE, BUSY = 1, 4
"""Clients."""
NOWHERE = None, None
KEY: Key = (ServiceKind.DENSE, 0)
PATIENCE = timedelta(seconds=60)
CONTEXT = multiprocessing.get_context("spawn")
Trip = Callable[[], object]
Found = dict[str, list[float]]
"""Seconds of round trips by way."""


def exactly(sock: socket.socket, size: int) -> None:
    while size:
        size -= len(sock.recv(size))


class Server:
    """One thread for each client; a client says before each stretch which way comes next."""

    def __init__(self, folder: Path, clients: int) -> None:
        ordinary_scheduling()
        self.plan = small_plan()
        assert self.plan.dense is not None
        self.dense = DenseServer(self.plan, self.plan.dense.shards[0])
        store = FileStore(str(folder / "store"), clients + 1)
        numbers = range(2 * clients)  # even: `transport`; odd: `pull`
        self.transport = TcpTransport(self.plan, 0, store, PATIENCE, {n: [KEY] for n in numbers})
        self.listening = socket.create_server(("127.0.0.1", 0))
        store.set("plain", str(self.listening.getsockname()[1]))

    def plain(self) -> None:
        sock = self.listening.accept()[0]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while said := sock.recv(8):
            sock.send(said)

    def bare(self, client: int) -> None:
        port = self.transport.ports(2 * client, client + 1, [KEY])[0]
        with contextlib.suppress(ConnectionError):
            while True:
                _, _, size = port.next_request()
                port.payload(size)
                port.answer(ACKNOWLEDGED)

    def pull(self, client: int) -> None:
        port = self.transport.ports(2 * client + 1, client + 1, [KEY])[0]
        recorder = Recorder(warmup=0, steps=1 << 30, max_spans=1)
        who = "trainer[0].worker[0]", 0
        servers = {KEY: self.dense}
        with contextlib.suppress(ConnectionError):
            Serving("server[0]", *who, port, servers, recorder, time.monotonic).run()


def stay(core: int | None) -> None:
    """The process runs on this core only."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def serve(folder: str, clients: int, core: int | None) -> None:
    stay(core)
    torch.set_num_threads(1)
    server = Server(Path(folder), clients)
    threads = [threading.Thread(target=server.plain) for _ in range(clients)]
    for client in range(clients):
        threads += [
            threading.Thread(target=way, args=[client]) for way in (server.bare, server.pull)
        ]
    for thread in threads:
        thread.start()


def trips(folder: Path, clients: int, me: int) -> dict[str, Trip]:
    """One call each: a round trip of that way."""
    plan = small_plan()
    assert plan.dense is not None
    store = FileStore(str(folder / "store"), clients + 1)
    transport = TcpTransport(plan, me + 1, store, PATIENCE, {})
    bare, asking = (transport.channel(n, KEY, 0) for n in (2 * me, 2 * me + 1))
    rules = DenseServer(plan, plan.dense.shards[0])
    stub = DenseStub([Remote(rules.rules, asking)], rules.state.values)
    sock = socket.create_connection(("127.0.0.1", int(store.get("plain"))))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def plain() -> None:
        sock.send(b"12345678")
        exactly(sock, 8)

    def empty() -> None:
        pending = Pending()
        bare.request(pending, b"", (), acknowledgement())
        pending.wait()

    def pull() -> None:
        stub.pull(-1)()

    return {"plain": plain, "transport": empty, "pull": pull}


def ask(
    folder: str,
    clients: int,
    core: int | None,
    me: int,
    rounds: int,
    count: int,
    together: Barrier,
    to: Queue[Found],
) -> None:
    stay(core)
    torch.set_num_threads(1)
    ordinary_scheduling()
    calls = trips(Path(folder), clients, me)
    found: Found = {way: [] for way in WAYS}
    for turn in range(-1, rounds):
        for way in WAYS:
            together.wait(PATIENCE.total_seconds())
            for _ in range(count // 10 if turn < 0 else count):
                begin = time.perf_counter()
                calls[way]()
                taken = time.perf_counter() - begin
                if turn >= 0:
                    found[way].append(taken)
    to.put(found)


def work(stop: Event) -> None:
    torch.set_num_threads(1)
    ordinary_scheduling()
    values = torch.rand(256, 256)
    while not stop.is_set():
        for _ in range(50):
            values @ values


@contextlib.contextmanager
def running(*processes: BaseProcess) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join(10)


def case(
    clients: int, busy: int, rounds: int, count: int, on: tuple[int | None, int | None] = NOWHERE
) -> Found:
    """Of all clients together. ``on``: the server's core and the clients'."""
    stop, together, to = CONTEXT.Event(), CONTEXT.Barrier(clients), CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        others = [CONTEXT.Process(target=work, args=[stop]) for _ in range(busy)]
        own = (folder, clients)
        askers = [
            CONTEXT.Process(target=ask, args=[*own, on[1], me, rounds, count, together, to])
            for me in range(clients)
        ]
        with running(CONTEXT.Process(target=serve, args=[*own, on[0]]), *others, *askers):
            parts: list[Found] = [to.get(timeout=600) for _ in askers]
    return {way: [taken for part in parts for taken in part[way]] for way in WAYS}


def table(cases: dict[str, Found]) -> str:
    lines = ["| | p50 | mean | p99 |", "|---|---|---|---|"]
    for name, found in cases.items():
        for way in WAYS:
            cuts = statistics.quantiles(found[way], n=100)
            mean = statistics.fmean(found[way])
            figures = " | ".join(f"{1e6 * x:,.0f}" for x in (cuts[49], mean, cuts[98]))
            lines.append(f"| {name}: {way} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--count",
        type=int,
        default=40000,
        help="round trips of a way in a round; a tenth where cores are busy",
    )
    parser.add_argument("--out", type=Path, help="write the page there, too")
    arguments = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    cores = len(available)
    once = arguments.rounds, arguments.count
    found = {
        "one client, idle": case(IDLE, 0, *once),
        "the same, both on one core": case(IDLE, 0, *once, (available[0], available[0])),
        "the same, a core for each": case(IDLE, 0, *once, (available[0], available[-1])),
        f"{BUSY} clients beside {cores} busy threads": case(
            BUSY, cores, arguments.rounds, arguments.count // (10 * BUSY)
        ),
    }
    command = " ".join(["python benchmarks/requests.py", *sys.argv[1:]])
    where = f"{platform.platform()}, {cores} cores, torch {torch.__version__}"
    page = f"""# Round trips of requests

`{command}`, {time.strftime("%Y-%m-%d")}, {where}. Microseconds, wall.
What the cases and the ways are stands at the head of the program.

{table(found)}
"""
    print(page)
    if arguments.out:
        arguments.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
