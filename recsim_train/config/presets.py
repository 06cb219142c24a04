"""The public workloads as data, DLRM's scripts and MLPerf's reference; and the short forms of
``model`` in the YAML, of which their names are one, written out as the model's fields.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from recsim_train.config.columns import Columns, tables_of
from recsim_train.config.experiment import Model, Table
from recsim_train.config.options import unknown
from recsim_train.config.problems import KeyPath, Mistakes, shown
from recsim_train.config.tables import is_integer, rows_of, write_out_tables
from recsim_train.config.units import IN_SHORT
from recsim_train.config.validate import check, parse

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
    batch_size: int
    """Batch size of the source; a hint, no preset sets ``training.batch_size``."""
    shape: Model

    def model(self, name: str) -> dict[str, Any]:
        """The fields of `config.experiment.Model`, as plain data."""
        return {**self.shape.model_dump(mode="json"), "name": name}


def _tables(rows: Sequence[int], ids: Sequence[int] = (), **kinds: bool) -> tuple[Table, ...]:
    """One table for each number of rows; ``ids``: of each per example, one where it is empty."""
    pairs = zip(rows, ids or [1] * len(rows), strict=True)
    return tuple(Table(rows=count, ids=each, **kinds) for count, each in pairs)


_KAGGLE = _tables(_KAGGLE_ROWS)


def _click_net(
    kind: Literal["wide_deep", "deepfm", "dcn"], title: str, top_mlp: tuple[int, ...]
) -> Preset:
    """A net on the Criteo Kaggle tables, with d = 16. The widths are ours (a reconstruction)."""
    shape = Model(kind=kind, embedding_dim=16, top_mlp=top_mlp, tables=_KAGGLE)
    return Preset(f"{title} on the Criteo Kaggle data (widths: ours)", 512, shape)


PRESETS: dict[str, Preset] = {
    "synthetic": Preset(
        summary="DLRM's benchmark script: 8 tables of a million rows, up to 100 ids each",
        batch_size=2048,
        shape=Model(
            embedding_dim=64,
            dense_features=512,
            bottom_mlp=(512, 64),
            top_mlp=(1024, 1024, 1024, 1),
            tables=_tables((1_000_000,) * 8, (100,) * 8, variable=True),
        ),
    ),
    "criteo-kaggle": Preset(
        summary="DLRM on the Criteo Kaggle data",
        batch_size=128,
        shape=Model(
            embedding_dim=16,
            bottom_mlp=(512, 256, 64, 16),
            top_mlp=(512, 256, 1),
            tables=_KAGGLE,
        ),
    ),
    "criteo-tb-10m": Preset(
        summary="DLRM on the Criteo Terabyte data, rows capped at 10 million "
        "(rows per table: a reconstruction)",
        batch_size=2048,
        shape=Model(
            embedding_dim=64,
            bottom_mlp=(512, 256, 64),
            top_mlp=(512, 512, 256, 1),
            tables=_tables([min(rows, 10_000_000) for rows in _MLPERF_ROWS]),
        ),
    ),
    "mlperf": Preset(
        summary="MLPerf v2's tables, multi-hot sizes and MLPs, with the dot interaction",
        batch_size=2048,
        shape=Model(
            embedding_dim=128,
            bottom_mlp=(512, 256, 128),
            top_mlp=(1024, 1024, 512, 256, 1),
            tables=_tables(_MLPERF_ROWS, _MLPERF_IDS),
        ),
    ),
    "wide-deep": _click_net("wide_deep", "Wide & Deep", (1024, 512, 256, 1)),
    "deepfm": _click_net("deepfm", "DeepFM", (400, 400, 400, 1)),
    "dcn": _click_net("dcn", "Deep & Cross, 3 cross layers", (256, 256, 1)),
    "tiny": Preset(
        summary="four small tables, for tests and first tries",
        batch_size=32,
        shape=Model(
            embedding_dim=8,
            bottom_mlp=(16, 8),
            top_mlp=(16, 1),
            tables=_tables((1000, 200, 50, 7)),
        ),
    ),
}


def describe_presets() -> Iterator[str]:
    """One line per preset: its shape and where it comes from."""
    for name, preset in PRESETS.items():
        shape = preset.shape
        top = f"deep {'-'.join(map(str, shape.top_mlp))}"
        if shape.kind == "dlrm":
            bottom = "-".join(map(str, (shape.dense_features, *shape.bottom_mlp)))
            top = f"bottom {bottom}, top {'-'.join(map(str, shape.top_mlp))}"
        rows, most = sum(t.rows for t in shape.tables), max(t.ids for t in shape.tables)
        ids = "1 id" if most == 1 else f"up to {most} ids"
        yield (
            f"{name}: {len(shape.tables)} tables, {rows:,} rows, {ids} per table, "
            f"d = {shape.embedding_dim}, {top}, batch {preset.batch_size}: {preset.summary}"
        )


_EXPECTED_MODEL = "expected a preset's name or a mapping"


def write_out_model(raw: object, data: object, mistakes: Mistakes) -> dict[str, Any] | None:
    """The model's fields, or None if there is nothing to check further.

    A name; a mapping with ``preset`` and overrides; or all fields. ``tables`` may be written in the
    forms of `recsim_train.config.tables`; ``max_rows`` caps every table. Where the section ``data``
    has columns, tables and the number of features follow from them.
    """
    path: KeyPath = ("model",)
    if raw is None:
        mistakes.add(path, f"missing; {_EXPECTED_MODEL} (presets: {', '.join(PRESETS)})")
        return None
    preset_path = path if isinstance(raw, str) else (*path, "preset")
    if isinstance(raw, str):
        raw = {"preset": raw}
    if not isinstance(raw, dict):
        mistakes.add(path, f"{_EXPECTED_MODEL}, got {shown(raw)}")
        return None
    own = {key: value for key, value in raw.items() if key not in Model.short_forms}
    fields = dict(own)
    if "preset" in raw:
        preset = raw["preset"]
        if not isinstance(preset, str):
            mistakes.add(preset_path, f"expected a preset's name, got {shown(preset)}")
            return None
        if preset not in PRESETS:
            mistakes.add(preset_path, unknown("model preset", preset, PRESETS))
            # The overrides' own mistakes are still worth saying.
            stand_in = PRESETS["tiny"].model("tiny") | {
                k: v for k, v in own.items() if k != "tables"
            }
            check(Model, stand_in, mistakes, prefix=path)
            return None
        fields = PRESETS[preset].model(preset) | own
        dim = own.get("embedding_dim")
        if is_integer(dim) and "bottom_mlp" not in own and fields["bottom_mlp"]:
            # The interaction needs both widths equal: one override is meant for both.
            fields["bottom_mlp"] = [*fields["bottom_mlp"][:-1], dim]
    if own.get("module") is not None:
        if own.get("kind", "module") != "module":
            mistakes.add((*path, "kind"), "a module is no other kind of net: leave it out")
        # a preset's tables and width, and nothing of its net
        fields |= {"kind": "module", "bottom_mlp": [], "top_mlp": []}
        fields |= {key: own[key] for key in ("bottom_mlp", "top_mlp") if key in own}
    if "tables" in own:
        dim = fields.get("embedding_dim")
        fields["tables"] = write_out_tables(own["tables"], dim, mistakes)
    if (found := _of_columns(data)) is not None:
        for key, value in found.items():
            if own.get(key) not in (None, value) and fields.get(key) != value:
                mistakes.add((*path, key), "follows from data.columns: leave it out")
        fields |= found
        if raw.get("max_rows") is not None:
            mistakes.add((*path, "max_rows"), "tables follow from data.columns: cap their buckets")
            return fields
    if raw.get("max_rows") is not None:
        fields["tables"] = _capped(fields.get("tables"), raw["max_rows"], mistakes)
    return fields


def _of_columns(data: object) -> dict[str, Any] | None:
    """What follows from the columns of the section ``data``; None: it has none that are sound."""
    given = data.get("columns") if isinstance(data, dict) else None
    if not given:
        return None
    try:
        columns = parse(Columns, {"columns": given}).columns
    except ValidationError:
        return None
    features = sum(len(column.name) for column in columns if column.type == "numeric")
    return {"dense_features": features, "tables": tables_of(columns)}


def _capped(tables: object, most: object, mistakes: Mistakes) -> object:
    most = rows_of(most)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        short = f" ({IN_SHORT})" if isinstance(most, str) else ""
        mistakes.add(
            ("model", "max_rows"), f"expected an integer of at least 1{short}, got {shown(most)}"
        )
        return tables
    if not isinstance(tables, list):
        return tables
    return [
        {**table, "rows": min(table["rows"], most)}
        if isinstance(table, dict) and is_integer(table.get("rows"))
        else table
        for table in tables
    ]
