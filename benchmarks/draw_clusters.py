"""Clusters and settings that nobody chose: the grid of the tier of emulated clusters.

    python benchmarks/draw_clusters.py [--count 60] [--seed 40] > experiments/fidelity-clusters.yaml

What binds is meant to be, in turn, the servers' network cards, the trainers', a rack's uplink, a
collective, or several at once; every fifth setting has real compute and links so fast that cores
bind. Strategy and options, net, batch size, hosts, rates, racks and queues come from
`random.Random(seed)`. Nothing is drawn again: a setting that the tool refuses would be a fault of
the rules below. Draw before any run, replace none.
"""

from __future__ import annotations

from random import Random
from typing import Any

import yaml
from script import options

from recsim_train.config.frames import TCP_OVER_ETHERNET

TURNS = ("server", "trainer", "uplink", "collective", "mixed", "cores")
ROWS: tuple[dict[str, Any], ...] = (
    {"kind": "flat_ps"},
    {"kind": "flat_ps", "prefetch": 1},
    {"kind": "flat_ps", "pooling": "worker"},
    {"kind": "flat_ps", "mode": "easgd", "every": 4},
    {"kind": "flat_ps", "compression": {"kind": "dct", "refresh": 10}},
    {"kind": "allreduce"},
    {"kind": "allreduce", "pooling": "worker"},
    {"kind": "localsgd", "every": 3},
    {"kind": "shadowsync", "algorithm": "easgd"},
    {"kind": "shadowsync", "algorithm": "ma", "sync": "foreground", "every": 4},
    {"kind": "hierarchical", "hosts": 1, "outer": "easgd"},
    {"kind": "scalefreectr"},
    {"kind": "scalefreectr", "cache": False},
)
"""Whose trainers ask embedding servers."""
MEET: tuple[dict[str, Any], ...] = (
    {"kind": "allreduce"},
    {"kind": "allreduce", "compression": {"kind": "dct", "refresh": 10}},
    {"kind": "des"},
    {"kind": "des", "partition": "hash"},
    {"kind": "localsgd", "every": 3},
    {"kind": "hierarchical"},
    {"kind": "shadowsync", "algorithm": "bmuf", "sync": "foreground", "every": 4},
    {"kind": "scalefreectr"},
)
"""Whose trainers meet in collectives."""
ALONE: tuple[dict[str, Any], ...] = (
    {"kind": "allreduce"},
    {"kind": "allreduce", "pooling": "worker"},
    {"kind": "flat_ps"},
    {"kind": "flat_ps", "prefetch": 1},
)
"""Of one trainer and one server, whose cores bind."""
RATES = (20, 40, 80, 120, 200, 400)
"""Of a link, Mbit/s each way."""
TWO_HOSTS = 1000
"""The same where there are two hosts only."""
MOST_TOGETHER = 1000
"""Of all links, Mbit/s: 70 % of what two cores of 2025 carry by far."""
MOST_HOSTS = 16
LONGEST = 1.0
"""Seconds that a step may take by that guess, if there is a batch size for it."""
BATCHES = (64, 128, 256, 512)
DIMS = (8, 16, 32)
SECONDS, LEAST_STEPS, MOST_STEPS = 12.0, 24, 1000
"""Clients that start together take a dozen steps until they are apart."""
CORES = 16
LEARNING = {"dense_lr": 0.001, "sparse_lr": 0.001}


def drawn_model(draw: Random, number: int, turn: str) -> dict[str, Any]:
    """Tables and a net; where trainers are to meet, more of the net than of the tables."""
    dim = draw.choice(DIMS)
    if turn == "collective":
        count, top = draw.choice((4, 6)), [draw.choice((256, 512)), draw.choice((128, 256)), 1]
    elif turn == "cores":
        count, top = draw.choice((4, 8)), draw.choice(([512, 256, 1], [384, 128, 1], [16, 1]))
    else:
        count, top = draw.choice((16, 26)), [16, 1]
    ids = draw.choice((1, 1, 1, 4)) if turn != "cores" else 1 if len(top) > 2 else 20
    return {
        "preset": "criteo-kaggle",
        "name": f"clusters-{number}",
        "embedding_dim": dim,
        "tables": {"count": count, "rows": 20_000, "ids": ids},
        "bottom_mlp": [dim],
        "top_mlp": top,
    }


def drawn_roles(draw: Random, turn: str, strategy: dict[str, Any]) -> dict[str, int]:
    """How many of each, at most `MOST_HOSTS` together."""
    if turn == "cores":
        return {"trainers": 1, "embedding_servers": 1, "dense_servers": 0}
    if turn == "collective":
        trainers = draw.choice((2, 3, 4, 6, 8, 12))
        return {"trainers": trainers, "embedding_servers": draw.choice((1, 2)), "dense_servers": 1}
    if turn == "server":
        trainers, servers = draw.choice((2, 3, 4, 6, 8, 12)), draw.choice((1, 1, 2))
    elif turn == "trainer":
        trainers, servers = draw.choice((1, 2, 3, 4)), draw.choice((2, 3, 4))
    else:
        trainers = draw.choice((2, 3, 4, 6))
        servers = trainers if turn == "mixed" else draw.choice((1, 2, 3))
    if strategy["kind"] in ("hierarchical", "localsgd", "allreduce", "scalefreectr"):
        trainers = max(2, trainers)  # alone they have nobody to meet
    return {"trainers": trainers, "embedding_servers": servers, "dense_servers": 1}


