"""Laws that published claims lean on: algebra from the definitions, each with its source.

All are derived, none is a paper's own formula. Bytes are payload; rates are bytes per second and
direction.
"""

from __future__ import annotations


def ring_factor(members: int) -> float:
    """How many times its vector each member of a ring all-reduce sends: 2(n-1)/n."""
    return 2 * (members - 1) / members


def des_outputs(kind: str, dim: int, tables: int, first_layer: int) -> int:
    """n_out, the numbers per example that DES all-reduces in one forward round.

    For ids that are not split over workers. deepfm: the vector S (d), the linear part with
    Q/2 (1), and the deep branch; wide_deep: the linear part (1) and the deep branch. The deep
    branch sends min(H1, F d): partial outputs of its first layer, or the vectors themselves.
    Raises ValueError for other kinds.
    """
    deep = min(first_layer, tables * dim)
    if kind == "deepfm":
        return dim + 1 + deep
    if kind == "wide_deep":
        return 1 + deep
    raise ValueError(f"no formula for a {kind}")


def row_server_bytes(trainers: int, unique: float, width: float) -> float:
    """Bytes that one worker's iteration moves with a parameter server that moves rows.

    (n-1)/n U_w (8 w + 16): ids and rows, ids and gradients, for U_w distinct rows of w float32
    numbers in shards that live in the n workers.
    """
    return (trainers - 1) / trainers * unique * (8 * width + 16)


def des_bytes(trainers: int, batch: int, outputs: int) -> float:
    """Bytes that one worker sends in an iteration with DES: (n-1)/n 8 B n_out, B = n b."""
    return (trainers - 1) / trainers * 8 * trainers * batch * outputs


def des_crossover(unique: float, width: float, batch: int, outputs: int) -> float:
    """n* = U_w (w + 2) / (b n_out): trainers from which DES sends more than a row server.

    `row_server_bytes` equals `des_bytes` there; w is the numbers of a row (d, and 1 for the linear
    weight where a row holds it).
    """
    return unique * (width + 2) / (batch * outputs)


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
