"""The public workloads as data: DLRM's scripts and MLPerf's reference.

Row counts, widths and multi-hot sizes are those of facebookresearch/dlrm and of MLPerf Training.
Our own reading, where the sources leave it open:

* criteo-tb-10m: the sources name only the cap of 10 million rows. The rows per table are taken to
  be MLPerf v2's, capped at 10 million (a reconstruction).
* synthetic: DLRM's benchmark script writes the bottom MLP as 512-512-64; the first number is the
  input there as in the other workloads, so this model has 512 dense features. It cannot be fed
  from Criteo text, which has 13.
* mlperf: tables, multi-hot sizes and MLPs of v2; the interaction is the dot product here, not
  DCNv2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_KAGGLE_ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
_MLPERF_ROWS = (
    40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10,
    2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36,
)  # fmt: skip
_MLPERF_IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


@dataclass(frozen=True, slots=True)
class Preset:
    """One workload."""

    summary: str
    """One line: where it comes from."""
    embedding_dim: int
    dense_features: int
    bottom_mlp: tuple[int, ...]
    """Widths after the input."""
    top_mlp: tuple[int, ...]
    """Widths after the interaction."""
    rows: tuple[int, ...]
    """Rows per table."""
    ids: tuple[int, ...]
    """Ids per example and table."""
    variable: bool
    """Whether bags hold up to ``ids`` ids."""
    batch_size: int
    """Batch size of the source; a hint, no preset sets ``training.batch_size``."""
    kind: str = "dlrm"
    """Which net."""

    def model(self, name: str) -> dict[str, Any]:
        """The fields of `config.experiment.Model`, as plain data."""
        return {
            "name": name,
            "kind": self.kind,
            "embedding_dim": self.embedding_dim,
            "dense_features": self.dense_features,
            "bottom_mlp": list(self.bottom_mlp),
            "top_mlp": list(self.top_mlp),
            "tables": [
                {"rows": rows, "ids": ids, "variable": self.variable}
                for rows, ids in zip(self.rows, self.ids, strict=True)
            ],
        }


def _click_net(kind: str, title: str, top_mlp: tuple[int, ...]) -> Preset:
    """A net on the Criteo Kaggle tables, with d = 16. The widths are ours (a reconstruction)."""
    return Preset(
        summary=f"{title} on the Criteo Kaggle data (widths: ours)",
        embedding_dim=16,
        dense_features=13,
        bottom_mlp=(),
        top_mlp=top_mlp,
        rows=_KAGGLE_ROWS,
        ids=(1,) * 26,
        variable=False,
        batch_size=512,
        kind=kind,
    )


PRESETS: dict[str, Preset] = {
    "synthetic": Preset(
        summary="DLRM's benchmark script: 8 tables of a million rows, up to 100 ids each",
        embedding_dim=64,
        dense_features=512,
        bottom_mlp=(512, 64),
        top_mlp=(1024, 1024, 1024, 1),
        rows=(1_000_000,) * 8,
        ids=(100,) * 8,
        variable=True,
        batch_size=2048,
    ),
    "criteo-kaggle": Preset(
        summary="DLRM on the Criteo Kaggle data",
        embedding_dim=16,
        dense_features=13,
        bottom_mlp=(512, 256, 64, 16),
        top_mlp=(512, 256, 1),
        rows=_KAGGLE_ROWS,
        ids=(1,) * 26,
        variable=False,
        batch_size=128,
    ),
    "criteo-tb-10m": Preset(
        summary="DLRM on the Criteo Terabyte data, rows capped at 10 million "
        "(rows per table: a reconstruction)",
        embedding_dim=64,
        dense_features=13,
        bottom_mlp=(512, 256, 64),
        top_mlp=(512, 512, 256, 1),
        rows=tuple(min(rows, 10_000_000) for rows in _MLPERF_ROWS),
        ids=(1,) * 26,
        variable=False,
        batch_size=2048,
    ),
    "mlperf": Preset(
        summary="MLPerf v2's tables, multi-hot sizes and MLPs, with the dot interaction",
        embedding_dim=128,
        dense_features=13,
        bottom_mlp=(512, 256, 128),
        top_mlp=(1024, 1024, 512, 256, 1),
        rows=_MLPERF_ROWS,
        ids=_MLPERF_IDS,
        variable=False,
        batch_size=2048,
    ),
    "wide-deep": _click_net("wide_deep", "Wide & Deep", (1024, 512, 256, 1)),
    "deepfm": _click_net("deepfm", "DeepFM", (400, 400, 400, 1)),
    "dcn": _click_net("dcn", "Deep & Cross, 3 cross layers", (256, 256, 1)),
    "tiny": Preset(
        summary="four small tables, for tests and first tries",
        embedding_dim=8,
        dense_features=13,
        bottom_mlp=(16, 8),
        top_mlp=(16, 1),
        rows=(1000, 200, 50, 7),
        ids=(1,) * 4,
        variable=False,
        batch_size=32,
    ),
}


def describe_presets() -> Iterator[str]:
    """One line per preset: its shape and where it comes from."""
    for name, preset in PRESETS.items():
        top = f"deep {'-'.join(map(str, preset.top_mlp))}"
        if preset.kind == "dlrm":
            bottom = "-".join(map(str, (preset.dense_features, *preset.bottom_mlp)))
            top = f"bottom {bottom}, top {'-'.join(map(str, preset.top_mlp))}"
        most = max(preset.ids)
        ids = "1 id" if most == 1 else f"up to {most} ids"
        yield (
            f"{name}: {len(preset.rows)} tables, {sum(preset.rows):,} rows, {ids} per table, "
            f"d = {preset.embedding_dim}, {top}, batch {preset.batch_size}: "
            f"{preset.summary}"
        )
