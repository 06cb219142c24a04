"""Sweeps whose rows are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recsim_train.results.row import Row, row_from
from recsim_train.sweep.findings import SweepFindings
from recsim_train.sweep.folder import FORMAT, read_sweep, write_sweep

CORES = {"what": "cores", "resource": "trainer[0].cores", "busy": 0.95}
CARD = {"what": "nic.rx", "resource": "dense_server[1].nic.rx", "busy": 0.95}


def row(**figures: Any) -> Row:
    eps = figures.get("examples_per_second")
    given: dict[str, Any] = {
        "strategy": "flat_ps", "options": {}, "profile": "p", "status": "complete",
        "eps_low": eps and 0.98 * eps, "eps_high": eps and 1.02 * eps, "bound_eps": eps and 2 * eps,
        "calibration_low": eps, "calibration_high": eps,  # of prices without errors
        "binding": CORES, "bytes_per_step": 10.0, "memory_share": 0.5,
    }  # fmt: skip
    return row_from({**given, **figures})


def sweep(folder: Path, points: list[tuple[dict[str, Any], dict[str, Any]]]) -> SweepFindings:
    """A finished sweep of (swept values, figures)."""
    axes: dict[str, list[Any]] = {}
    for values, _ in points:
        for key, value in values.items():
            if value not in axes.setdefault(key, []):
                axes[key].append(value)
    described = [
        {"values": v, "strategy": f.get("strategy", "flat_ps"), "options": {}, "identity": str(n)}
        for n, (v, f) in enumerate(points)
    ]
    header = {
        "tool": "recsim-train", "format": FORMAT, "name": "made", "file": "made.yaml", "code": "0",
        "axes": axes, "points": described, "settings": {}, "command": ["recsim-train"],
    }  # fmt: skip
    path = folder / "made-sweep"
    path.mkdir(parents=True)
    (path / "sweep.json").write_text(json.dumps(header))
    write_sweep(path, header, {n: row(**figures) for n, (_, figures) in enumerate(points)})
    return SweepFindings(read_sweep(path))


def scaling(folder: Path) -> SweepFindings:
    points = []
    for trainers in (8, 1, 2):
        for rate in ("100 Gbit/s", "5 Gbit/s"):
            for kind, slope in (("flat_ps", 10.0), ("allreduce", 7.0)):
                eps = min(slope * trainers, 40.0 if rate.startswith("5 ") else 1000.0)
                where = CARD if eps == 40.0 else CORES
                values = {"roles.trainers": trainers, "cluster.hosts.default.nic": rate}
                figures = {"strategy": kind, "examples_per_second": eps, "binding": where}
                points.append((values, figures))
    return sweep(folder, points)


def at(
    trainers: int, eps: float, half: float, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A point of ``trainers`` whose 90 % are ``half`` on each side, a share of it."""
    wide = half * 1.96 / 1.645  # the simulation's own interval is one of 95 %
    figures = {
        "examples_per_second": eps, "eps_low": max(0.0, eps * (1 - wide)),
        "eps_high": eps * (1 + wide), "trainers": trainers, "threads": 1, "cores": 4.0 * trainers,
        "dense_servers": 1, "binding": {"what": "cores", "resource": f"{trainers}.cores"},
    }  # fmt: skip
    return {"roles.trainers": trainers}, {**figures, **more}
