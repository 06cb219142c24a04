"""How operations scale over threads, from their times on one thread and on all cores. No torch.

By the law of `recsim_train.workload.threads` an operation whose seconds on one thread are to the
share w_c of class c takes on n threads

    wall_n / wall_1 = 1 - sum over c of w_c (1 - serial_c) (1 - 1 / (n v))
    cpu_n / cpu_1   = 1 + sum over c of w_c ((1 - serial_c) (1 / v - 1) + overhead_c (n - 1))

where v is the speed of a core when all are busy, which the simulator counts by itself. Both are
linear: least squares within limits. Shares w_c come from the fitted prices; what is measured are
ratios, so that no price's error counts twice. The shortest operations are left out: waking threads
takes longer than they do, and nobody's step is made of them where batches are worth sharing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from recsim_train.config.cluster import THREAD_CLASSES, Scaling, Threads
from recsim_train.workload.threads import by_class

Array = NDArray[np.float64]

_SHORTEST = 2e-4
"""Seconds on one thread."""
_SHOWN = 0.1
"""A class that no operation consists of to this share is not measured."""
_LEAST = 0.005
"""A serial share below this is not told from none."""
_RIDGE = 0.02
"""What draws a share to the guess, where no operation shows it."""
_RESAMPLES = 100
_NOISE = 0.05


def fit_threads(
    timed: Sequence[Mapping[str, Any]], prices: Mapping[str, float], threads: int, contention: float
) -> tuple[Threads, str]:
    """The law that fits, and how well it does, in words.

    ``timed``: what `recsim_train.calibration.thread_probe` reports; ``threads``: of its ``many``.
    Raises ValueError where no operation takes long enough.
    """
    seen = [e for e in timed if e["one"][0] >= _SHORTEST and min(*e["one"], *e["many"]) > 0.0]
    if not seen:
        raise ValueError("no operation takes long enough to tell how it scales over threads")
    weights = np.array([_weights(entry["work"], prices) for entry in seen])
    walls = np.array([entry["many"][0] / entry["one"][0] for entry in seen])
    spent = np.array([entry["many"][1] / entry["one"][1] for entry in seen])
    gain = 1.0 - 1.0 / (threads * contention)
    serial = _serial(weights, walls, gain)
    rest = spent - 1.0 - weights @ ((1.0 - serial) * (1.0 / contention - 1.0))
    overhead = _within((threads - 1) * weights, rest, np.zeros_like(serial), 0.0, serial)
    chance = np.random.default_rng(1)
    picks = (chance.integers(0, len(seen), len(seen)) for _ in range(_RESAMPLES))
    spread = np.std([_serial(weights[pick], walls[pick], gain) for pick in picks], axis=0)
    laws: dict[str, Any] = {}
    for place, group in enumerate(THREAD_CLASSES):
        if weights[:, place].max() < _SHOWN:
            laws[group] = Threads().of(group)
            continue
        share = float(serial[place])
        law: dict[str, Any] = {"overhead": min(share, float(overhead[place]))}
        if share > 1.01 * _LEAST:
            error = min(1.0, max(_NOISE, float(spread[place]) / share))
            law |= {"serial": share, "uncertainty": error, "basis": "fit"}
        else:
            law |= {"serial": _LEAST, "uncertainty": 1.0, "basis": "limit"}
        laws[group] = Scaling.model_construct(**law)
    found = Threads.model_construct(measured=threads, **laws)
    errors = [abs(x) for x in ((1.0 - weights @ ((1.0 - serial) * gain)) / walls - 1.0).tolist()]
    text = f"on {threads} threads, median error {median(errors):.0%} of the wall time"
    return found, text


def _weights(work: Mapping[str, float], prices: Mapping[str, float]) -> list[float]:
    """Of an operation's seconds on one thread, the share of each class."""
    whole = sum(units * prices[name] for name, units in work.items())
    groups = by_class(work, prices)
    return [groups.get(group, 0.0) / whole for group in THREAD_CLASSES]


def _serial(weights: Array, walls: Array, gain: float) -> Array:
    """Serial shares by class."""
    guess = 1.0 - np.array([Threads().of(group).serial for group in THREAD_CLASSES])
    limit = np.full(len(guess), 1.0 - _LEAST)
    return np.asarray(1.0 - _within(gain * weights, 1.0 - walls, guess, _RIDGE, limit))


def _within(matrix: Array, wanted: Array, guess: Array, ridge: float, most: Array) -> Array:
    """The least-squares solution from 0 to ``most``, by a mild ridge near ``guess``."""
    strength = max(ridge, 1e-9) * np.sqrt(len(matrix))
    full = np.vstack([matrix, strength * np.eye(len(guess))])
    found = lsq_linear(full, np.concatenate([wanted, strength * guess]), (0.0, most + 1e-12))
    return np.asarray(np.clip(found.x, 0.0, most))