def hosts_of(kinds: dict[str, Any], queue: str) -> dict[str, Any]:
    """A cluster of hosts of these kinds, over this machine's prices."""
    network = {
        "latency": "30 us",
        "efficiency": TCP_OVER_ETHERNET,
        "connection_cap": None,
        "queue": queue,
    }
    return {"extends": "local", "colocate": False, "hosts": kinds, "network": network}


def drawn_cluster(draw: Random, turn: str, roles: dict[str, int]) -> dict[str, Any]:
    """Hosts of their own, over this machine's prices."""
    hosts = sum(roles.values())
    least = 4 * RATES[0] if turn == "trainer" else RATES[0]
    fits = [rate for rate in RATES if rate >= least and rate * hosts <= MOST_TOGETHER] or [least]
    rate = TWO_HOSTS if turn == "cores" else draw.choice(fits)
    kinds: dict[str, Any] = {
        "default": {"cores": CORES, "memory": "8 GiB", "nic": f"{rate} Mbit/s"}
    }
    if turn == "trainer":
        slow = max(RATES[0], rate // draw.choice((4, 8)))
        kinds["trainer"] = {"cores": CORES, "memory": "8 GiB", "nic": f"{slow} Mbit/s"}
    cluster = hosts_of(kinds, draw.choice(("fifo", "fair")))
    if turn == "uplink" or (turn == "server" and draw.random() < 0.2):
        over = draw.choice((4, 6, 8)) if turn == "uplink" else 2
        arrange = draw.choice(("spread", "fill"))
        cluster["topology"] = {"racks": 2, "oversubscription": over, "arrange": arrange}
    return cluster


def seconds_of(
    model: dict[str, Any], batch: int, roles: dict[str, int], cluster: dict[str, Any]
) -> float:
    """A guess at the seconds of a step, by the bytes of a batch's vectors and of a net over one
    link, which sets nothing but how many steps are run and how large batches are."""
    nic = cluster["hosts"].get("trainer", cluster["hosts"]["default"])["nic"]
    rate = float(nic.split()[0]) * 1e6 / 8
    tables = model["tables"]
    vectors = batch * tables["count"] * (model["embedding_dim"] * 4 + tables["ids"] * 8)
    wide = [tables["count"] * model["embedding_dim"], *model["top_mlp"]]
    net = 4 * sum(a * b for a, b in zip(wide, wide[1:], strict=False))
    share = max(1.0, roles["trainers"] / roles["embedding_servers"])
    over = cluster.get("topology", {}).get("oversubscription", 1) / 2
    return (2 * vectors * share * max(1.0, over) + 2 * net) / rate


def period_of(strategy: dict[str, Any]) -> int:
    """Steps after which what a step moves comes round again."""
    return int(strategy.get("every") or strategy.get("compression", {}).get("refresh") or 1)


def drawn_batch(
    draw: Random, model: dict[str, Any], roles: dict[str, int], cluster: dict[str, Any]
) -> int:
    """Examples of a batch, whose steps are not too long if there is such a size."""
    sizes = draw.sample(BATCHES, len(BATCHES))
    short = [size for size in sizes if seconds_of(model, size, roles, cluster) < LONGEST]
    return (short or [BATCHES[0]])[0]


def steps_of(wanted: float, period: int) -> int:
    """So many steps, within limits, in whole periods."""
    steps = max(LEAST_STEPS, min(MOST_STEPS, round(wanted)))
    return steps + -steps % period


def drawn_point(draw: Random, number: int) -> dict[str, Any]:
    """One setting on its cluster."""
    turn = TURNS[number % len(TURNS)]
    strategy = dict(draw.choice(MEET if turn == "collective" else ROWS))
    if turn == "cores":
        strategy = dict(draw.choice(ALONE))
    model, roles = drawn_model(draw, number, turn), drawn_roles(draw, turn, strategy)
    cluster = drawn_cluster(draw, turn, roles)
    batch = drawn_batch(draw, model, roles, cluster)
    seconds = SECONDS * (4 if turn == "cores" else 1)
    steps = steps_of(seconds / seconds_of(model, batch, roles, cluster), period_of(strategy))
    return {
        "strategy": strategy,
        "model": model,
        "roles": roles,
        "training": {"batch_size": batch, "threads": 1, "steps": steps, **LEARNING},
        "cluster": cluster,
        "execution.compute": "real" if turn == "cores" else "modelled",
    }


def experiment(count: int, seed: int) -> dict[str, Any]:
    """The whole grid."""
    draw = Random(seed)
    return {
        "name": "fidelity-clusters",
        "data": {"eval_rows": 0, "synthetic": {"rows": 100_000, "seed": 7}},
        "seed": 1,
        "model": {"preset": "criteo-kaggle", "max_rows": 20_000},
        "roles": {"trainers": 2, "embedding_servers": 1, "dense_servers": 1},
        "training": {"batch_size": 256, "threads": 1, "steps": 20, "warmup_steps": 4},
        "strategy": "flat_ps",
        "simulation": {"precision": "0 %", "what_if_steps": 20},
        "validation": {"tier": "emulated", "repeats": 2},
        "sweep": {"points": [drawn_point(draw, number) for number in range(count)]},
    }


def main() -> None:
    """Draw and write."""
    asked = options(__doc__, {"--count": (60, ""), "--seed": (40, "")})
    given = f"--count {asked.count} --seed {asked.seed}"
    command = f"python benchmarks/draw_clusters.py {given}"
    print(f"# Drawn by `{command}`,\n# before any run; none of them was replaced.")
    text = yaml.safe_dump(
        experiment(asked.count, asked.seed), sort_keys=False, default_flow_style=None, width=120
    )
    print(text, end="")


if __name__ == "__main__":
    main()
