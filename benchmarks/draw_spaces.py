"""Spaces of designs that nobody chose, to compare `recommend` with exhaustive search on.

    python benchmarks/draw_spaces.py FOLDER [--count 10] [--seed 2001]

Each has 30 to 60 designs: a net, hosts (some in racks, some of two types), strategies with options,
batch, threads and how hosts are divided come from `random.Random(seed)`; seeds follow each other.
Combinations of other sizes are drawn again, and nothing else is. What is asked is drawn, too, as
`ask` (`benchmarks/designs.py`): by what, and of a target how far it is from the best design.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml
from draw_settings import STRATEGIES
from script import options

import recsim_train
from recsim_train.config.errors import UserError
from recsim_train.designs.making import space
from recsim_train.session.job import NOBODY

DESIGNS = range(30, 61)
ASKS: tuple[dict[str, Any], ...] = (
    {"by": "throughput"},
    {"by": "cost"},
    {"by": "cost", "share": 0.98},
    {"by": "hosts", "share": 0.98},
    {"by": "cost", "share": 1.02},
)
"""In turn. ``share``: the target, relative to what the fastest design surely gives: just met, or
just missed."""
RENTS = {4: 0.2, 8: 0.4, 16: 0.8}
"""USD an hour by cores: no price list, but large hosts cost more."""


def main() -> None:
    """One file for each."""
    about = {
        "folder": {"type": Path, "help": "where they go"},
        "--count": (10, "how many"),
        "--seed": (2001, "of the first"),
    }
    asked = options(__doc__, about)
    asked.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seed, asked.seed + asked.count):
        ask = ASKS[(seed - asked.seed) % len(ASKS)]
        draw = Random(seed)
        file = asked.folder / f"drawn-{seed}.yaml"
        while True:
            file.write_text(yaml.safe_dump(drawn(draw, seed), sort_keys=False), encoding="utf-8")
            try:
                count = len(space(recsim_train.load(file), None, NOBODY).candidates)
            except UserError:
                continue
            if count in DESIGNS:
                break
        (asked.folder / f"{file.stem}.ask").write_text(yaml.safe_dump(ask), encoding="utf-8")
        print(file.stem, count, ask, flush=True)


def drawn(draw: Random, seed: int) -> dict[str, Any]:
    """An experiment with its profile and its search."""
    kinds, cores = draw.sample(STRATEGIES, 3), draw.choice((4, 8, 16))
    threads = sorted(draw.sample((1, 2, 4, 8), draw.choice((1, 2))))
    each = sorted(draw.sample((1, 2, 4), draw.choice((1, 2))))
    return {
        "name": f"drawn-{seed}",
        "model": {
            "preset": draw.choice(("criteo-kaggle", "wide-deep", "deepfm", "dcn")),
            "max_rows": draw.choice((5_000, 50_000)),
            "embedding_dim": draw.choice((8, 16, 32, 64)),
        },
        "data": {"eval_rows": 0, "synthetic": {"rows": 20_000, "seed": 7}},
        "roles": {"trainers": 4, "embedding_servers": 2, "dense_servers": 1},
        "training": {
            "batch_size": draw.choice((64, 128, 256, 512, 1024)),
            "threads": draw.choice((1, 2, 4)),
            "steps": 60,
            "warmup_steps": 3,
        },
        "strategy": [draw.choice(options) for options in kinds],
        "seed": seed,
        "cluster": profile(draw, seed, cores),
        "search": {
            "hosts": sorted(draw.sample((3, 4, 6, 8, 12), draw.choice((1, 2)))),
            "embedding_hosts": sorted(draw.sample((0, 1, 2, 3), 2)),
            "dense_hosts": sorted(draw.sample((0, 1, 2), draw.choice((1, 2)))),
            "trainers_per_host": [n for n in each if n * threads[0] <= cores] or [1],
            "servers_per_host": sorted(draw.sample((1, 2, 4), draw.choice((1, 2)))),
            "threads": threads,
            "any_step": draw.random() < 0.3,
        },
    }


def profile(draw: Random, seed: int, cores: int) -> dict[str, Any]:
    """Hosts with the prices of reference-2core."""
    rate = draw.choice((1, 2, 10))

    def rent(cores: int) -> dict[str, Any]:
        about = {"currency": "USD", "source": "drawn", "date": "2026-11-30"}
        return {"per_hour": RENTS[cores], **about}

    found: dict[str, Any] = {
        "extends": "reference-2core",
        "name": f"drawn-{seed}",
        "colocate": False,
        "hosts": {
            "default": {
                "cores": cores,
                "memory": "32 GiB",
                "nic": f"{rate} Gbit/s",
                "rent": rent(cores),
            }
        },
        "network": {
            "latency": f"{draw.choice((20, 50))} us",
            "efficiency": 0.9564,
            "connection_cap": None,
            "queue": draw.choice(("fair", "fifo")),
            "queue_length": "20 ms",
        },
    }
    if draw.random() < 0.4:
        other = draw.choice([many for many in RENTS if many != cores])
        found["mixed"] = {
            "default": [{"count": draw.choice((2, 4))}, {"cores": other, "rent": rent(other)}]
        }
    if draw.random() < 0.4:
        found["topology"] = {
            "racks": 2,
            "oversubscription": draw.choice((2, 4)),
            "arrange": draw.choice(("spread", "fill")),
            "latency": "5 us",
        }
    return found


if __name__ == "__main__":
    main()
