"""Tagging: the options of a net that is cut along tags over the hosts of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsim_train.strategy.base import JobSize, Strategy, option
from recsim_train.strategy.compression import Compression
from recsim_train.strategy.net import NetRequest
from recsim_train.strategy.synchronisers import Synchroniser

MOST_HOSTS = 8
"""Of a group whose size is not chosen. All hosts of a group wait for each other at every cut, G
batches make one step, and the owner of an operator receives what G hosts send."""


@dataclass
class Tagging(Strategy):
    """A base of strategies whose groups share a net: how large groups are, what tags go by."""

    hosts: int = option(
        0,
        help=f"hosts of one group (G); 0: the largest divisor of the trainers up to {MOST_HOSTS}; "
        "with a chosen outer all trainers where it is none, else one that leaves two groups",
        minimum=0,
    )
    tags: str = option("", help='pinned tags, such as "top.0=1, bottom.0=dp"; others by cost')
    precision: Literal["full", "float16", "bfloat16"] = option(
        "full", help="type of activations and their gradients at cuts"
    )
    flops: float = option(
        8e10, help="assumed flops per second of one thread, for choosing tags", minimum=1.0
    )
    bandwidth: float = option(
        3.125e9, help="assumed bytes per second of a host's link, for choosing tags", minimum=1.0
    )
    latency: float = option(
        1e-4,
        help="assumed seconds of a collective's step beside its bytes, for choosing tags",
        minimum=0.0,
    )

    def sizes(self, job: JobSize, outer: Synchroniser) -> dict[str, object]:
        """What the job's size decides: hosts of one group, and how groups meet (``outer``)."""
        found: dict[str, object] = {}
        hosts = self.hosts
        if not hosts and outer.kind == "none":
            found["hosts"] = hosts = job.trainers
        elif not hosts:
            most = min(MOST_HOSTS, job.trainers)
            if outer.meets and job.trainers > 1:
                most = min(most, job.trainers // 2)  # it was chosen for several groups
            found["hosts"] = hosts = max(n for n in range(1, most + 1) if job.trainers % n == 0)
        if outer.kind == "auto":
            several = "easgd" if job.dense_servers else "ma"
            found["outer"] = "none" if hosts == job.trainers else several
        return found

    def request(self, compression: Compression, outer: Synchroniser, every: int) -> NetRequest:
        """What placement is asked for; groups are synchronised ``every`` so many iterations."""
        return NetRequest(
            "tags",
            hosts=self.hosts,
            pins=self.tags,
            precision=self.precision,
            keep=compression.keep,
            mask=compression.over,
            outer=outer.meets,
            central=outer.on_servers,
            every=every,
            flops=self.flops,
            bandwidth=self.bandwidth,
            latency=self.latency,
        )

    def misfits(self, compression: Compression) -> list[str]:
        """What does not fit this compression, one sentence each."""
        if compression.sparse:
            return [
                f"{self.kind} composes compression.mode mp only: what its hosts share are parts of "
                "one net, and a threshold is kept for whole tensors"
            ]
        if compression.keep is not None and self.precision != "full":
            return ["compression.mode mp sends full values at its places: use precision full"]
        return compression.problems("server")
