"""How many latencies gloo's collectives take: each rank in a network namespace of its own.

    python benchmarks/gloo_latency.py --ranks 8 --arrange fill --far 20

Needs root and /dev/net/tun. Every packet goes through this process, which holds it back for
``--near`` milliseconds, between ranks of different racks for ``--far``. Prints, by rank,
milliseconds from a common start (least and median of five) of an all-reduce of one number, and of
all-reduces and exchanges of each of ``--bytes``.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from script import options

SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
NEW_NETWORK = 0x40000000


def rank_of(place: int, ranks: int, sizes: list[int]) -> None:
    """What one rank does."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="tcp://10.9.0.1:29555", rank=place, world_size=ranks
    )

    def timed(work: Callable[[], object]) -> str:
        taken = []
        for _ in range(5):
            start = torch.tensor([time.monotonic() + 0.5], dtype=torch.float64)
            dist.all_reduce(start, op=dist.ReduceOp.MAX)
            while time.monotonic() < start:
                time.sleep(0.0005)
            work()
            taken.append(1e3 * (time.monotonic() - float(start)))
        return f"{min(taken):.1f} ({sorted(taken)[2]:.1f})"

    flag = torch.tensor([1])
    found = {"one number": timed(lambda: dist.all_reduce(flag))}
    for size in sizes:
        vector = torch.zeros(size // 4)
        parts = torch.zeros(size // 4 // ranks * ranks)
        received = torch.empty_like(parts)
        found[f"all-reduce {size}"] = timed(lambda v=vector: dist.all_reduce(v))
        found[f"all-to-all {size}"] = timed(
            lambda r=received, p=parts: dist.all_to_all_single(r, p)
        )
    for turn in range(ranks):
        dist.barrier()
        if turn == place:
            print(place, found, flush=True)


def link(name: str, address: str) -> int:
    """A network namespace of our own for what is started next; its packets are read from here."""
    if ctypes.CDLL(None).unshare(NEW_NETWORK):
        raise SystemExit("network namespaces need root")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_INTERFACE, struct.pack("16sH", name.encode(), TUN_WITHOUT_HEADER))
    for command in (
        "link set lo up",
        f"addr add {address}/24 dev {name}",
        f"link set {name} up mtu 60000 txqueuelen 5000",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return device


def main() -> None:
    about = {
        "--ranks": (8, ""),
        "--arrange": {"choices": ["fill", "spread"], "default": "fill"},
        "--far": (20.0, "milliseconds"),
        "--near": (0.0, "milliseconds"),
        "--bytes": {"type": int, "nargs": "*", "default": [4000]},
        "--rank": {"type": int, "help": argparse.SUPPRESS},
    }
    asked = options(__doc__, about)
    if asked.rank is not None:
        rank_of(asked.rank, asked.ranks, asked.bytes)
        return
    n = asked.ranks
    rack = [r * 2 // n if asked.arrange == "fill" else r % 2 for r in range(n)]
    devices, workers = [], []
    for place in range(n):
        devices.append(link("rank", f"10.9.0.{place + 1}"))
        words = [sys.executable, __file__, *sys.argv[1:], "--rank", str(place)]
        workers.append(subprocess.Popen(words, env={**os.environ, "GLOO_SOCKET_IFNAME": "rank"}))
    poll = select.poll()
    for device in devices:
        poll.register(device, select.POLLIN)
    held: list[tuple[float, int, int, bytes]] = []
    count = 0
    while any(worker.poll() is None for worker in workers):
        wait = max(0.0, 1e3 * (held[0][0] - time.monotonic())) if held else 50.0
        for device, _ in poll.poll(min(wait, 50.0)):
            source = devices.index(device)
            while True:
                try:
                    packet = os.read(device, 1 << 16)
                except BlockingIOError:
                    break
                target = packet[19] - 1
                if packet[0] >> 4 == 4 and 0 <= target < n:
                    count += 1
                    delay = asked.far if rack[source] != rack[target] else asked.near
                    heapq.heappush(held, (time.monotonic() + delay / 1e3, count, target, packet))
        while held and held[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(held)
            os.write(devices[target], packet)


if __name__ == "__main__":
    main()
