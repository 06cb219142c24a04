"""How TCP shares one emulated link, without any strategy.

    python benchmarks/link_shares.py [--rounds 30] [--out FILE]

"at once": several connections begin a message of the same size at the same time: of several
hosts to one (incast), or of one host to several (outcast). When the first has arrived, what the
others have got says how the link was shared. `sigma` is the standard deviation of the logarithms of
these shares within a round, over all rounds; 0: equal shares.

"joining": one connection begins when the others have moved four tenths of their messages, after a
pause of ``idle`` seconds. `share` is the median of what it has of the link until the first of the
others has arrived, `least` and `most` of the rounds; equal shares are 1 / ``flows``.

"in turn": several clients of one server, each of which receives a message, then sends one, and so
on, as trainers do that look up rows and send gradients. "several servers": the same of as many
servers at once, each asked before it sends and heard when it has received. "over an uplink": the
same, where clients are in one rack and servers in another one. `duplex` is the share of what both
directions of a server's link, or of the uplink, carry together that they have carried; clients that
stay in step reach 0.5, for they all receive and then all send.

"drawn": the same of clients and servers, links and sizes that nobody chose: those of settings that
`draw_clusters.py` draws, with another seed than any grid of runs. `seconds` of a turn.

"not awaited": clients of several servers that ask again as soon as they have sent, so that the next
request follows on the same connection. `seconds` of a turn beside `serial`, what its bytes take one
after the other on a client's link.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address
from math import log, sqrt
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from draw_clusters import LEAST_STEPS, TURNS, drawn_point
from script import options

from recsim_train.config.frames import FRAME, SEGMENT, room
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import EmulatedHost, EmulatedLayout, Link

MBIT = 1e6 / 8
PORT = 5000
LIMIT = 60.0
"""Seconds for one setting's connections."""


@dataclass
class Rounds:
    """Messages of one setting."""

    size: int
    rounds: int
    flows: int
    taken: list[int] = field(init=False)
    shares: list[list[float]] = field(default_factory=list)
    """By round: bytes of each when the first was complete."""
    seconds: list[float] = field(default_factory=list)
    """By round: from the start until the last was complete."""

    def __post_init__(self) -> None:
        self.taken = [0] * self.flows
        self.begin = threading.Barrier(2 * self.flows, action=self._start)
        self.end = threading.Barrier(2 * self.flows, action=self._close)
        self._first: list[float] = []
        self._lock = threading.Lock()

    def _start(self) -> None:
        self.taken[:] = [0] * self.flows
        self._first = []
        self._began = time.monotonic()

    def _close(self) -> None:
        self.seconds.append(time.monotonic() - self._began)
        self.shares.append(self._first)

    def before(self, flow: int) -> None:
        """What a connection waits for before it sends: nothing."""

    def send(self, address: str, flow: int) -> None:
        content = bytes(self.size)
        with socket.create_connection((address, PORT + flow), timeout=LIMIT) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(self.rounds):
                self.begin.wait(LIMIT)
                self.before(flow)
                connection.sendall(content)
                self.end.wait(LIMIT)

    def receive(self, server: socket.socket, flow: int) -> None:
        with server:
            connection, _ = server.accept()
        with connection:
            connection.settimeout(LIMIT)
            for _ in range(self.rounds):
                self.begin.wait(LIMIT)
                while self.taken[flow] < self.size:
                    self.taken[flow] += len(connection.recv(1 << 16))
                with self._lock:
                    if not self._first:
                        self._first = list(map(float, self.taken))
                self.end.wait(LIMIT)

    @property
    def sigma(self) -> float:
        """Of the rounds after the first two, in which windows open."""
        squares = []
        for shares in self.shares[2:]:
            logs = [log(max(SEGMENT, share)) for share in shares]
            squares += [(x - mean(logs)) ** 2 for x in logs]
        return sqrt(sum(squares) / (len(self.shares[2:]) * (self.flows - 1)))


