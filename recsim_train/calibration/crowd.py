"""Two threads of one process that do steps of small nets: how they get in each other's way at the
interpreter lock.

No strategy's loop, no reader, nothing of the executor's runtime: steps against a shard of their own
(`recsim_train.calibration.load_probe`), by one thread and by two in turn, so that the machine's
speed meets both alike. The models are this module's own. No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_train.calibration.grid import MEBI, Setting, training
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.operations import cost
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters

THREADS = 2
CROWDED: tuple[tuple[Setting, int], ...] = (
    (Setting(8, 4, (32,), (16,), (48,), 4 * MEBI), 48),
    (Setting(24, 12, (128,), (64,), (64,), 8 * MEBI), 64),
    (Setting(12, 22, (64, 32), (96, 32), (112,), 8 * MEBI), 112),
    (Setting(48, 6, (96, 96), (48,), (320,), 8 * MEBI), 320),
    (Setting(32, 8, (192, 64), (224, 96), (80,), 8 * MEBI), 80),
)
"""(model, batch)."""
OPERATIONS = (
    "route_ids", "lookup_pooled", "assemble_rows", "forward_backward", "route_gradient",
    "update_pooled", "apply",
)  # fmt: skip
"""Of a step."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What one setting's steps showed."""

    alone: float
    """Steps per second of one thread."""
    together: float
    """Steps per second of `THREADS` threads together."""
    work: tuple[Work, ...]
    """Counted work of a step, by operation."""


def settings(*, quick: bool) -> Sequence[tuple[Setting, int]]:
    """Those that are measured."""
    return CROWDED[: 1 if quick else None]


def crowds(
    seen: Sequence[tuple[float, float, int]], of: Sequence[tuple[Setting, int]]
) -> list[Crowd]:
    """Of what `recsim_train.calibration.load_probe.measure_lock` has found for these settings."""
    return [
        Crowd(alone, together, step_work(setting, batch, distinct))
        for (alone, together, distinct), (setting, batch) in zip(seen, of, strict=True)
    ]


def step_work(setting: Setting, batch: int, distinct: int) -> tuple[Work, ...]:
    """Counted work of one step against one shard in the own process, by operation."""
    ids, model = batch * setting.tables, setting.model()
    scope = Scope(
        model=model,
        training=training("adagrad").model_copy(update={"dense_optimizer": "sgd"}),
        batch=batch,
        ids=ids,
        unique=distinct,
        tables=setting.tables,
        elements=dense_parameters(model),
    )
    return tuple(cost(name, scope) for name in OPERATIONS)
