"""Small spaces of designs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsim_train import calls
from recsim_train.designs.making import space
from recsim_train.designs.space import Space
from recsim_train.session.job import NOBODY
from recsim_train.session.study import Study

ROOT = Path(__file__).parents[2]
CORES = 2
"""Of a host."""
QUICK = [
    "model=tiny", "data.path=null", "training.steps=30", "training.warmup_steps=4",
    "cluster.colocate=false", f"cluster.hosts.default.cores={CORES}",
    "cluster.hosts.default.nic=200 Mbit/s",
]  # fmt: skip
RENT = (
    "cluster.hosts.default.rent={per_hour: 2, currency: EUR, source: a contract, date: 2026-11-27}"
)

Studies = Callable[..., Study]
Spaces = Callable[..., Space]


@pytest.fixture
def studies() -> Studies:
    """An experiment of hosts that trains a small model. ``search``: its section."""

    def make(*sets: str, **search: Any) -> Study:
        given = [f"search.{key}={value}" for key, value in search.items()]
        file = ROOT / "experiments" / "quickstart.yaml"
        return calls.load(file, ROOT / "tests/frozen-2core.yaml", [*QUICK, *given, *sets])

    return make


@pytest.fixture
def spaces(studies: Studies) -> Spaces:
    """The designs of such a one. ``most``: hosts."""

    def make(*sets: str, most: int | None = None, **search: Any) -> Space:
        return space(studies(*sets, **search), most, NOBODY)

    return make
