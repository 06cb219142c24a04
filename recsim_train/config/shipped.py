"""Experiments and cluster profiles that come along, wherever this package was installed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

EXPERIMENTS = "experiments"
SUFFIXES = (".yaml", ".yml")


def shipped(kind: Literal["experiments", "cluster_profiles"]) -> Path:
    """The folder of those that come along: of a wheel inside the package, else of the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def find_experiment(path: Path) -> Path:
    """The file itself; where there is none, the one that comes along by this name, as
    ``quickstart``, ``quickstart.yaml`` or ``experiments/quickstart.yaml``."""
    if path.exists() or path.parent not in (Path(), Path(EXPERIMENTS)):
        return path
    found = shipped("experiments") / f"{path.name.removesuffix('.yaml')}.yaml"
    return found if found.is_file() else path