@dataclass
class Joining(Rounds):
    """Messages of which one begins later; connections take turns."""

    idle: float = 0.0
    """Seconds before each round."""
    late: float = 0.0
    """Seconds after the others."""
    round: int = field(init=False, default=-1)
    joined: list[float] = field(default_factory=list)
    """By round: share of the one that is later."""

    def _start(self) -> None:
        super()._start()
        self.round += 1
        self._then = [0] * self.flows

    def _close(self) -> None:
        super()._close()
        moved = [first - then for first, then in zip(self._first, self._then, strict=True)]
        if sum(self._then):
            self.joined.append(moved[self.round % self.flows] / sum(moved))

    def before(self, flow: int) -> None:
        """Wait until a connection's message is to be sent."""
        last = self.round % self.flows == flow
        time.sleep(max(0.0, self._began + self.idle + last * self.late - time.monotonic()))
        if last:
            self._then = list(self.taken)


def measured(pattern: str, mbit: float, queue: str, work: Rounds) -> None:
    """One setting of messages at once, or nearly."""
    hosts, flows = _hosts(work.flows + 1, mbit, queue), work.flows
    with EmulatedCluster(EmulatedLayout(hosts)) as cluster:
        threads = []
        for flow in range(flows):
            one, other = hosts[0], hosts[flow + 1]
            sender, receiver = (other, one) if pattern == "incast" else (one, other)
            made: list[socket.socket] = []
            place, address = cluster.namespace(receiver.name), str(receiver.address)
            place.do(partial(_listen, address, PORT + flow, made))
            takes = partial(work.receive, made[0], flow)
            gives = partial(work.send, address, flow)
            away = cluster.namespace(sender.name)
            threads.append(threading.Thread(target=place.do, args=[takes]))
            threads.append(threading.Thread(target=away.do, args=[gives]))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * LIMIT)


def _link(mbit: float, queue: str) -> Link:
    rate = mbit * MBIT
    return Link(rate, queue, round(room(rate, 5e-3)))  # type: ignore[arg-type]


def _carried(mbit: float) -> float:
    """Bytes of messages that such a link carries in a second."""
    return mbit * MBIT * SEGMENT / FRAME


def _hosts(number: int, mbit: float, queue: str, first: int = 0) -> tuple[EmulatedHost, ...]:
    """So many hosts, of equal links; as many as ``first`` in a rack of their own."""
    link = _link(mbit, queue)
    return tuple(
        EmulatedHost(f"host {n}", IPv4Address("10.77.0.1") + n, int(n < first), link)
        for n in range(number)
    )


def _servers_faster(
    hosts: tuple[EmulatedHost, ...], servers: int, link: Link
) -> tuple[EmulatedHost, ...]:
    """The first hosts have such links."""
    return (*(replace(host, link=link) for host in hosts[:servers]), *hosts[servers:])


def _listen(address: str, port: int, made: list[socket.socket]) -> None:
    made.append(socket.create_server((address, port)))


def turns(
    clients: int,
    servers: int,
    mbit: float,
    queue: str,
    size: int,
    turns: int,
    heads: int,
    faster: float = 0.0,
    asks: int = 0,
    away: float = 1.0,
) -> float:
    """Seconds of a turn of clients that receive and send in turn. ``heads``: bytes that ask for a
    message, unless ``asks`` says so, and that say that one has arrived. ``faster``: so many times
    what an uplink between clients and servers carries do their own links carry; 0: there is none,
    and servers' links are ``away`` times as fast as clients'."""
    hosts = _hosts(servers + clients, mbit * (faster or 1.0), queue, servers if faster else 0)
    uplinks = (_link(mbit, queue),) * (2 if faster else 0)
    if not faster:
        hosts = _servers_faster(hosts, servers, _link(mbit * away, queue))
    asks = asks or heads

    def serve(connection: socket.socket) -> None:
        for _ in range(turns):
            _receive(connection, asks)
            connection.sendall(bytes(size))
            _receive(connection, size)
            connection.sendall(bytes(heads))

    def ask(connection: socket.socket, both: threading.Barrier, own: list[float]) -> None:
        for _ in range(turns):
            connection.sendall(bytes(asks))
            _receive(connection, size)
            both.wait(LIMIT)
            connection.sendall(bytes(size))
            _receive(connection, heads)
            both.wait(LIMIT)
            own.append(time.monotonic())

    return _turn(_talk(EmulatedLayout(hosts, uplinks), servers, serve, ask), turns)


