"""Laws that published claims lean on: algebra from the definitions, each with its source.

All are derived, none is a paper's own formula. Bytes are payload; rates are bytes per second and
direction.
"""

from __future__ import annotations


def ring_factor(members: int) -> float:
    """How many times its vector each member of a ring all-reduce sends: 2(n-1)/n."""
    return 2 * (members - 1) / members


def easgd_knee(
    servers: int, nic: float, every: int, iteration: float, threads: int, weights: float
) -> float:
    """Trainers n where the linear part of FR-EASGD-k meets its plateau.

    n_max (1 + 2 W / (C k t)) with n_max = S C k t / (m W): S sync servers of C bytes/s, k
    iterations of t seconds between exchanges of W bytes each way, m threads per trainer. The
    bracket is what an exchange adds to k iterations when servers are idle.
    """
    n_max = servers * nic * every * iteration / (threads * weights)
    return n_max * (1 + 2 * weights / (nic * every * iteration))


def easgd_sync_gap(
    trainers: int,
    servers: int,
    nic: float,
    latency: float,
    iteration: float,
    threads: int,
    weights: float,
) -> float:
    """Iterations of a trainer (all threads) between two rounds of an S-EASGD shadow.

    m t_s / t with t_s = 2 (latency + W / min(C, S C / n)): flat while the trainer's own NIC
    limits an exchange, then growing like n/S. Without the shadow's own work, so a lower bound.
    """
    rate = min(nic, servers * nic / trainers)
    return threads * 2 * (latency + weights / rate) / iteration
