"""The strategies by name: our own, and those that installed packages offer.

A third party adds one through the entry-point group ``recsim_train.strategies`` (name = kind,
value = the class). Nothing else needs to know about it.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from recsim_train.config.units import Section
from recsim_train.strategy.base import Place, Strategy
from recsim_train.strategy.options import build, option_schemas

if TYPE_CHECKING:
    from recsim_train.config.experiment import StrategyChoice

ENTRY_POINTS = "recsim_train.strategies"
_BUILT_IN = {
    "flat_ps": "recsim_train.strategy.flat_ps:FlatPS",
    "allreduce": "recsim_train.strategy.allreduce:AllReduceSGD",
    "des": "recsim_train.strategy.des:DES",
    "hierarchical": "recsim_train.strategy.hierarchical:Hierarchical",
    "localsgd": "recsim_train.strategy.localsgd:LocalSGD",
    "shadowsync": "recsim_train.strategy.shadowsync:ShadowSync",
    "scalefreectr": "recsim_train.strategy.scalefreectr:ScaleFreeCTR",
}
_registered: dict[str, type[Strategy]] = {}


def register(strategy: type[Strategy]) -> type[Strategy]:
    """Add a strategy class in this process (a notebook, a test); usable as a decorator.

    Raises ValueError where the name is taken by another class.
    """
    known = strategies().get(strategy.kind)
    if known is not None and known.__qualname__ != strategy.__qualname__:
        raise ValueError(f"a strategy named {strategy.kind!r} exists already: {known.__qualname__}")
    _registered[strategy.kind] = strategy
    return strategy


def forget(strategy: type[Strategy]) -> None:
    """Undo `register`."""
    _registered.pop(strategy.kind, None)


def registered(choice: StrategyChoice) -> list[type[Strategy]]:
    """The chosen class where only `register` has made it known, else nothing."""
    return [_registered[choice.kind]] if choice.kind in _registered else []


@functools.cache
def _installed() -> dict[str, type[Strategy]]:
    found: dict[str, type[Strategy]] = {k: resolve_name(v) for k, v in _BUILT_IN.items()}
    for entry in entry_points(group=ENTRY_POINTS):
        found.setdefault(entry.name, entry.load())
    return found


def strategies() -> dict[str, type[Strategy]]:
    """Every known strategy class by its name."""
    return {**_installed(), **_registered}


def schemas() -> dict[str, type[Section]]:
    """The settings of every known strategy."""
    return {kind: option_schemas(strategy) for kind, strategy in strategies().items()}


def create(choice: StrategyChoice, place: Place | None = None) -> Strategy:
    """A fresh instance with the chosen options. Raises KeyError for an unknown name."""
    strategy = build(strategies()[choice.kind], choice.options)
    if place is not None:
        strategy.place = place
    return strategy
