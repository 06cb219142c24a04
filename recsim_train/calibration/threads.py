"""How operations scale over threads, from their times on one thread and on all cores. No torch.

By the law of `recsim_train.workload.threads` an operation of t seconds on one thread, of which the
share w_c is divided work of class c, and of which R operators are divided, takes on n threads

    wall_n / wall_1 = 1 - sum over c of w_c (1 - serial_c) (1 - 1 / (n v)) + R wake / t
    cpu_n / cpu_1   = 1 + sum over c of w_c ((1 - serial_c) (1 / v - 1) + overhead_c (n - 1))
                        + R (caller + pool (n - 1)) / t

where v is the speed of a core when all are busy, which the simulator counts by itself. Both are
linear: least squares of relative errors within limits. Shares w_c come from the fitted prices; what
is measured are ratios, so that no price's error counts twice. The shortest operations count only
where they are divided: they show what waking threads takes, the long ones how work is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from recsim_train.calibration.fit import Array, eased
from recsim_train.config.cluster import ASSUMED_THREADS, THREAD_CLASSES, Scaling, Threads, Waking
from recsim_train.workload.threads import by_class

_SHORTEST = 2e-4
"""Seconds on one thread."""
_SHOWN = 0.1
"""A class that no operation consists of to this share is not measured."""
_LEAST = 0.005
"""A serial share below this is not told from none."""
_RIDGE = 0.02
"""What draws a share to what is assumed, where no operation shows it."""
_WEAK = 0.002
"""The same of what waking takes."""
_MOST = 1e3
"""Times what is assumed that waking takes at most."""
_ROUNDS = 4
"""In which what lies far off comes to count less."""
_RESAMPLES = 60
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class _Seen:
    """Operations as arrays: [operations], weights [operations, classes]."""

    weights: Array
    walls: Array
    """Seconds on many threads to those on one; so the next two, of CPU seconds of all threads and
    of the calling one."""
    spent: Array
    own: Array
    woken: Array
    """Wall seconds that waking takes as assumed, to those on one thread."""
    cpu_woken: Array
    """The same of CPU seconds, to those on one thread."""

    @classmethod
    def of(cls, entries: Sequence[Mapping[str, Any]], prices: Mapping[str, float]) -> _Seen:
        one = np.array([entry["one"][:2] for entry in entries])
        many = np.array([(*entry["many"], entry["many"][0])[:3] for entry in entries])
        wakes = np.array([entry.get("wakes", 0) for entry in entries])
        return cls(
            np.array([_weights(entry, prices) for entry in entries]),
            many[:, 0] / one[:, 0],
            many[:, 1] / one[:, 1],
            many[:, 2] / one[:, 1],
            wakes * ASSUMED_THREADS.wake.wall / one[:, 0],
            wakes * ASSUMED_THREADS.wake.wall / one[:, 1],
        )

    def picked(self, pick: NDArray[np.int64]) -> _Seen:
        """Some of them."""
        return _Seen(*(getattr(self, name)[pick] for name in self.__slots__))

    def predicted(self, serial: Array, wake: float, gain: float) -> Array:
        """Wall seconds to those on one thread, by the law."""
        return np.asarray(1.0 - self.weights @ ((1.0 - serial) * gain) + self.woken * wake)


def fit_threads(
    timed: Sequence[Mapping[str, Any]], prices: Mapping[str, float], threads: int, contention: float
) -> tuple[Threads, str]:
    """The law that fits, and how well it does, in words.

    ``timed``: as `recsim_train.calibration.own.unit.FromPlans.threaded`; ``threads``: of ``many``.
    Raises ValueError where no operation takes long enough.
    """
    good = [
        e
        for e in timed
        if min(*e["one"], *e["many"]) > 0.0 and (e["one"][0] >= _SHORTEST or e.get("wakes", 0))
    ]
    fitted = [entry for entry in good if not entry.get("check")]
    if not fitted:
        raise ValueError("no operation takes long enough to tell how it scales over threads")
    seen = _Seen.of(fitted, prices)
    gain = 1.0 - 1.0 / (threads * contention)
    serial, wake = _wall(seen, gain)
    overhead, caller, pool = _spent(seen, serial, wake, threads, contention)
    chance = np.random.default_rng(1)
    picks = (chance.integers(0, len(fitted), len(fitted)) for _ in range(_RESAMPLES))
    samples = [_wall(seen.picked(pick), gain) for pick in picks]
    spread = np.std([shares for shares, _ in samples], axis=0)
    laws: dict[str, Any] = {"wake": ASSUMED_THREADS.wake}
    for place, group in enumerate(THREAD_CLASSES):
        if seen.weights[:, place].max() < _SHOWN:
            laws[group] = ASSUMED_THREADS.of(group)
            continue
        sure = serial[place] > 1.01 * _LEAST
        share = float(serial[place]) if sure else _LEAST
        laws[group] = Scaling.model_construct(
            serial=share,
            overhead=min(share, float(overhead[place])),
            uncertainty=min(1.0, max(_NOISE, float(spread[place]) / share)) if sure else 1.0,
            basis="fit" if sure else "limit",
        )
    if seen.woken.any():
        error = float(np.std([once for _, once in samples])) / wake if wake > _LEAST else 1.0
        assumed = ASSUMED_THREADS.wake.wall
        laws["wake"] = Waking.model_construct(
            wall=wake * assumed,
            caller=caller * assumed,
            pool=pool * assumed,
            uncertainty=min(1.0, max(_NOISE, error)),
            basis="fit" if error < 1.0 else "limit",
        )
    found = Threads.model_construct(measured=threads, **laws)

    def error_of(some: _Seen) -> str:
        off = some.predicted(serial, wake, gain) / some.walls - 1.0
        return f"median error {median(np.abs(off).tolist()):.0%}"

    text = f"on {threads} threads, {error_of(seen)} of the wall time"
    if checked := [entry for entry in good if entry.get("check")]:
        text += f", {error_of(_Seen.of(checked, prices))} on {len(checked)} kept out of the fit"
    if seen.woken.any():
        text += f"; waking them takes {laws['wake'].wall * 1e6:.0f} us"
    return found, text


def _weights(entry: Mapping[str, Any], prices: Mapping[str, float]) -> list[float]:
    """Of an operation's seconds on one thread, the share of each class's divided work."""
    work = entry["work"]
    whole = sum(units * prices[name] for name, units in work.items())
    groups = by_class(entry.get("divided", work), prices)
    return [groups.get(group, 0.0) / whole for group in THREAD_CLASSES]


def _wall(seen: _Seen, gain: float) -> tuple[Array, float]:
    """Serial shares by class; what waking takes, to what is assumed."""
    assumed = np.array([*(1.0 - ASSUMED_THREADS.of(group).serial for group in THREAD_CLASSES), 1.0])
    limit = np.array([*(1.0 - _LEAST for _ in THREAD_CLASSES), _MOST])
    ridge = np.array([*(_RIDGE for _ in THREAD_CLASSES), _WEAK])
    matrix = np.column_stack([gain * seen.weights, -seen.woken]) / seen.walls[:, None]
    wanted, weights = 1.0 / seen.walls - 1.0, np.ones(len(matrix))
    for _ in range(_ROUNDS):
        found = _within(matrix * weights[:, None], wanted * weights, assumed, ridge, limit)
        weights = eased(np.abs(matrix @ found - wanted))
    return np.asarray(1.0 - found[:-1]), float(found[-1])


def _spent(
    seen: _Seen, serial: Array, wake: float, threads: int, contention: float
) -> tuple[Array, float, float]:
    """Overheads by class; CPU seconds of the caller and of each further thread for each time that
    they are woken, to the wall time that is assumed."""
    others = threads - 1
    rest = seen.spent - 1.0 - seen.weights @ ((1.0 - serial) * (1.0 / contention - 1.0))
    matrix = np.column_stack([others * seen.weights, seen.cpu_woken]) / seen.spent[:, None]
    none = np.zeros(len(serial) + 1)
    limit = np.array([*serial, threads * wake])
    *overhead, both = _within(matrix, rest / seen.spent, none, none, limit).tolist()
    own = 1.0 - seen.weights @ ((1.0 - serial) * (1.0 - 1.0 / (threads * contention)))
    waking, over = seen.cpu_woken / seen.own, (seen.own - own) / seen.own
    square = float(waking @ waking)
    caller = min(wake, max(0.0, float(waking @ over) / square)) if square else 0.0
    return np.array(overhead), caller, min(wake, max(0.0, (both - caller) / others))


def _within(matrix: Array, wanted: Array, assumed: Array, ridge: Array, most: Array) -> Array:
    """The least-squares solution from 0 to ``most``, by mild ridges near ``assumed``."""
    strength = np.maximum(ridge, 1e-9) * np.sqrt(len(matrix))
    full = np.vstack([matrix, np.diag(strength)])
    found = lsq_linear(full, np.concatenate([wanted, strength * assumed]), (0.0, most + 1e-12))
    return np.asarray(np.clip(found.x, 0.0, most))
