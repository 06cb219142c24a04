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
PASSES = frozenset(
    {
        "forward_backward",
        "net_open",
        "net_forward",
        "net_receive",
        "net_backward",
        "net_return",
        "net_gradients",
    }
)
"""A net's pass, or what it is cut into."""

_GROUPS = {
    **dict.fromkeys(("route_ids", "assemble_rows", "route_gradient"), "client"),
    **dict.fromkeys(("lookup_pooled", "lookup_rows"), "lookup"),
    **dict.fromkeys(("update_pooled", "update_rows"), "update"),
    "forward_backward": "forward_backward",
    "deduplicate": "deduplicate",
    "reading": "reading",
}
MESSAGES, ROUND_TRIPS = "messages in runs", "round trips"
MEETINGS, READING = "collectives in runs", "reading"
"""Groups of what is fitted to runs of calibration's own programs, and to bare messages."""


def fit_group(operation: str) -> str:
    """The group of micro-workloads, by whose residuals an operation's prices are judged."""
    return _GROUPS.get(operation, "dense")