def not_awaited(
    clients: int, servers: int, mbit: float, queue: str, size: int, turns: int, asks: int, away: int
) -> float:
    """Seconds of a turn of clients that ask by ``asks`` bytes, receive and send ``size`` bytes from
    and to each server, and wait for no word that these have arrived. ``mbit``: of a client's link;
    ``away``: so many times as fast are servers' links."""
    hosts = _hosts(servers + clients, mbit, queue)
    hosts = _servers_faster(hosts, servers, _link(mbit * away, queue))

    def serve(connection: socket.socket) -> None:
        for _ in range(turns):
            _receive(connection, asks)
            connection.sendall(bytes(size))
            _receive(connection, size)
        connection.sendall(b".")

    def ask(connection: socket.socket, both: threading.Barrier, own: list[float]) -> None:
        for _ in range(turns):
            connection.sendall(bytes(asks))
            _receive(connection, size)
            both.wait(LIMIT)
            own.append(time.monotonic())
            connection.sendall(bytes(size))
        _receive(connection, 1)

    return _turn(_talk(EmulatedLayout(hosts), servers, serve, ask), turns)


Asks = Callable[[socket.socket, threading.Barrier, list[float]], None]


def _talk(
    layout: EmulatedLayout, servers: int, serve: Callable[[socket.socket], None], ask: Asks
) -> list[list[float]]:
    """When each client ended its turns. The first hosts are servers; a client's connections have a
    thread each at both ends, and a barrier of their own."""
    hosts = layout.hosts
    clients = len(hosts) - servers
    begin = threading.Barrier(clients * servers)
    times: list[list[float]] = [[] for _ in range(clients)]

    def served(server: socket.socket) -> None:
        with server:
            connection, _ = server.accept()
        with connection:
            connection.settimeout(LIMIT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(connection)

    def asked(address: str, client: int, both: threading.Barrier, own: list[float]) -> None:
        with socket.create_connection((address, PORT + client), timeout=LIMIT) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begin.wait(LIMIT)
            ask(connection, both, own)

    with EmulatedCluster(layout) as cluster:
        threads = []
        for client in range(clients):
            both = threading.Barrier(servers)
            away = cluster.namespace(hosts[servers + client].name)
            for number, host in enumerate(hosts[:servers]):
                made: list[socket.socket] = []
                home, address = cluster.namespace(host.name), str(host.address)
                home.do(partial(_listen, address, PORT + client, made))
                own = times[client] if number == 0 else []
                asks = partial(asked, address, client, both, own)
                threads += [
                    threading.Thread(target=home.do, args=[partial(served, made[0])]),
                    threading.Thread(target=away.do, args=[asks]),
                ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * LIMIT)
    return times


def _turn(times: Sequence[Sequence[float]], turns: int) -> float:
    """Seconds of a turn from when all have done half of theirs until the first is done, or of the
    second half of that one's time."""
    begun, done = max(own[turns // 2 - 1] for own in times), min(own[-1] for own in times)
    if done <= begun:  # one has done less than half of what another has
        begun = (min(own[0] for own in times) + done) / 2.0
    count = sum(begun < at <= done for own in times for at in own)
    return (done - begun) * len(times) / count


def _receive(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(min(size, 1 << 16)))


SETTINGS = (
    (2, 20, 64), (2, 20, 256), (2, 40, 64), (2, 40, 512), (2, 120, 512), (2, 200, 256),
    (2, 200, 2048), (4, 40, 64), (4, 40, 256), (4, 120, 512), (8, 40, 128),
)  # fmt: skip
"""(connections, Mbit/s, KiB of a message)"""

JOINING = tuple(
    (way, *row)
    for way in ("outcast", "incast")
    for row in (
        (2, 40, 1344, 0.1), (2, 80, 2048, 0.2), (2, 20, 512, 0.1), (2, 40, 512, 0.3),
        (3, 40, 1344, 0.1), (4, 40, 512, 0.1), (2, 40, 256, 0.03), (2, 80, 512, 0.03),
    )
)  # fmt: skip
"""(way, connections, Mbit/s, KiB of a message, seconds of a pause)"""
IN_TURN = (
    (2, 20, 16, 100), (3, 20, 16, 100), (4, 20, 16, 100), (3, 20, 64, 40), (3, 20, 256, 20),
    (2, 40, 64, 100), (2, 40, 128, 80), (2, 40, 256, 60), (2, 40, 512, 40), (3, 40, 512, 40),
    (4, 40, 256, 60), (8, 40, 64, 60), (8, 40, 128, 30), (4, 200, 256, 200), (2, 200, 2048, 40),
    (2, 40, 1344, 20), (3, 40, 1344, 24), (3, 40, 1024, 24), (4, 40, 1024, 20), (3, 20, 512, 24),
    (3, 80, 1344, 30), (3, 60, 1344, 30), (3, 80, 256, 60),
)  # fmt: skip
"""(clients, Mbit/s, KiB of a message, turns)"""
SEVERAL = (
    (1, 3, 20, 32, 80), (2, 3, 20, 32, 80), (1, 4, 40, 64, 80), (2, 4, 40, 64, 80),
    (4, 4, 20, 64, 40), (3, 4, 40, 128, 60), (2, 6, 80, 128, 80), (2, 12, 20, 64, 30),
    (3, 6, 40, 32, 80), (2, 8, 80, 16, 200), (2, 4, 40, 256, 60), (2, 3, 120, 512, 60),
)  # fmt: skip
"""(servers, clients, Mbit/s, KiB of a message, turns)"""
OVER = (
    (1, 2, 40, 64, 80, 3), (1, 2, 40, 256, 30, 3), (1, 2, 40, 1024, 10, 3), (1, 3, 40, 256, 24, 3),
    (1, 2, 20, 512, 12, 3), (1, 4, 40, 512, 10, 3), (1, 4, 20, 64, 40, 3), (2, 2, 20, 512, 10, 3),
    (2, 4, 40, 256, 14, 3), (2, 2, 20, 64, 40, 2), (4, 4, 40, 64, 30, 2), (4, 4, 80, 128, 24, 1),
    (2, 6, 80, 128, 24, 1), (4, 4, 80, 128, 24, 0.5),
)  # fmt: skip
"""(servers, clients, Mbit/s of the uplink, KiB of a message, turns, how much faster hosts are)"""
NOT_AWAITED = (
    (1, 1, 20, 53, 13, 40, 6), (2, 1, 20, 27, 7, 60, 6), (4, 1, 20, 13, 3, 60, 6),
    (2, 1, 20, 64, 16, 40, 6), (2, 1, 40, 128, 32, 40, 6), (2, 1, 20, 8, 2, 100, 6),
    (2, 3, 20, 27, 7, 40, 1), (3, 4, 40, 32, 8, 60, 1), (2, 3, 20, 27, 7, 40, 6),
    (2, 6, 40, 32, 8, 60, 1),
)  # fmt: skip
"""(servers, clients, Mbit/s of a client, KiB of a message, KiB that ask for it, turns, how much
faster servers are)"""
DRAWN, SEEDS = 30, (60, 61)
"""How many settings, of each seed."""
TOGETHER = 400
"""Mbit/s of all links: what this machine carries for any number of hosts."""
HEADS = 100
"""Bytes by which clients of several servers ask for a message, and are told that one is there."""


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Settings whose rows' traffic clients and servers are to move; those over uplinks, those of
    which a collective is the most, of one client, or of more than this machine carries, are left
    out."""
    draw, found = Random(seed), []
    for number in itertools.count():
        if len(found) == count:
            break
        point = drawn_point(draw, number)
        roles, cluster = point["roles"], point["cluster"]
        flows, servers = roles["trainers"], roles["embedding_servers"]
        rates = [
            float(cluster["hosts"].get(role, cluster["hosts"]["default"])["nic"].split()[0])
            for role in ("trainer", "embedding_server")
        ]
        turn, together = TURNS[number % len(TURNS)], flows * rates[0] + servers * rates[1]
        others = turn in ("uplink", "collective", "cores") or "topology" in cluster
        if others or flows < 2 or together > TOGETHER:
            continue
        training, tables = point["training"], point["model"]["tables"]
        vectors = training["batch_size"] * tables["count"] / servers
        found.append(
            {
                "servers": servers,
                "flows": flows,
                "mbit": rates[0],
                "away": rates[1] / rates[0],
                "size": round(vectors * point["model"]["embedding_dim"] * 4),
                "asks": round(vectors * tables["ids"] * 8),
                "turns": max(LEAST_STEPS, training["steps"] // 2),
            }
        )
    return found


def middle(name: str, tries: Sequence[float], places: int) -> dict[str, float]:
    """The median of some measurements, and between what they lie."""
    found = {name: median(tries), "least": min(tries), "most": max(tries)}
    return {key: round(value, places) for key, value in found.items()}


def main() -> None:
    """Measure all tables."""
    about = {
        "--rounds": (30, "of each setting of messages at once"),
        "--repeats": (3, "of each setting of clients in turn; the median counts"),
        "--out": ("", "a JSON file"),
        "--only": ("", "a pattern: that one alone, the others as the file has them"),
        "--queue": ("", "fifo or fair: that one alone, with --only"),
    }
    asked = options(__doc__, about)
    found: list[dict[str, object]] = []
    if asked.only:
        kept = json.loads(Path(asked.out).read_text())
        anew = asked.queue or "fifo fair"
        found += [r for r in kept if r["pattern"] != asked.only or r["queue"] not in anew]

    def say(**figures: object) -> None:
        found.append(figures)
        print(json.dumps(figures), flush=True)

    for queue in (asked.queue or "fifo fair").split():
        for pattern in ("incast", "outcast"):
            if asked.only not in ("", pattern):
                continue
            for flows, mbit, kib in SETTINGS:
                work = Rounds(kib << 10, asked.rounds, flows)
                measured(pattern, mbit, queue, work)
                ideal = flows * (kib << 10) / _carried(mbit)
                took = median(work.seconds[2:])
                say(
                    queue=queue,
                    pattern=pattern,
                    flows=flows,
                    mbit=mbit,
                    kib=kib,
                    sigma=round(work.sigma, 3),
                    seconds=round(took, 4),
                    of_ideal=round(took / ideal, 3),
                )
        for way, flows, mbit, kib, idle in JOINING if asked.only in ("", "joining") else ():
            late = 0.4 * (flows - 1) * (kib << 10) / _carried(mbit)
            joining = Joining(kib << 10, asked.rounds // 2, flows, idle=idle, late=late)
            measured(way, mbit, queue, joining)
            say(
                queue=queue,
                pattern="joining",
                way=way,
                flows=flows,
                mbit=mbit,
                kib=kib,
                idle=idle,
                **middle("share", joining.joined[2:], 3),
            )
        every = [(1, *row, 0, "in turn", 0) for row in IN_TURN]
        every += [(*row, 0, "several servers", HEADS) for row in SEVERAL]
        every += [(*row, "over an uplink", HEADS) for row in OVER]
        for servers, flows, mbit, kib, many, faster, pattern, heads in every:
            if asked.only not in ("", pattern):
                continue
            setting = servers, mbit, queue, kib << 10, many, heads, faster
            tries = [turns(flows, *setting) for _ in range(asked.repeats)]
            moved = flows * (kib << 10) * (servers if faster else 1)
            tries = [moved / took / _carried(mbit) for took in tries]
            say(
                queue=queue,
                pattern=pattern,
                servers=servers,
                flows=flows,
                mbit=mbit,
                kib=kib,
                turns=many,
                faster=faster,
                **middle("duplex", tries, 3),
            )
        every_drawn = [{"seed": seed, **row} for seed in SEEDS for row in drawn(DRAWN, seed)]
        for row in every_drawn if asked.only in ("", "drawn") else ():
            work = row["size"], row["turns"], HEADS, 0.0, row["asks"], row["away"]
            setting = row["flows"], row["servers"], row["mbit"], queue, *work
            tries = [turns(*setting) for _ in range(asked.repeats)]
            say(queue=queue, pattern="drawn", **row, **middle("seconds", tries, 5))
        for servers, flows, mbit, kib, ids, many, away in NOT_AWAITED:
            if asked.only not in ("", "not awaited"):
                continue
            sizes = kib << 10, many, ids << 10, away
            tries = [not_awaited(flows, servers, mbit, queue, *sizes) for _ in range(asked.repeats)]
            moved = servers * (2 * kib + ids) * 1024
            say(
                queue=queue,
                pattern="not awaited",
                servers=servers,
                flows=flows,
                mbit=mbit,
                kib=kib,
                asks=ids,
                rounds=many,
                away=away,
                **middle("seconds", tries, 5),
                serial=round(moved / _carried(mbit), 5),
            )
    if asked.out:
        Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
