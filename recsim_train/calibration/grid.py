"""The micro-workloads' models and settings. They span shapes; none is a model that anybody trains.

No torch here: the caller needs to know how many there are, and reports their range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsim_train.config.experiment import Model, Table, Training


@dataclass(frozen=True, slots=True)
class Setting:
    """One model at some batch sizes."""

    dim: int
    tables: int
    bottom: tuple[int, ...]
    """Widths before the embedding width."""
    top: tuple[int, ...]
    """Widths before the last, which is 1."""
    batches: tuple[int, ...]
    shard_bytes: int
    """Bytes of all embedding rows together: larger than a core's own cache."""
    ids: int = 1
    """Ids per bag."""
    variable: bool = False
    features: int = 13
    """Numbers of an example."""

    @property
    def rows(self) -> int:
        """Rows of each table."""
        return max(64, self.shard_bytes // (4 * self.dim * self.tables))

    def model(self) -> Model:
        """The setting as a model."""
        table = Table(rows=self.rows, ids=self.ids, variable=self.variable)
        return Model(
            name=f"d{self.dim} x {self.tables}",
            embedding_dim=self.dim,
            dense_features=self.features,
            bottom_mlp=(*self.bottom, self.dim),
            top_mlp=(*self.top, 1),
            tables=(table,) * self.tables,
        )


MEBI = 1 << 20
MEETING_BYTES = 4 * MEBI
"""What each of two members sends in the collectives that tell what waiting bytes take."""

GRID: tuple[Setting, ...] = (
    Setting(8, 4, (32,), (16,), (32, 256, 2048), 6 * MEBI),
    Setting(64, 8, (128,), (256, 64), (64, 512), 24 * MEBI),
    Setting(32, 40, (64,), (128, 32), (32, 256, 1024), 48 * MEBI),
    Setting(16, 12, (1024, 256), (1024, 512), (64, 384), 8 * MEBI),
    Setting(48, 20, (256, 128), (512, 128), (96, 768), 32 * MEBI),
    Setting(24, 30, (512,), (64,), (48, 512, 2048), 16 * MEBI),
    Setting(8, 40, (128, 64), (256,), (128, 640), 12 * MEBI),
    Setting(64, 16, (512, 512), (1024, 256), (32, 192), 64 * MEBI),
    Setting(32, 6, (768,), (768, 384, 64), (160, 1024), 16 * MEBI),
    Setting(16, 34, (96,), (320, 160), (80, 896), 10 * MEBI),
    Setting(16, 10, (64,), (64,), (64, 512), 16 * MEBI, ids=10),
    Setting(32, 5, (64,), (64,), (96, 768), 24 * MEBI, ids=6, variable=True),
)
"""About two dozen (model, batch) pairs; every operation is timed at each."""

QUICK: tuple[Setting, ...] = (
    Setting(8, 4, (32,), (16,), (32, 256), 4 * MEBI),
    Setting(32, 12, (512, 64), (512, 256), (64, 384), 8 * MEBI),
    Setting(16, 6, (64,), (64,), (64,), 4 * MEBI, ids=4),
)
"""A few settings for tests of the machinery; too few for good prices."""


CROWD = 2
"""Threads of one process that get in each other's way at the interpreter lock."""
CROWDED: tuple[tuple[Setting, int], ...] = (
    (Setting(8, 4, (32,), (16,), (), 4 * MEBI), 48),
    (Setting(24, 12, (128,), (64,), (), 8 * MEBI), 64),
    (Setting(12, 22, (64, 32), (96, 32), (), 8 * MEBI), 112),
    (Setting(48, 6, (96, 96), (48,), (), 8 * MEBI), 320),
    (Setting(32, 8, (192, 64), (224, 96), (), 8 * MEBI), 80),
)
"""(model, batch) of their steps: small nets."""


def training(
    sparse: Literal["sgd", "rowwise_adagrad"] = "rowwise_adagrad",
    dense: Literal["sgd", "adagrad"] = "sgd",
) -> Training:
    """Training settings with these optimizers."""
    return Training(dense_optimizer=dense, sparse_optimizer=sparse, dense_lr=1e-4, sparse_lr=1e-4)


def ranges(settings: tuple[Setting, ...]) -> dict[str, tuple[float, float]]:
    """Smallest and largest of every setting: outside them a prediction extrapolates."""
    widths = [w for s in settings for w in (*s.bottom, *s.top)]
    batches = [b for s in settings for b in s.batches]
    return {
        "training.batch_size": (min(batches), max(batches)),
        "model.embedding_dim": (min(s.dim for s in settings), max(s.dim for s in settings)),
        "model.tables": (min(s.tables for s in settings), max(s.tables for s in settings)),
        "model.layer_width": (min(widths), max(widths)),
        "model.ids": (min(s.ids for s in settings), max(s.ids for s in settings)),
    }
