"""The operations that calibration times; all others are priced by their counted work alone."""

from __future__ import annotations

MEASURED = frozenset(
    {
        # `recsim_train.calibration.kernel_probe.Bench.cases`: once for each batch size
        "forward_backward",
        "deduplicate",
        "lookup_pooled",
        "lookup_rows",
        "update_pooled",
        "update_rows",
        "route_ids",
        "assemble_rows",
        "route_gradient",
        # `recsim_train.calibration.kernel_probe.Bench.dense_cases`
        "apply",
        "load",
        "snapshot",
        "subtract",
        "interpolate",
        "block_step",
        "accumulate",
        "drain",
        "dense_read",
        "dense_apply",
        "dense_elastic",
        "threshold",
        "narrow",
        "widen",
        "sparsify",
        "densify",
    }
)
"""Operations among the micro-workloads of `recsim_train.calibration.kernel_probe`."""
IN_RUNS = frozenset({"reading"})
"""Operations whose prices come from runs (`recsim_train.calibration.reads`)."""
